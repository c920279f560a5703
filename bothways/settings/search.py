"""Settings of `index`, `search`, `extract` and `mcp`."""

from pathlib import Path
from typing import Annotated, Literal

from bothways.errors import InputError
from bothways.pretrained import DEFAULT, STATIC
from bothways.settings.base import Checked, Compute, How, OptionalDirectory, Output, Printed, settings
from bothways.settings.fields import Location, Locations, Positional, UseAppendAction, arg, default

Folders = Positional[Annotated[Locations, arg(metavar="FOLDER ...")]]
# A bare tuple: for the default of tuple[str, ...] tyro would import a type checker, which takes 50 ms of every search.
Globs = Annotated[UseAppendAction[tuple], arg(aliases=("-g",), metavar="GLOB")]  # type: ignore[type-arg]


@settings
class SearchModels:
    """Models that make the vectors of a search index."""

    static: Location = default(Path(STATIC))
    """Static vectors: a directory, or a file of word vectors (Word2Vec, GloVe)."""
    language: str = "en"
    """Language of the texts, for stemming and the bounds of sentences."""
    glob: Globs = ()
    """Only files whose path in the folder matches, such as *.md or 'notes/**'; with ! in front: none that matches. May
    be given several times."""


@settings
class Index(SearchModels, Checked, Compute, Printed):
    """Index folders for `bothways search`: words and static vectors at once, then the vectors of an encoder. Only new,
    changed and deleted files are read; an interrupted index continues where it was."""

    folders: Folders
    """Folders (or files): text, Markdown, HTML, PDF, .docx, .csv, .tsv, .jsonl, .parquet."""
    out: Output
    """Directory of the index."""
    model: Annotated[Location, arg(metavar="DIR")] = default(Path(DEFAULT))
    """Embedding model: checkpoint, run, or name of a model on the hub."""
    encoder: bool = True
    """Also compute the vectors of --model, which find more than static ones, and take a hundred times as long."""
    remove: Annotated[UseAppendAction[tuple], arg(metavar="ROOT")] = ()  # type: ignore[type-arg]
    """Forget a folder that was indexed, which may be gone. May be given several times."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folders and not self.remove:
            raise InputError("folders is empty; name at least one folder, or one to forget with --remove")


@settings
class Extract(Checked, Compute, Printed):
    """Extract facts from folders into a table: entities, labels and answers, each with its file, line, exact characters
    and score. Forms of one value are grouped."""

    folders: Folders
    """Folders (or files): text, Markdown, HTML, PDF, .docx, .csv, .tsv, .jsonl, .parquet."""
    out: Output
    """Table to write: .parquet, .csv or .jsonl."""
    tag: OptionalDirectory = default(None)
    """Tagger (finetune tag): a row for each entity."""
    classify: OptionalDirectory = default(None)
    """Classifier (finetune classify): a row with the label of each file, page or row."""
    answer: OptionalDirectory = default(None)
    """Question answering model (finetune answer), for --question: a row with the answer in each file, page or row."""
    question: str | None = None
    """Question for --answer."""
    glob: Globs = ()
    """Only files whose path in the folder matches, such as *.md or 'notes/**'; with ! in front: none that matches. May
    be given several times."""
    resume: bool = False
    """Continue an extraction that was interrupted."""
    workers: int | None = None
    """Processes that compute, each with its share of the cores. [this one, with all]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.folders:
            raise InputError("folders is empty; name at least one folder")
        if not (self.tag or self.classify or self.answer):
            raise InputError("tag, classify and answer are missing; name at least one model")
        if (self.answer is None) != (self.question is None):
            given, missing = ("answer", "question") if self.answer else ("question", "answer")
            raise InputError(f"{given} ({getattr(self, given)}) needs {missing}; give both, or none")


@settings
class Mcp(Checked, Compute):
    """Search an index from agents: the Model Context Protocol over standard input and output, with the tools `search`
    and `read`. An agent starts it as: bothways mcp STORE."""

    store: Positional[Annotated[Location, arg(metavar="STORE")]]
    """Directory of an index (`bothways index`)."""
    json: bool = False
    """No effect: all messages are JSON."""


@settings
class Search(SearchModels, Checked, Compute):
    """Search a folder, or an index of `bothways index`, by words and by meaning. Exit status 1: nothing was found."""

    query: Positional[Annotated[str, arg(metavar="QUERY")]]
    """What to search for: words, a question, a sentence."""
    path: Positional[Annotated[Location, arg(metavar="[FOLDER]")]] = default(Path("."))
    """A folder or file, whose index is kept in the cache and brought up to date; or the directory of an index."""
    top: int = 10
    """Number of passages."""
    how: How = "hybrid"
    """words: BM25 of stemmed words; vectors: cosine of vectors; hybrid: both."""
    fast: bool = False
    """Search an encoder's vectors by a static vector of the query, which takes no time and finds a little less."""
    filter: Annotated[str | None, arg(metavar="CONDITION")] = None
    """Only rows whose columns (or Markdown front matter) match, such as "year > 2010 and author = 'Smith'"."""
    model: OptionalDirectory = default(None)
    """Also index a folder with this embedding model. [static vectors only]"""
    answer: OptionalDirectory = default(None)
    """Question answering model: find the exact answer to the query in the passages."""
    rerank: OptionalDirectory = default(None)
    """Model of text pairs (finetune regress or classify) that orders the best passages anew."""
    files_with_matches: Annotated[bool, arg(aliases=("-l",))] = False
    """Print only the names of the files."""
    context: Annotated[int, arg(aliases=("-C",))] = 0
    """Passages before and after each that are printed too."""
    color: Literal["auto", "always", "never"] = "auto"
    """Colours; auto: on a terminal, unless $NO_COLOR is set."""
    json: bool = False
    """Print a JSON object per passage."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.query.strip():
            raise InputError("query is empty; name what to search for")
