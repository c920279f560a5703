"""Output of the command line: the result of each verb as text or as JSON.

One function for verbs whose results look alike, called with the settings and the result.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bothways.base.errors import format_count
from bothways.base.log import is_main_process
from bothways.base.progress import format_duration
from bothways.base.registry import load_name
from bothways.base.terminal import print_json, print_lines

if TYPE_CHECKING:
    from bothways.cli.commands import CacheContents
    from bothways.cli.verb import Verb
    from bothways.inference.jobs.estimate import Estimate
    from bothways.inference.jobs.journal import Journal
    from bothways.settings.deploy import Export, Pack, Prune, Quantize, Shrink, Unpack
    from bothways.settings.finetune import FineTune
    from bothways.settings.predict import Embed, Evaluate, Fill, Predict
    from bothways.settings.pretrain import Distill, Pretrain
    from bothways.settings.tools import Cache, Demo, Info, Vocab
    from bothways.shrink.candidates import Choice
    from bothways.tasks.fill import Guess
    from bothways.tasks.scores import Scores
    from bothways.text.corpus.cache import CachedStore
    from bothways.training.finetuning.deliver import FineTuneResult
    from bothways.training.pretraining.result import PretrainingResult
    from bothways.training.results import RunComparison


# The attributes of a FineTuneResult in its JSON, besides n, and for some of them what they need.
FINETUNED = (
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
OPTIONAL = {
    "measured": "measured",
    "pooled": "pooled",
    "dtype": "dtype",
    "delivered": "delivered",
    "teacher": "teacher",
    "readers": "readers",
    "not_delivered": "not_delivered",
    "scored": "scored",
    "encoder": "delivered",
}


def print_result(verb: "Verb", settings: Any, result: Any) -> None:
    """Print a result by the function of the verb; without one the result prints itself, by `to_json` and `lines`."""
    if verb.output:
        load_name(verb.output)(settings, result)
    elif settings.json:
        print_json(result.to_json())
    else:
        print_lines(*result.lines())


def nothing(settings: Any, result: Any) -> None:
    """Of a verb that prints while it runs."""


def demo(settings: "Demo", scores: dict[str, Any]) -> None:
    if settings.json:  # the demo prints its text while it runs
        print_json(scores)


def vocab(settings: "Vocab", entries: int) -> None:
    if settings.json:
        print_json({"entries": entries, "directory": str(settings.out)})
    else:
        print_lines(f"{entries:,} entries in {settings.out}")


def pretrain(settings: "Pretrain | Distill", result: "PretrainingResult") -> None:
    from bothways.training.pretraining.heldout import next_sentence_verdict

    if not is_main_process():
        return
    if settings.json:
        print_json({"model": str(result.model_directory), "heldout": dict(result.figures), "cost": dict(result.cost)})
        return
    figures = result.figures
    cost = result.cost
    words = "masked words" if "masked_lm" in figures else "next words"
    words += " (generator)" if "replaced_accuracy" in figures else ""
    if "perplexity" in figures:
        print_lines(
            f"{words}, held out: perplexity {figures['perplexity']:.1f} (word frequencies alone: "
            f"{figures['unigram_perplexity']:.1f})"
        )
    if "vector_cosine" in figures:
        print_lines(f"text vectors, held out: mean cosine to the teacher's {figures['vector_cosine']:.3f}")
    objectives = {
        "next_sentence_accuracy": "next sentence",
        "sentence_order_accuracy": "sentence order",
        "replaced_accuracy": "replaced tokens",
    }
    for name in (name for key, name in objectives.items() if key in figures):
        print_lines(f"{name}, held out: {next_sentence_verdict(figures)}")
    print_lines(
        f"held out: {figures['measured_on']}; computed in {figures['dtype']}",
        f"{cost['tokens']:,} tokens in {cost['minutes']:.1f} minutes, about {cost['kwh']:.2g} kWh at "
        f"{cost['watts']:g} W per CPU thread or GPU",
        f"model in {result.model_directory}, curves in {result.directory / 'curves.svg'}",
    )


def distill(settings: "Distill", result: "PretrainingResult | dict[str, Any]") -> None:
    if not isinstance(result, dict):
        pretrain(settings, result)
    elif settings.json:
        print_json(result)
    else:
        fitted = f", fitted to {result['fitted_texts']:,} texts" if "fitted_texts" in result else ""
        entries = f"{result['entries']:,} static vectors of size {result['size']}{fitted}"
        print_lines(f"{entries}, in {result['out']} ({result['seconds']:.0f} s)")


def finetune(settings: "FineTune", result: "FineTuneResult") -> None:
    if not is_main_process():
        return
    from bothways.model.checkpoint.description import CONFIG
    from bothways.training.finetuning.compare import format_table
    from bothways.training.finetuning.gain import TRAINED

    if settings.json:
        n = len(result.scores)
        facts = {**vars(result), "n": n, "model": str(result.model_directory)}
        facts |= {} if n else {"mean": None, "std": None}
        absent = {name for name, needed in OPTIONAL.items() if facts[needed] in ("", None, {})}
        print_json({name: facts[name] for name in FINETUNED if name not in absent})
        return
    saved = f"model in {result.model_directory}"
    if first := result.not_delivered or result.scored:
        print_lines(first)
    if not (result.model_directory / CONFIG).exists():  # a reranker that is not delivered leaves no model
        saved = f"trained model, not delivered, in {result.directory / TRAINED}"
    if not result.scores:
        print_lines(saved, result.verdict)
        return
    name = "cross-validated" if result.split == "folds" else result.split
    name = "out-of-fold" if result.measured else name
    delivered = f", {result.delivered}" if result.delivered else ""
    # A model before training that is delivered is no better than itself, which is the simplest baseline.
    num_failed = 0 if result.not_delivered else result.failed
    failed = f"; {num_failed} no better than the simplest baseline" if num_failed else ""
    selected = " (the model was selected on this set, so new text may score lower)" if result.split == "dev" else ""
    computed = f", computed in {result.dtype}" if result.dtype else ""
    print_lines(
        f"{name} {result.metric} {format_score(result, delivered)}{failed}{computed}{selected}",
        *format_encoder(result),
        *format_teacher(result),
        *format_table(result.metric, name, result.baselines),
        f"{saved}{delivered}",
        *filter(None, (result.readers, result.verdict)),
    )


def format_score(result: "FineTuneResult", delivered: str) -> str:
    """The score with its interval, which comes first if it is wide."""
    from bothways.training.finetuning.deliver import WIDE

    spread = format_spread(result, delivered)
    low, high = result.interval or (None, None)
    if low is None or high is None or high - low <= WIDE:
        return f"{result.mean:.2%}{spread}{format_interval(result)}"
    rows = format_count(result.rows or 0, "row")
    pooled = "" if result.pooled is None or result.measured else f"; all rows together {result.pooled:.2%}"
    return f"{100 * low:.1f} to {high:.1%} (95 % interval, {rows}); measured {result.mean:.2%}{spread}{pooled}"


def format_spread(result: "FineTuneResult", delivered: str) -> str:
    """How the mean was measured: its standard deviation over seeds or folds, if there are several."""
    n = len(result.scores)
    unit = "folds" if result.split == "folds" else "seeds"
    if result.measured:
        return f" ({result.measured}){delivered}"
    if n > 1:
        return f" +- {result.std:.2%} over {n} {unit}{delivered}"
    return delivered or ", one seed (no standard deviation)"


def format_interval(result: "FineTuneResult") -> str:
    """The 95 % interval, with the score of all rows together in cross-validation."""
    low, high = result.interval or (None, None)
    if low is None:
        return ""
    pooled = "" if result.pooled is None or result.measured else f"; all rows together {result.pooled:.2%}"
    return f"{pooled} (95 % interval {low:.2%} to {high:.2%}, {format_count(result.rows or 0, 'row')})"


def format_encoder(result: "FineTuneResult") -> list[str]:
    """The score of the fine-tuned encoder, if it is not the model of the run."""
    if not result.encoder:
        return []
    low, high = result.encoder["interval"]
    score = f"{result.metric} {result.encoder['mean']:.2%} (95 % interval {low:.2%} to {high:.2%})"
    return [f"for comparison, the fine-tuned encoder, which is not in {result.model_directory}: {score}"]


def format_teacher(result: "FineTuneResult") -> list[str]:
    """The score of the teacher, and the share of it that the student keeps."""
    if result.split not in result.teacher:  # no teacher, or cross-validation
        return []
    score = result.teacher[result.split]
    kept = f", of which the student keeps {result.mean / score:.1%}" if score > 0 else ""
    return [f"teacher, {result.split} {result.metric} {score:.2%}{kept}"]


def predict(settings: "Predict", result: "Journal | Iterator[list[dict[str, Any]]]") -> None:
    if settings.out is None:
        blocks: Iterable[list[dict[str, Any]]] = result  # type: ignore[assignment]
        for rows in blocks:
            print_json(*rows)
    elif settings.dry_run:
        _print_estimate(settings, result)  # type: ignore[arg-type]
    elif settings.label_next is not None:
        text = f"{format_count(settings.label_next, 'row')} to label"
        _print_file(settings, result, {"to_label": settings.label_next}, text)  # type: ignore[arg-type]
    else:
        _print_file(settings, result, {"predictions": result.results}, f"{result.results:,} predictions")  # type: ignore[union-attr, arg-type]


def embed(settings: "Embed", result: "tuple[Journal, int] | Estimate") -> None:
    if settings.dry_run:
        return _print_estimate(settings, result)  # type: ignore[arg-type]
    journal, size = result  # type: ignore[misc]
    facts = {"vectors": journal.results, "size": size}
    _print_file(settings, journal, facts, f"{journal.results:,} vectors of size {size}")


def _print_estimate(settings: Any, estimate: "Estimate") -> None:
    """Print what a job would take."""
    if settings.json:
        return print_json(vars(estimate))
    files = format_count(estimate.files, "file")
    parts = format_count(estimate.parts, "part")
    rows = "unknown rows" if estimate.rows is None else f"about {estimate.rows:,} rows"
    print_lines(f"{files}, {parts}, {estimate.bytes:,} bytes, {rows}")
    if estimate.seconds is None or estimate.dollars is None:
        return print_lines("time and cost: unknown before the rows are read")
    time = format_duration(estimate.seconds)
    return print_lines(f"about {time} on this machine, ${estimate.dollars:.2f} at {estimate.price}")


def _print_file(settings: Any, journal: "Journal", facts: dict[str, Any], text: str) -> None:
    """Print the number of results in an output file, and of skipped rows."""
    from bothways.inference.jobs.journal import side_file

    facts["file"] = str(settings.out)
    if journal.set_aside:
        listed = settings.out / "_skipped" if settings.writes_parts else side_file(settings.out)
        facts |= {"skipped": journal.set_aside, "skipped_file": str(listed)}
        skipped = f"; {format_count(journal.set_aside, 'row')} skipped, listed in {listed}"
    else:
        skipped = ""

    if settings.json:
        print_json(facts)
    else:
        print_lines(f"{text} in {settings.out}{skipped}")


def fill(settings: "Fill", masks: "list[list[Guess]]") -> None:
    if settings.json:
        print_json(
            [[{"token": guess.token, "score": guess.score, "text": guess.text} for guess in mask] for mask in masks]
        )
        return
    for number, mask in enumerate(masks, 1):
        if len(masks) > 1:
            print_lines(f"mask {number}")
        print_lines(*(f"{guess.score:6.1%}  {guess.token:16} {guess.text}" for guess in mask))


def evaluate(settings: "Evaluate", scores: "Scores") -> None:
    if settings.json:
        print_json({"metrics": dict(scores), **({"dtype": scores.dtype} if scores.dtype else {})})
        return
    intervals = {name: f"{name}_interval" for name in scores if f"{name}_interval" in scores}
    for name, value in scores.items():
        if name in intervals:
            low, high = map(shorten, scores[intervals[name]])
            print_lines(f"{name:24} {shorten(value):8} (95 % interval {low} to {high})")
        elif isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
            print_lines(*_table(name, value))
        elif name not in intervals.values() and (isinstance(value, bool) or value != 0 or isinstance(value, float)):
            print_lines(f"{name:24} {shorten(value)}")
    if scores.dtype:
        print_lines(f"{'computed in':24} {scores.dtype}")


def _table(name: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of a table of scores, one row per entry."""
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    head = f"{name:24} {' '.join(f'{column:>10}' for column in columns)}"
    cells = {key: [shorten(row.get(column, "")) for column in columns] for key, row in rows.items()}
    return [head, *(f"  {key:22} {' '.join(f'{cell:>10}' for cell in row)}" for key, row in cells.items())]


def quantize(settings: "Quantize | Prune | Shrink", result: "Choice") -> None:
    if settings.json:
        print_json(result.as_json())
    else:
        print_lines(*result.as_table())


def pack(settings: "Pack | Unpack", result: dict[str, Any]) -> None:
    if settings.json:
        print_json(result)
    else:
        print_lines(f"{result['out']}: {result['bytes'] / 1e6:.1f} MB")


def export(settings: "Export", metadata: dict[str, Any]) -> None:
    if settings.json:  # the table is printed while the export runs
        print_json({"directory": str(settings.out), **metadata})


def info(settings: "Info", facts: "dict[str, Any] | RunComparison") -> None:
    if not isinstance(facts, dict):
        if settings.json:
            print_json(facts.to_json())
        else:
            print_lines(*facts.lines())
        return

    if settings.json:
        print_json(facts)
        return
    for name, value in facts.items():
        if name == "settings":
            value = without_defaults(facts["run"], value)
        lines = [shorten(value)]
        if isinstance(value, dict):
            lines = [f"{key} {shorten(inner)}" for key, inner in value.items()]
        for index, line in enumerate(lines):
            print_lines(f"{name if index == 0 else '':12} {line}")


def without_defaults(verb: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, as stored in JSON, that are not the defaults of its verb."""
    from bothways.cli.verbs import VERBS
    from bothways.training.run import plain_value

    known = fields(VERBS[verb].settings_class) if verb in VERBS else ()
    defaults = {field.name: plain_value(field.default) for field in known}
    return {name: value for name, value in settings.items() if value != defaults.get(name, value is None)}


def cache(settings: "Cache", contents: "CacheContents") -> None:
    if settings.json:
        columns = ("deleted", "stores", "deleted_indexes", "indexes")
        listed = {name: [{**vars(one), "path": str(one.path)} for one in getattr(contents, name)] for name in columns}
        print_json({"directory": str(contents.directory), **listed})
        return

    for store in contents.deleted or contents.stores:
        kind = "float32 weights" if _has_weights(store) else "copy"
        text = f"{kind} of {', '.join(store.corpus)}" if store.corpus else "damaged or unfinished"
        if store.statistics:
            text = f"{store.statistics['tokens']:,} tokens of {', '.join(store.corpus)}"
        print_lines(f"{store.path.name}  {store.modified}  {store.size / 1e6:9,.1f} MB  {text}")

    for one in contents.deleted_indexes or contents.indexes:
        text = f"{one.passages:,} passages of {', '.join(one.folders)}" if one.folders else "damaged"
        print_lines(f"{one.path.name}  {one.size / 1e6:9,.1f} MB  {text}")

    count = len(contents.stores)
    size = sum(store.size for store in contents.stores) / 1e6
    weights = sum(map(_has_weights, contents.stores))
    kinds = [format_count(weights, "file of weights", "files of weights")] if weights else []
    if count > weights or not weights:
        kinds.insert(0, format_count(count - weights, "token store"))
    directory = contents.directory.parent if weights else contents.directory
    left = f"{size:,.1f} MB in {' and '.join(kinds)} in {directory}"

    if settings.clear:
        freed = sum(one.size for one in contents.deleted) + sum(one.size for one in contents.deleted_indexes)
        deleted_size = f"deleted {freed / 1e6:,.1f} MB"
        print_lines(f"{deleted_size}; kept {left}, in use by a run" if count else deleted_size)
    else:
        print_lines(f"{left}; bothways cache --clear deletes them" if count or contents.indexes else left)


def _has_weights(store: "CachedStore") -> bool:
    """Whether an entry of the cache is the weights of a packed model in float32."""
    return store.path.suffix == ".safetensors"


def shorten(value: Any) -> str:
    """A value in short, readable form: few digits, lists and dicts on one line."""
    if isinstance(value, float):
        small = 0 < abs(value) < 0.01
        return f"{value:.4g}" if small else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shorten, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {shorten(inner)}" for key, inner in value.items())
    return str(value)
