"""The verbs of search, as the command line knows them before their modules are imported."""

from bothways.cli.verb import Verb

VERBS = {
    "index": Verb(
        settings="bothways.settings.search:Index",
        function="bothways.search.commands:run_index",
        help="index folders for search by words and meaning",
        example="documents -o my-index",
        words="reindex ingest crawl",
    ),
    "search": Verb(
        settings="bothways.settings.search:Search",
        function="bothways.search.commands:run_search",
        help="search a folder or an index",
        example='"which invoices mention late fees" documents',
        words="find grep retrieve query rank lookup",
    ),
    "extract": Verb(
        settings="bothways.settings.search:Extract",
        function="bothways.search.commands:extract",
        help="extract entities, labels and answers of folders",
        example="documents --tag my-tagger -o facts.parquet",
        words="extraction facts",
    ),
    "mcp": Verb(
        settings="bothways.settings.search:Mcp",
        function="bothways.search.commands:mcp",
        help="search an index from agents (MCP over standard input and output)",
        example="my-index",
        words="agent agents tool tools",
        waits=True,
    ),
}
