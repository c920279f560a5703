"""The result of a fine-tuning run as JSON and as lines: score, interval, baselines, and the model that is delivered."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bothways.base.errors import format_count
from bothways.model.checkpoint.description import CONFIG
from bothways.training.finetuning.gain import TRAINED

if TYPE_CHECKING:
    from bothways.training.finetuning.deliver import FineTuneResult

WIDE = 0.04  # width of an interval that is shown before the score: of few rows, it is what is known

# The names of the JSON: attributes of a FineTuneResult, and n.
NAMES = (
    "task",
    "metric",
    "mean",
    "std",
    "n",
    "failed",
    "scores",
    "measured",
    "split",
    "model",
    "interval",
    "rows",
    "pooled",
    "baselines",
    "verdict",
    "frozen",
    "dtype",
    "delivered",
    "encoder",
    "teacher",
    "readers",
    "not_delivered",
    "scored",
)
# Those that are left out if they are empty.
OPTIONAL_NAMES = (
    "measured",
    "pooled",
    "dtype",
    "delivered",
    "encoder",
    "teacher",
    "readers",
    "not_delivered",
    "scored",
)


def result_json(result: "FineTuneResult") -> dict[str, Any]:
    """The result as `--json` prints it."""
    facts = {
        **vars(result),
        "n": len(result.scores),
        "model": str(result.model_directory),
    }
    # JSON has no nan.
    if not result.scores:
        facts |= {"mean": None, "std": None}
    empty = {name for name in OPTIONAL_NAMES if facts[name] in ("", None, {})}
    return {name: facts[name] for name in NAMES if name not in empty}


def result_lines(result: "FineTuneResult") -> Iterator[str]:
    """The result for people."""
    if first := result.not_delivered or result.scored:
        yield first

    saved = f"model in {result.model_directory}"
    if not (result.model_directory / CONFIG).exists():  # a reranker that is not delivered leaves no model
        saved = f"trained model, not delivered, in {result.directory / TRAINED}"
    if not result.scores:
        yield saved
        yield result.verdict
        return

    name = "cross-validated" if result.split == "folds" else result.split
    name = "out-of-fold" if result.measured else name
    delivered = f", {result.delivered}" if result.delivered else ""
    # A model before training that is delivered is no better than itself, which is the simplest baseline.
    num_failed = 0 if result.not_delivered else result.failed
    failed = f"; {num_failed} no better than the simplest baseline" if num_failed else ""
    selected = " (the model was selected on this set, so new text may score lower)" if result.split == "dev" else ""
    computed = f", computed in {result.dtype}" if result.dtype else ""
    yield f"{name} {result.metric} {_score(result, delivered)}{failed}{computed}{selected}"

    yield from _encoder_lines(result)
    yield from _teacher_lines(result)
    yield from _baseline_lines(result, name)

    yield f"{saved}{delivered}"
    yield from filter(None, (result.readers, result.verdict))


def _score(result: "FineTuneResult", delivered: str) -> str:
    """The score with its interval, which comes first if it is wide."""
    spread = _spread(result, delivered)
    pooled = "" if result.pooled is None or result.measured else f"; all rows together {result.pooled:.2%}"
    low, high = result.interval or (None, None)
    if low is None or high is None:
        return f"{result.mean:.2%}{spread}"

    rows = format_count(result.rows or 0, "row")
    if high - low > WIDE:
        return f"{100 * low:.1f} to {high:.1%} (95 % interval, {rows}); measured {result.mean:.2%}{spread}{pooled}"
    return f"{result.mean:.2%}{spread}{pooled} (95 % interval {low:.2%} to {high:.2%}, {rows})"


def _spread(result: "FineTuneResult", delivered: str) -> str:
    """How the mean was measured: its standard deviation over seeds or folds, if there are several."""
    n = len(result.scores)
    unit = "folds" if result.split == "folds" else "seeds"
    if result.measured:
        return f" ({result.measured}){delivered}"
    if n > 1:
        return f" +- {result.std:.2%} over {n} {unit}{delivered}"
    return delivered or ", one seed (no standard deviation)"


def _encoder_lines(result: "FineTuneResult") -> Iterator[str]:
    """The score of the fine-tuned encoder, if it is not the model of the run."""
    if result.encoder:
        low, high = result.encoder["interval"]
        score = f"{result.metric} {result.encoder['mean']:.2%} (95 % interval {low:.2%} to {high:.2%})"
        yield f"for comparison, the fine-tuned encoder, which is not in {result.model_directory}: {score}"


def _teacher_lines(result: "FineTuneResult") -> Iterator[str]:
    """The score of the teacher, and the share of it that the student keeps."""
    if result.split in result.teacher:  # else there is no teacher, or the run is a cross-validation
        score = result.teacher[result.split]
        kept = f", of which the student keeps {result.mean / score:.1%}" if score > 0 else ""
        yield f"teacher, {result.split} {result.metric} {score:.2%}{kept}"


def _baseline_lines(result: "FineTuneResult", name: str) -> Iterator[str]:
    """A table with a row per baseline. name: of the rows that were scored."""
    if result.baselines:
        yield f"baselines, {name} {result.metric}:"
        width = max(map(len, result.baselines))
        for baseline, value in result.baselines.items():
            yield f"  {baseline:{width}}  {value:8.2%}"
