"""The card of a smaller model, README.md of its directory: that of a fine-tuned one, with what each form loses."""

from collections.abc import Iterator

from bothways.base.errors import format_count
from bothways.model.checkpoint.contents import Checkpoint
from bothways.shrink.candidates import Choice
from bothways.shrink.measuring import Measured
from bothways.training.finetuning.card import card_of_changed


def card_of(choice: Choice, kept: Checkpoint, is_known: bool) -> str:
    """The card of the model that is kept. It has no speed, so that the same model has the same card.

    is_known: whether the model was trained or selected on rows that it is scored on.
    """
    return card_of_changed(kept, score_lines(choice, is_known))


def score_lines(choice: Choice, is_known: bool) -> Iterator[str]:
    """A table with the model as it was and as it is, and how they were measured."""
    before = choice.measured[0]
    kept = choice.best
    yield f"| form | MB | {choice.metric}, % | lost, in points (95 %) |"
    yield "|---|---|---|---|"
    yield f"{form(before)} |"
    if kept is not before:
        low, high = kept.drop.interval
        yield f"{form(kept)} {kept.drop.points:z.2f} ({low:z.2f} to {high:z.2f}) |"

    yield ""
    rows = format_count(choice.rows, "row")
    if choice.split == "texts":
        yield f"Measured on {rows}, others than those that the number formats were chosen with."
    else:
        yield f"Measured on {choice.split}, {rows}."
    if is_known:
        yield "The model was trained or selected on such rows, so both scores are too high; compare the two."


def form(measured: Measured) -> str:
    """A row of the table without its last cell."""
    return f"| {measured.name} | {measured.size / 1e6:.1f} | {measured.score:.2f} |"
