"""Settings of `index`, `search`, `extract` and `mcp`."""

from dataclasses import fields
from pathlib import Path

from bothways.base.errors import InputError, flag
from bothways.pretrained import DEFAULT, STATIC
from bothways.settings.base import Checked, Compute, How, Printed, settings
from bothways.settings.fields import Location, Locations, OptionalLocation, Several, argument, option

# Options of `index` that say what is read of folders, and how.
NOT_OF_REINDEX = ("folders", "remove", "glob", "static", "language", "encoder")


@settings
class SearchModels:
    """Models that make the vectors of a search index."""

    static: Location = option("model", default=Path(STATIC), first=True)
    """Static vectors: a directory, or a file of word vectors (Word2Vec, GloVe)."""
    language: str = option("data", default="en")
    """Language of the texts, for stemming and the bounds of sentences."""
    glob: Several[str] = option("data", default=(), aliases=("-g",), metavar="GLOB", repeated=True, first=True)
    """Only files whose path in the folder matches, such as *.md or 'notes/**'; with ! in front: none that matches. May
    be given several times."""


@settings
class Index(SearchModels, Checked, Compute, Printed):
    """Index folders for `bothways search`: words and static vectors at once, then the vectors of an encoder. Only new,
    changed and deleted files are read; an interrupted index continues where it was."""

    folders: Locations = argument("FOLDER")
    """Folders (or files): text, HTML, PDF, .docx, .odt, .pptx, .rtf, .eml, .ipynb, .csv, .tsv, .jsonl, .parquet."""
    out: Location = option("output", aliases=("-o",))
    """Directory of the index."""
    model: Location = option("model", default=Path(DEFAULT), metavar="DIR", first=True)
    """Embedding model: checkpoint, run, or name of a model on the hub."""
    encoder: bool = option("model", default=True)
    """Also compute the vectors of --model, which find more than static ones, and take a hundred times as long."""
    remove: Several[str] = option("data", default=(), metavar="ROOT", repeated=True)
    """Forget a folder that was indexed, which may be gone. May be given several times."""
    reindex: bool = option("model", default=False)
    """Replace the vectors of the encoder by vectors of another --model, computed from the passages in the index. No
    file is read. Searches use the old vectors until all new ones are there."""
    map: int | None = option("model", default=None, least=1, metavar="N")
    """With --reindex: compute the vectors of N passages only, and map the old vectors of the others to the new model.
    [compute all]"""
    queries: OptionalLocation = option("evaluation", default=None, metavar="FILE")
    """With --map: queries on which the loss of the map is measured, one a line or in the column query; a column passage
    has right passages. [nearest passages of the sample]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reindex:
            self._check_reindex()
            return
        for name in ("map", "queries"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} ({getattr(self, name)}) needs {flag('reindex', True)}")
        if not self.folders and not self.remove:
            raise InputError(f"folders is empty; name at least one folder, or one to forget with {flag('remove')}")

    def _check_reindex(self) -> None:
        """InputError for options of another kind of indexing."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in NOT_OF_REINDEX and value != field.default and value != ():
                shown = flag(field.name, False) if value is False else f"{field.name} ({value})"
                raise InputError(
                    f"{shown} has no effect with {flag('reindex', True)}, which takes the "
                    "passages from the index; leave it out"
                )
        if self.queries is not None and self.map is None:
            raise InputError(f"queries ({self.queries}) needs {flag('map')}, whose loss it measures")


@settings
class Extract(Checked, Compute, Printed):
    """Extract facts from folders into a table: entities, labels and answers, each with its file, line, exact characters
    and score. Forms of one value are grouped."""

    folders: Locations = argument("FOLDER")
    """Folders (or files): text, HTML, PDF, .docx, .odt, .pptx, .rtf, .eml, .ipynb, .csv, .tsv, .jsonl, .parquet."""
    out: Location = option("output", aliases=("-o",))
    """Table to write: .parquet, .csv or .jsonl."""
    tag: OptionalLocation = option("model", default=None, metavar="DIR")
    """Tagger (finetune tag): a row for each entity."""
    classify: OptionalLocation = option("model", default=None, metavar="DIR")
    """Classifier (finetune classify): a row with the label of each file, page or row."""
    decide: OptionalLocation = option("model", default=None, metavar="DIR", first=True)
    """A model that decides, such as bothways-en: a row with the option that fits each file, page or row."""
    options: str | None = option("model", default=None, first=True, metavar="A,B,C|FILE.json")
    """Options for --decide, as in `bothways decide`. [those of finetune decide]"""
    answer: OptionalLocation = option("model", default=None, metavar="DIR", first=True)
    """Question answering model (finetune answer), for --question: a row with the answer in each file, page or row."""
    question: str | None = option("model", default=None)
    """Question for --answer."""
    min_score: float | None = option("output", default=None, least=0, most=1, first=True)
    """Leave out facts of a lower score."""
    glob: Several[str] = option("data", default=(), aliases=("-g",), metavar="GLOB", repeated=True, first=True)
    """Only files whose path in the folder matches, such as *.md or 'notes/**'; with ! in front: none that matches. May
    be given several times."""
    resume: bool = option("output", default=False, first=True)
    """Continue an extraction that was interrupted."""
    workers: int | None = option("machine", default=None, least=1, first=True)
    """Processes that compute, each with its share of the cores. [this one, with all]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folders:
            raise InputError("folders is empty; name at least one folder")
        if not (self.tag or self.classify or self.decide or self.answer):
            raise InputError("tag, classify, decide and answer are missing; name at least one model")
        if self.options and not self.decide:
            raise InputError(f"options ({self.options}) needs decide; name a model that decides, such as bothways-en")
        if (self.answer is None) != (self.question is None):
            given, missing = ("answer", "question") if self.answer else ("question", "answer")
            raise InputError(f"{given} ({getattr(self, given)}) needs {missing}; give both, or none")


@settings
class Mcp(Checked, Compute):
    """Search an index from agents: the Model Context Protocol over standard input and output, with the tools `search`
    and `read`. An agent starts it as: bothways mcp STORE."""

    store: Location = argument("STORE")
    """Directory of an index (`bothways index`)."""
    rerank: OptionalLocation = option("model", default=None, metavar="DIR", first=True)
    """Reranker (finetune rerank), or another model of text pairs, that orders what is found."""
    json: bool = option("output", default=False)
    """No effect: all messages are JSON."""


@settings
class Search(SearchModels, Checked, Compute):
    """Search a folder, or an index of `bothways index`, by words and by meaning. Exit status 1: nothing was found,
    so that nothing is printed."""

    query: str = argument("QUERY")
    """What to search for: words, a question, a sentence."""
    path: Location = argument("FOLDER", default=Path("."))
    """A folder or file, whose index is kept in the cache and brought up to date; or the directory of an index."""
    top: int = option("output", default=10, least=1, first=True)
    """Number of passages."""
    how: How = option("task", default="hybrid", first=True)
    """words: BM25 of stemmed words; vectors: cosine of vectors; hybrid: both."""
    fast: bool = option("task", default=False)
    """Search an encoder's vectors by a static vector of the query, which takes no time and finds a little less."""
    filter: str | None = option("data", default=None, metavar="CONDITION", first=True)
    """Only rows whose columns (or Markdown front matter) match, such as "year > 2010 and author = 'Smith'"."""
    min_score: float | None = option("output", default=None, least=0, most=1)
    """Leave out passages of a lower score. [none; those below 0.15 are marked as weak]"""
    model: OptionalLocation = option("model", default=None, metavar="DIR", first=True)
    """Also index a folder with this embedding model. [static vectors only]"""
    answer: OptionalLocation = option("model", default=None, metavar="DIR", first=True)
    """Question answering model: find the exact answer to the query in the passages."""
    rerank: OptionalLocation = option("model", default=None, metavar="DIR")
    """Reranker (finetune rerank), or another model of text pairs, that orders the best passages anew."""
    files_with_matches: bool = option("output", default=False, aliases=("-l",), first=True)
    """Print only the names of the files."""
    context: int = option("model", default=0, least=0, aliases=("-C",), first=True)
    """Passages before and after each that are printed too."""
    json: bool = option("output", default=False)
    """Print a JSON object per passage."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.query.strip():
            raise InputError("query is empty; name what to search for")
