"""The check of a labelled table without training: likely label errors, conflicts, duplicates, empty and odd rows.

Labels are judged by linear models on the vectors of a frozen encoder, each fitted to the other folds. Letters: N rows,
H hidden size, F features, C classes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, RowLocation, flag, format_count
from bothways.base.log import logger
from bothways.base.progress import working
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.measure import report
from bothways.measure.metrics.classification import indicators
from bothways.measure.metrics.label_errors import doubtful_labels, find_outliers, label_set_errors
from bothways.measure.report.page import write_predictions
from bothways.measure.report.result_tables import as_table
from bothways.model.linear.regressions import Kind, out_of_fold_scores, random_order
from bothways.settings.predict import Check
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.arrays import sigmoid, softmax
from bothways.tasks.linear_baselines import MAX_CHECKED, MAX_OUTPUTS
from bothways.tasks.training_task import label_issue
from bothways.text.data.columns import Table
from bothways.text.data.examples import holds_tagged_words, read_table
from bothways.text.data.label_cells import read_labels
from bothways.text.data.labels import FEW_NUMBERS, find_quantity, is_number, label_sets, numeric_labels
from bothways.text.data.near_duplicates import find_conflicts
from bothways.text.data.quality import label_warnings
from bothways.text.data.split_tables import other_columns
from bothways.text.rows.rows import open_rows

# Kinds of remarks, in the order of the page, and the headings of those that are not label errors.
KINDS = ("label", "conflict", "duplicate", "empty", "odd")
HEADINGS = {
    "conflict": "Texts with several labels",
    "duplicate": "Duplicates",
    "empty": "Empty",
    "odd": "Odd rows",
}
SOURCE = "frozen vectors of the other folds"
ODD_DEVIATIONS = 4.0  # robust standard deviations below the median of the cosine to the nearest other text
MIN_JUDGED = 10  # rows from which labels are judged
BLOCK = 1000  # rows whose cosines are computed at once
SHOWN = 5  # remarks of a kind that the command line prints


@dataclass(frozen=True, repr=False)
class CheckResult:
    """Remarks on the rows of a table.

    source: the table, as it was named.
    rows: its rows, with the rows that lack a text or label.
    num_examined: the number of rows whose label was judged.
    remarks: the remarks, by kind.
    notes: notes on all rows.
    encoding: the encoding of the file, if it was named.
    """

    source: TableSource
    rows: Table
    num_examined: int
    remarks: Sequence[report.LabelIssue]
    notes: Sequence[str]
    encoding: str | None = None

    def __repr__(self) -> str:
        """The numbers of rows and remarks; `table` has the remarks."""
        counts = ", ".join(f"{kind} {count:,}" for kind, count in self.counts.items())
        return f"{type(self).__name__}({self.source}: {format_count(self.num_rows, 'row')}; {counts})"

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        """The remarks as columns, which are the same for any number of remarks."""
        columns: dict[str, list[Any]] = {"kind": [remark.kind for remark in self.remarks]}
        parts = [] if self.rows.pairs is None else ["pair"]
        columns |= report.issue_columns(self.remarks, among=self.rows.where, parts=parts)

        where = [remark.where for remark in self.remarks]
        already_shown = set() if self.rows.columns is None else self.rows.columns.shown
        return columns | other_columns([self.source], where, columns, self.encoding, already_shown)

    @property
    def table(self) -> Any:
        """All remarks as a table: kind (label, conflict, duplicate, empty, odd), the row from 0, text, label, suggested
        and their probabilities, why, and the other columns of the table; a column whose name is taken, such as `row`,
        is `input_row`. Label errors come first, ranked."""
        return as_table(self.columns)

    @property
    def label_errors(self) -> Any:
        """The rows whose label may be wrong, the most suspicious first."""
        rows = [row for row, remark in enumerate(self.remarks) if remark.kind == "label"]
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return as_table(columns)

    @property
    def counts(self) -> dict[str, int]:
        """The number of remarks by kind; of label errors, the likely ones."""
        counts = Counter(remark.kind for remark in self.remarks if remark.is_likely)
        return {kind: counts[kind] for kind in KINDS}

    def to_json(self) -> dict[str, Any]:
        rows = zip(*self.columns.values(), strict=True)
        return {
            "rows": self.num_rows,
            "examined": self.num_examined,
            **self.counts,
            "notes": [*self.notes],
            "remarks": [dict(zip(self.columns, values, strict=True)) for values in rows],
        }

    def lines(self) -> Iterator[str]:
        yield f"{format_count(self.num_rows, 'row')}, {self.num_examined:,} with a label that was judged"
        for kind, count in self.counts.items():
            yield f"{kind}: {count:,}"
            likely = [remark for remark in self.remarks if remark.kind == kind and remark.is_likely]
            for remark in likely[:SHOWN]:
                yield f"  {remark.where}: {remark.text[:60]!r}, labelled {remark.label!r}: {remark.why}"
        yield from self.notes

    def write(self, directory: Path) -> None:
        """Write check.csv and check.html."""
        likely = [remark for remark in self.remarks if remark.kind == "label" and remark.is_likely]
        sections: list[report.Section] = [report.LabelIssues(likely, self.num_examined)]
        for kind, heading in HEADINGS.items():
            cases = [remark for remark in self.remarks if remark.kind == kind]
            if cases:
                sections.append(report.RowRemarks(heading, cases))
        page = report.Page(
            title=f"Check of {self.source}",
            subtitle="",
            scores=(),
            sections=sections,
            warnings=self.notes,
            facts=[
                ("rows", f"{self.num_rows:,}"),
                ("labels judged by", SOURCE),
            ],
            origin="How",
            files=[("check.csv", "all remarks, as a table")],
        )

        directory.mkdir(parents=True, exist_ok=True)
        write_predictions(self.columns, directory / "check.csv")
        report.write(page, directory / "check.html")


def run(settings: Check) -> CheckResult:
    """Check a table. InputError if it cannot be read. Rows without a text or label are remarks, and are not judged."""
    table, reasons = with_left_out(read(settings), settings)
    is_numeric, task_notes = decide_task(table, settings)
    if not is_numeric:
        table = read_labels(table, several=settings.multi_label)
    notes = [*table.notes, *task_notes]

    # A vector is judged by the vectors of other rows, so a single row is not judged.
    filled = [row for row in range(len(table)) if not _is_empty(table, row)]
    num_judged = 0
    label_remarks: list[report.LabelIssue] = []
    odd_remarks: list[report.LabelIssue] = []
    if len(filled) > 1:
        sampled = np.sort(np.array(filled)[random_order(len(filled))[:MAX_CHECKED]])
        num_judged = len(sampled)
        label_remarks, odd_remarks, note = judge(table.take(sampled.tolist()), settings, is_numeric)
        if note:
            notes.append(note)
        if num_judged < len(filled):
            notes.append(f"{num_judged:,} random rows of {len(filled):,} were embedded and judged")

    if table.labels is not None and not is_numeric:
        notes += label_warnings({"table": table.take(filled)}, settings.multi_label)

    remarks = [
        *label_remarks,
        *conflicts(table.take(filled)),
        *duplicates(table),
        *empty_rows(table, reasons),
        *odd_remarks,
    ]
    result = CheckResult(
        source=settings.file,
        rows=table,
        num_examined=0 if table.labels is None else num_judged,
        remarks=remarks,
        notes=notes,
        encoding=settings.encoding,
    )

    if settings.out:
        result.write(settings.out)
        logger.info(f"all remarks: {settings.out / 'check.html'}, and as a table in check.csv")
    return result


def read(settings: Check) -> Table:
    """The table, without labels if it has none."""
    options: dict[str, Any] = {
        **settings.columns,
        "encoding": settings.encoding,
        "on_error": "skip",
    }
    try:
        return read_table(settings.file, **options, need_labels=True)
    except InputError:
        if settings.label_column is not None:
            raise
        if settings.text_column is None and holds_tagged_words(settings.file, settings.encoding):
            raise InputError(
                f"{settings.file}: holds words with tags, and check judges labels of texts; the report of finetune tag "
                "lists likely label errors word by word"
            ) from None
        return read_table(settings.file, **options, need_labels=False)


def with_left_out(table: Table, settings: Check) -> tuple[Table, dict[int, str]]:
    """The table with the rows that it lacks since they have no text or label, in the order of the file; and the reason
    by row. A text or label that a row lacks is "", as an empty cell of a CSV file is."""
    columns = table.columns
    if columns is None or not table.notes:
        return table, {}

    row_by_location = {location: row for row, location in enumerate(table.where)}
    located_rows = [*open_rows(settings.file, settings.encoding).read(lambda error: None)]
    names = {name for _, values in located_rows for name in values}
    if not names.issuperset(columns.names):
        return table, {}  # annotations, of which the table has only what was accepted

    rows = list[tuple[str, str, str | None, RowLocation, str]]()
    reasons = dict[int, str]()
    for location, values in located_rows:
        row = row_by_location.get(location)
        if row is not None:
            pair = "" if table.pairs is None else table.pairs[row]
            label = None if table.labels is None else table.labels[row]
            rows.append((table.texts[row], pair, label, location, ""))
            continue

        text, pair, label = columns.read_filled(location, values)
        try:
            columns.read(location, values, table.labels is not None, None)
            # Whoever refused the row has told it in the notes; its label is not judged.
            label = None if label is None else ""
        except InputError as error:
            reasons[len(rows)] = str(error).removeprefix(f"{location}: ").partition(";")[0]
        rows.append((text, pair, label, location, ""))
    return replace(columns.table(rows), notes=table.notes), reasons


def decide_task(table: Table, settings: Check) -> tuple[bool, list[str]]:
    """Whether the labels are numbers to be learned rather than classes, and a note if that may surprise.

    The rule is the one by which `finetune classify` refuses such numbers (`find_quantity`). `task` decides it instead.
    """
    if table.labels is None or settings.multi_label or settings.task == "classify":
        return False, []
    if settings.task == "regress":
        return True, []

    names = {label.strip() for label in table.labels if label.strip()}
    fraction = find_quantity(names)
    if fraction:
        note = f"the labels are {len(names):,} different numbers such as {fraction}, so they are judged as numbers"
        return True, [f"{note}; {flag('task', 'classify')} judges them as classes"]
    if len(names) > FEW_NUMBERS and all(is_number(name) for name in names):
        note = f"{len(names):,} different whole numbers are judged as classes"
        return False, [f"{note}; {flag('task', 'regress')} judges them as numbers"]
    return False, []


def judge(
    table: Table,
    settings: Check,
    is_numeric: bool,
) -> tuple[list[report.LabelIssue], list[report.LabelIssue], str]:
    """Rows whose label may be wrong, odd rows, and a note if labels cannot be judged, by the vectors of an encoder.

    table: rows with texts and labels.
    settings: name the encoder.
    is_numeric: whether the labels are numbers to be learned.
    """
    with working("check"):
        model = load(settings.model, dtype=settings.dtype, device=settings.device)
        vectors = embed(model, table)
        features = pair_features(vectors)
        label_remarks, note = check_labels(table, features, settings.multi_label, is_numeric=is_numeric)
        odd_remarks = odd_rows(table, vectors[0])
    return label_remarks, odd_remarks, note


def embed(model: Predictor, table: Table) -> list[np.ndarray]:
    """The vectors of the texts, and of the second texts of pairs, each [N, H]."""
    return [model.embed(texts) for texts in (table.texts, table.pairs) if texts is not None]


def pair_features(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """The vectors of single texts [N, H], or |u - v| and u * v for pairs [N, 2H]."""
    if len(vectors) == 1:
        return vectors[0]

    first, second = vectors
    return np.concatenate([abs(first - second), first * second], 1)


def check_labels(
    table: Table,
    x_NF: np.ndarray,
    multi_label: bool,
    *,
    is_numeric: bool = False,
) -> tuple[list[report.LabelIssue], str]:
    """Rows whose label may be wrong, the most suspicious first; or a note on why labels cannot be judged.

    table: the rows.
    x_NF: the features of each row.
    multi_label: whether a row has any number of labels.
    is_numeric: whether the labels are numbers to be learned.

    InputError if the labels are numeric and one is not a number.
    """
    if table.labels is None:
        return [], "no column with labels, so none is judged"
    if len(table) < MIN_JUDGED:
        return [], f"{len(table)} rows are too few to judge labels: that takes {MIN_JUDGED}"
    if is_numeric:
        return check_numbers(table, table.labels, x_NF), ""

    labels = table.labels
    sets = label_sets(table) if multi_label else [frozenset([label]) for label in labels]
    names = sorted(frozenset().union(*sets))
    if not 2 <= len(names) <= MAX_OUTPUTS:
        return [], f"{len(names):,} different labels, so none is judged: that takes 2 to {MAX_OUTPUTS}"

    kind: Kind = "labels" if multi_label else "classes"
    targets = indicators(sets, names) if multi_label else [names.index(label) for label in labels]
    scores_NC = out_of_fold_scores(x_NF, np.array(targets, np.int64), kind, len(names), groups=table.units)
    probabilities_NC = (sigmoid if multi_label else softmax)(scores_NC.astype(np.float32))

    # In the order of the label's own probability: the first 40 rows have 19.5 of 24 wrong labels (docs/LOG.md).
    by_row = [dict(zip(names, row, strict=True)) for row in probabilities_NC.tolist()]
    errors = label_set_errors(sets, by_row) if multi_label else doubtful_labels(labels, by_row)
    issues = [
        label_issue(
            error,
            table.where[error.row],
            table.texts[error.row],
            pair=_pair(table, error.row),
            source=SOURCE,
        )
        for error in errors
    ]
    return issues, ""


def check_numbers(table: Table, labels: Sequence[str], x_NF: np.ndarray) -> list[report.LabelIssue]:
    """Rows whose number is far from the predicted one, the furthest first. InputError if a label is not a number."""
    numbers = np.array(numeric_labels(table))
    mean = numbers.mean()
    deviation = numbers.std() or 1.0
    targets = (numbers - mean) / deviation
    scores_NC = out_of_fold_scores(x_NF, targets, "number", 1, groups=table.units)

    predicted = scores_NC[:, 0] * deviation + mean
    rows = find_outliers(numbers.tolist(), predicted.tolist())
    return [_issue(table, row, label=labels[row], suggested=f"{predicted[row]:.4g}") for row in rows]


def odd_rows(table: Table, vectors_NH: np.ndarray) -> list[report.LabelIssue]:
    """Rows that are unlike all others: a text far from the nearest other text, or with damaged characters."""
    cosines_N = nearest_cosines(vectors_NH)
    # Medians: the odd texts themselves would widen a standard deviation.
    median = float(np.median(cosines_N))
    deviation = 1.4826 * float(np.median(abs(cosines_N - median)))

    reasons = {}
    for row in np.argsort(cosines_N, kind="stable").tolist():
        if median - cosines_N[row] > ODD_DEVIATIONS * deviation > 0:
            reasons[row] = (
                f"unlike all other texts: the cosine to the nearest is {cosines_N[row]:.2f}, the median {median:.2f}"
            )
    for row, text in enumerate(table.texts):
        if "\ufffd" in text:
            reasons[row] = "has damaged characters"

    issues = []
    for row, reason in reasons.items():
        issues.append(_issue(table, row, label=_label(table, row), source=reason, kind="odd"))
    return issues


def nearest_cosines(vectors_NH: np.ndarray) -> np.ndarray:
    """The cosine of each unit vector to the nearest other one, [N]."""
    parts = []
    for start in range(0, len(vectors_NH), BLOCK):
        block = vectors_NH[start : start + BLOCK]
        cosines = block @ vectors_NH.T
        # No text is its own neighbour.
        cosines[np.arange(len(block)), np.arange(start, start + len(block))] = -1.0
        parts.append(cosines.max(1))
    return np.concatenate(parts)


def conflicts(table: Table) -> list[report.LabelIssue]:
    """Of each text with several labels, a row for each label."""
    labels = table.labels or [""] * len(table)
    issues = []
    for rows in find_conflicts(table.keys, labels):
        for row, other in zip(rows, [*rows[1:], rows[0]], strict=True):
            reason = f"labelled {labels[other]!r} at {table.where[other]}"
            issues.append(_issue(table, row, label=labels[row], source=reason, kind="conflict"))
    return issues


def duplicates(table: Table) -> list[report.LabelIssue]:
    """Each row whose text is the text of an earlier row, apart from case, spaces and punctuation."""
    first_by_key: dict[tuple[str, ...], int] = {}
    issues = []
    for row, key in enumerate(table.keys):
        if not any(key):
            continue
        first = first_by_key.setdefault(key, row)
        if first != row:
            reason = f"the text of {table.where[first]}"
            issues.append(_issue(table, row, label=_label(table, row), source=reason, kind="duplicate"))
    return issues


def empty_rows(table: Table, reasons: Mapping[int, str]) -> list[report.LabelIssue]:
    """Rows without a text or label. reasons: why rows could not be read, by row."""
    issues = []
    for row in range(len(table)):
        if _is_empty(table, row):
            reason = reasons.get(row, "text or label is empty")
            issues.append(_issue(table, row, label=_label(table, row), source=reason, kind="empty"))
    return issues


def _is_empty(table: Table, row: int) -> bool:
    columns = [column for column in (table.texts, table.pairs, table.labels) if column]
    return any(not column[row].strip() for column in columns)


def _issue(
    table: Table,
    row: int,
    *,
    label: str,
    suggested: str = "",
    source: str = SOURCE,
    kind: str = "label",
) -> report.LabelIssue:
    return report.LabelIssue(
        where=table.where[row],
        text=table.texts[row],
        label=label,
        suggested=suggested,
        pair=_pair(table, row),
        source=source,
        kind=kind,
    )


def _pair(table: Table, row: int) -> str | None:
    return table.pairs[row] if table.pairs else None


def _label(table: Table, row: int) -> str:
    return table.labels[row] if table.labels else ""
