"""The source of a job, and its rows as the inputs of a model."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bothways.base.errors import InputError, flag, format_count
from bothways.base.paths import as_path
from bothways.inference.predictor import Predictor
from bothways.settings.predict import Embed, Predict
from bothways.tasks import TASKS
from bothways.text.data.model_inputs import LiveInput, ModelInput, read_questions, read_texts, resolve_columns
from bothways.text.rows.datasets import HUB_PREFIX, arrow_files
from bothways.text.rows.rows import Rows, named_source, open_rows
from bothways.text.rows.standard_input import STANDARD_INPUT
from bothways.text.rows.text_files import find_files, is_pattern


@dataclass(frozen=True)
class JobSource:
    """Where a job reads: a file, standard input, or the text of its settings. It is opened when it is first asked for
    more than its name.

    file: its name, or "-" for standard input.
    encoding: of text files without a byte-order mark; None: UTF-8.
    literal: the row of the settings, instead of a file; empty: none.
    """

    file: str
    encoding: str | None
    literal: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name in a message about a row."""
        return flag("text") if self.literal else str(self.rows.source)

    @property
    def has_lines(self) -> bool:
        """Whether its rows are at lines of a file, or of standard input."""
        return not self.literal and self.rows.form.has_lines

    @cached_property
    def rows(self) -> Rows:
        """The rows of the file, or of standard input."""
        return open_rows(named_source(self.file), self.encoding)

    def names(self, *, of_all_rows: bool) -> list[str]:
        """The names of its columns, in all rows or in the first ones."""
        if self.literal:
            return [*self.literal]
        return self.rows.all_names() if of_all_rows else self.rows.names()

    def types(self) -> Mapping[str, Any]:
        """The Arrow types of the columns of a Parquet or Arrow file."""
        return self.rows.types()


def source_of(settings: Embed | Predict) -> JobSource:
    """The source that the settings name."""
    literal: dict[str, str] = {}
    if isinstance(settings, Predict) and settings.text is not None:
        literal = {"text": settings.text} | ({} if settings.pair is None else {"pair": settings.pair})
    return JobSource(settings.file, settings.encoding, literal)


def check_is_one(settings: Embed | Predict) -> None:
    """InputError if the input is a pattern, or a folder other than a dataset: the rows of an output are of one file."""
    if settings.file == STANDARD_INPUT:
        return

    path = as_path(settings.file)
    if str(path).startswith(HUB_PREFIX) or path.is_file():
        return
    is_folder = path.is_dir()
    if arrow_files(path) if is_folder else not is_pattern(path):
        return

    count = format_count(len(find_files(path)), "file")
    parts = f", or a directory with {flag('out')}, in which each file has a part"
    raise InputError(
        f"{path}: a {'folder' if is_folder else 'pattern'} ({count}) where one file is read; name one"
        + ("" if isinstance(settings, Predict) and settings.label_next is not None else parts)
    )


def read_texts_to_embed(settings: Embed, model: Predictor, source: JobSource) -> Iterator[LiveInput]:
    """The texts of a source. InputError if a row has two, and no setting chooses one of them."""
    trained = {} if settings.text_column else model.description.settings
    names = resolve_columns(source.rows, settings, trained)
    inputs = read_texts(
        source.rows,
        text=names["text"],
        pair=names["pair"],
        encoding=settings.encoding,
    )
    return _require_single(inputs, settings.file, settings.text_column, "a vector is of one")


def read_inputs(settings: Predict, model: Predictor, source: JobSource, keep: Iterable[str]) -> Iterator[LiveInput]:
    """The rows of a source as the model of a task reads them. keep: the columns whose values are passed on."""
    reads = TASKS[model.task].load().inputs
    if source.literal:
        return _literal_input(source.literal, model, reads, keep)

    if reads == "questions":
        return read_questions(
            source.rows,
            question=settings.text_column,
            context=settings.pair_column,
            keep=[*keep],
            encoding=settings.encoding,
        )

    # Blocks of a resumable output must depend only on the rows, not on when they arrive.
    names = resolve_columns(source.rows, settings, model.description.settings)
    inputs = read_texts(
        source.rows,
        **names,
        keep=[*keep],
        live=settings.out is None,
        encoding=settings.encoding,
    )

    if reads == "single texts":
        inputs = _require_single(inputs, settings.file, names["text"], "the model reads one")
    return _match_pairs(
        inputs, settings.file, model, ignores_pairs=model.ignores_pairs(names["text"], settings.pair_column)
    )


def _literal_input(row: Mapping[str, Any], model: Predictor, reads: str, keep: Iterable[str]) -> Iterator[ModelInput]:
    """The input of --text and --pair. InputError if the model reads pairs and --pair is missing, or the reverse."""
    if "pair" not in row and (reads == "questions" or model.reads_pairs):
        raise InputError(
            f"text: this model reads two texts; give the second (the passage of a question) with {flag('pair')}"
        )
    if "pair" in row and (reads == "single texts" or model.reads_pairs is False):
        raise InputError(f"pair: this model reads single texts; leave out {flag('pair')}")
    yield ModelInput(row["text"], row.get("pair"), id="0", kept=tuple(row[name] for name in keep))


def _require_single(inputs: Iterator[LiveInput], file: str, column: str | None, reason: str) -> Iterator[LiveInput]:
    """The inputs. InputError if a row has two texts and no setting chooses one of them."""
    for row in inputs:
        if column is None and isinstance(row, ModelInput) and row.pair is not None:
            raise InputError(f"{file}: a row has two texts, and {reason}; name its column with {flag('text_column')}")
        yield row


def _match_pairs(
    inputs: Iterator[LiveInput], file: str, model: Predictor, *, ignores_pairs: bool
) -> Iterator[LiveInput]:
    """The inputs, without second texts if the model ignores them. InputError if a row has two texts and the model was
    fine-tuned on single texts, or the reverse."""
    for row in inputs:
        if isinstance(row, ModelInput):
            row = row._replace(pair=None) if ignores_pairs else row
            model.check_pairs(row.pair is not None, file)
        yield row
