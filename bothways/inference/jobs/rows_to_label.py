"""The rows to label next: the most useful rows of a file for the training of a classifier."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bothways.base.errors import format_count
from bothways.inference.active_learning import CandidatePool, UnlabelledTexts
from bothways.inference.jobs.blocks import Block, RowsOfFile, estimate_num_rows
from bothways.inference.jobs.columns import num_scores
from bothways.inference.jobs.facts import reproduction_facts
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import Journal, check_output, open_output
from bothways.inference.jobs.part import compute_block
from bothways.inference.jobs.plan import JobPlan, load_for, scores_per_row
from bothways.inference.jobs.source import check_is_one, read_inputs, source_of
from bothways.inference.jobs.writers import ResultRow, Separated
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress
from bothways.settings.predict import Predict
from bothways.tasks.class_decoding import Prediction
from bothways.tasks.task import split_pairs
from bothways.text.data.model_inputs import ModelInput
from bothways.text.rows.column_names import rename_columns

SUFFIXES = (".csv", ".tsv")
COLUMNS = ("label", "suggested", "confidence")


def write_rows_to_label(settings: Predict) -> Journal:
    """Write the rows to label next to `out`: their input columns, an empty column label, and the model's prediction.

    Only the rows that may still be chosen are in memory. InputError if there are fewer different rows than wanted.
    """
    assert settings.out is not None and settings.label_next is not None
    check_output(settings.out, SUFFIXES, "rows to label", resume=False)
    check_is_one(settings)
    plan, columns = _plan(settings)
    model = plan.model
    pool = CandidatePool(settings.label_next)
    kept_rows = dict[int, ModelInput]()
    errors = dict[int, str]()
    num_rows = 0

    with JobProgress(settings.out.name, estimate_num_rows(settings.file, settings.encoding)) as progress:
        for block_read in plan.blocks():
            block, candidates = compute_block(plan, block_read, progress)
            left = pool.add(replace(candidates, rows_N=np.array(block.row_numbers, np.int64)))
            read = kept_rows | dict(zip(block.row_numbers, block.inputs, strict=True))
            kept_rows = {row: read[row] for row in left.rows_N.tolist()}
            errors |= block.errors
            num_rows += len(block)

    chosen = pool.choose(f"{settings.file} has {format_count(num_rows, 'row')}")
    inputs = [kept_rows[row] for row in chosen]
    to_label = Block(chosen, inputs, errors)
    with open_output(settings.out, plan.writer, reproduction_facts(settings, model)) as output:
        output.add(to_label, to_label, _rows_to_label(model, settings, inputs, columns))
        return output.finish()


def _plan(settings: Predict) -> tuple[JobPlan, list[str]]:
    """The plan, whose results are the candidates of a block, and the names of the input columns in the output."""
    assert settings.out is not None
    model = load_for(settings)
    model.label_candidates([], None)  # a model that is no classifier must not be reported as the error of a row
    source = source_of(settings)
    kept = _columns_to_label(source.names(of_all_rows=True))

    def compute(rows: Sequence[ModelInput], progress: Progress | None = None) -> UnlabelledTexts:
        return model.label_candidates(*split_pairs(rows), long=settings.long, progress=progress)

    columns = [*(["line"] if source.has_lines else []), *kept.values(), *COLUMNS]
    plan = JobPlan(
        settings=settings,
        model=model,
        source=source.name,
        inputs=RowsOfFile(read_inputs(settings, model, source, kept), is_part=False),
        compute=compute,
        writer=Separated(columns, settings.out.suffix == ".tsv", settings.escape_formulas),
        on_error=settings.on_error,
        scores=scores_per_row(model, num_scores(settings, model)),
    )
    return plan, [*kept.values()]


def _columns_to_label(names: Sequence[str]) -> dict[str, str]:
    """All input columns and their names in the result, where only our column is found as the column of the labels."""
    taken = {name for name in names if name.strip().lower() in COLUMNS}
    return rename_columns(names, {"line", *COLUMNS, *taken})


def _rows_to_label(
    model: Predictor, settings: Predict, inputs: Sequence[ModelInput], kept: Sequence[str]
) -> list[ResultRow]:
    predictions = model.classify(*split_pairs(inputs), long=settings.long)
    several = model.description.multi_label
    return [
        dict(zip(kept, row.kept, strict=True))
        | {
            "line": row.line,
            "label": None,
            "suggested": list(prediction.labels) if several else prediction.label,
            "confidence": round(_lowest(prediction) if several else prediction.score, 4),
        }
        for row, prediction in zip(inputs, predictions, strict=True)
    ]


def _lowest(prediction: Prediction) -> float:
    """The probability of the least certain decision for or against a label."""
    return min(max(score, 1 - score) for score in prediction.scores.values())
