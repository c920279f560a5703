"""The verbs of search."""

from bothways.cli.verb import Verb

VERBS = {
    "index": Verb(
        "bothways.settings.search:Index",
        "bothways.search.commands:run_index",
        "index folders for search by words and meaning",
        example="documents -o my-index",
        words="reindex ingest crawl",
        output="bothways.search.output:index",
    ),
    "search": Verb(
        "bothways.settings.search:Search",
        "bothways.search.commands:run_search",
        "search a folder or an index",
        example='"which invoices mention late fees" documents',
        words="find grep retrieve query rank lookup",
        output="bothways.search.output:search",
    ),
    "extract": Verb(
        "bothways.settings.search:Extract",
        "bothways.search.commands:extract",
        "extract entities, labels and answers of folders",
        example="documents --tag my-tagger -o facts.parquet",
        words="extraction facts",
        output="bothways.search.output:extract",
    ),
    "mcp": Verb(
        "bothways.settings.search:Mcp",
        "bothways.search.commands:mcp",
        "search an index from agents (MCP over standard input and output)",
        waits=True,
        example="my-index",
        words="agent agents tool tools",
        output="bothways.cli.output:nothing",
    ),
}
