"""`bothways <verb>`: flags come from the dataclasses of settings.py, so they cannot disagree with what a run can be
told.

Results go to standard output, everything else to standard error. Exit status 0: done; 1: the job failed, one line why;
2: usage.
"""

import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from difflib import get_close_matches
from io import StringIO, TextIOWrapper
from typing import Any

from bothways.errors import InputError
from bothways.log import logger, messages_to, print_json, print_lines, print_message
from bothways.training.signals import Stopped

Verb = tuple[str, str, Callable[[Any], None]]  # settings class, one line of help, what runs it


def entry() -> None:
    """What the command runs: `main`, after which one of several processes leaves at once. Were Python taken down first,
    a thread of gloo that still held a tensor would abort the process when it let go of it."""
    # SIGTERM unwinds as Ctrl-C does, so that unfinished files and directories are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status: Any = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):
        sys.stderr.flush()
        os._exit(status or 0)
    sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Prints one line and exits 1 where the user's input cannot be used or the disk cannot be written."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    name = ""
    try:
        try:
            name, rest = _verb(given)
            if name:
                _run(name, rest)
        finally:
            sys.stdout.flush()  # else a pipe that nobody reads, or a full disk, is found when Python ends
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except (Stopped, KeyboardInterrupt) as stopped:
        if os.environ.get("RANK", "") in ("", "0"):  # of several processes the first one tells
            print_message(f"{_named(name)}: {stopped if isinstance(stopped, Stopped) else 'stopped'}")
        sys.exit(1)
    except (InputError, OSError) as error:
        print_message(f"{_named(name)}: error: {' '.join(str(error).split())}")
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        sys.exit(1)


def _prepare_streams() -> None:
    """Standard output and standard error that take any text: one that is closed becomes the null device."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Have what standard output still holds go nowhere, so that Python does not fail on it when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _named(verb: str) -> str:
    return f"bothways {verb}".strip()


def _verb(given: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The verb and its arguments; "" where all is said. SystemExit where it is not one of VERBS."""
    if not given or given[0] in ("-h", "--help"):
        print_lines(*overview())
        sys.exit(0 if given else 2)
    if given[0] == "--version":
        import bothways

        print_lines(f"bothways {bothways.__version__}")
        return "", []
    name, rest = given[0], given[1:]
    if name == "finetune":
        name, rest = f"finetune {rest[0] if rest else ''}".strip(), rest[1:]
    if name in ("finetune", "finetune -h", "finetune --help"):
        print_lines(*overview("finetune"))
        sys.exit(2 if name == "finetune" else 0)
    if name not in VERBS:
        near = "".join(f" (did you mean {verb!r}?)" for verb in get_close_matches(name, VERBS, n=1))
        print_message(f"bothways: no verb {name!r}{near}; the verbs are {', '.join(VERBS)} (bothways --help)")
        sys.exit(2)
    return name, rest


def _run(name: str, rest: Sequence[str]) -> None:
    settings = parse(name, rest)
    # Before torch is loaded: threads that wait asleep, not spinning, bear other work on the same cores (docs/LOG.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with messages_to(print_message):
        VERBS[name][2](settings)


def overview(only: str = "") -> list[str]:
    """The verbs, a line each."""
    rows = [f"  {name:18} {verb[1]}" for name, verb in VERBS.items() if name.startswith(only)]
    return ["usage: bothways VERB ...", "", *rows, "", "bothways VERB --help tells what a verb can be told."]


def parse(name: str, rest: Sequence[str]) -> Any:
    import tyro

    from bothways import settings

    kind = getattr(settings, VERBS[name][0])
    told = StringIO()  # what is wrong with the arguments, which repeats them
    try:
        with redirect_stderr(told):
            return tyro.cli(kind, prog=f"bothways {name}", args=list(rest), description=kind.__doc__)
    finally:
        if told.getvalue():
            print_message(told.getvalue().rstrip("\n"))


# --- what each verb prints
# ------------------------------------------------------------------------------------------------


def vocab(settings: Any) -> None:
    from bothways.checkpoint.checkpoint import check_target
    from bothways.corpus.documents import Corpus, skipped_summary
    from bothways.tokenizer.tokenizer import Tokenizer

    check_target(settings.out, holds="tokenizer.json")
    if (settings.out / "tokenizer.json").exists():
        raise InputError(f"{settings.out}: holds a tokenizer already; name a new directory, or delete that one")
    corpus = Corpus(settings.corpus, settings.documents, settings.text_column, settings.on_error, settings.encoding)
    skipped: Counter[str] = Counter()
    texts = corpus.documents(skipped)
    tokenizer = Tokenizer.learn(
        texts, settings.size, settings.lowercase, settings.processes, settings.alphabet,
        strip_accents=settings.strip_accents,
    )  # fmt: skip
    if left_out := corpus.left_out():
        logger.info(left_out)
    if skipped:
        logger.info(skipped_summary(skipped))
    tokenizer.save(settings.out)
    told = {"entries": len(tokenizer), "directory": str(settings.out)}
    print_json(told) if settings.json else print_lines(f"{len(tokenizer):,} entries in {settings.out}")


def pretrain(settings: Any) -> None:
    from bothways.pretraining import pretrain
    from bothways.pretraining.heldout import next_sentence_verdict

    result = pretrain.run(settings)
    if int(os.environ.get("RANK", "0")):  # of several processes the first one tells
        return
    if settings.json:
        print_json({"model": str(result.model), "heldout": dict(result.figures), "cost": dict(result.cost)})
        return
    figures = result.figures
    words = "masked words" if "masked_lm" in figures else "words by those beside them"
    words += " (its generator's guesses)" if "replaced_accuracy" in figures else ""
    print_lines(
        f"{words}, held out: perplexity {figures['perplexity']:.1f} (by word frequency alone "
        f"{figures['unigram_perplexity']:.1f})"
    )
    asked = {
        "next_sentence_accuracy": "next sentence", "sentence_order_accuracy": "sentence order",
        "replaced_accuracy": "replaced tokens",
    }  # fmt: skip
    for name in (name for key, name in asked.items() if key in figures):
        print_lines(f"{name}, held out: {next_sentence_verdict(figures)}")
    cost = result.cost
    print_lines(
        f"{cost['tokens']:,} tokens in {cost['minutes']:.1f} minutes, about {cost['kwh']:.2g} kWh at "
        f"{cost['watts']:g} W a processor thread or GPU"
    )
    print_lines(f"model in {result.model}, curves in {result.directory / 'curves.png'}")


def finetune(settings: Any) -> None:
    from bothways import verbs
    from bothways.finetuning.baselines import format_table

    result = verbs.train(settings)
    n = len(result.scores)
    if settings.json:
        print_json(
            {
                "task": result.task, "metric": result.metric, "mean": result.mean, "std": result.std, "n": n,
                "failed": result.failed, "scores": result.scores, "split": result.split, "model": str(result.model),
                "interval": result.interval, "rows": result.rows,
                **({} if result.pooled is None else {"pooled": result.pooled}),
                "baselines": result.baselines, "verdict": result.verdict, "frozen": result.frozen,
            }
        )  # fmt: skip
        return
    name, over = ("cross-validated", "folds") if result.split == "folds" else (result.split, "seeds")
    alone = f"{result.mean:.2%}, one seed, which has no spread"
    spread = f"{result.mean:.2%} +- {result.std:.2%} over {n} {over}" if n > 1 else alone
    chosen = " (the set it was chosen on: no measure of new text)" if result.split == "dev" else ""
    failed = f"; {result.failed} no better than a model that learned nothing" if result.failed else ""
    low, high = result.interval or (None, None)
    pooled = "" if result.pooled is None else f"; all rows together {result.pooled:.2%}"
    interval = "" if low is None else f"{pooled} (95 % interval {low:.2%} to {high:.2%}, {result.rows:,} rows)"
    print_lines(
        f"{name} {result.metric} {spread}{interval}{failed}{chosen}",
        *format_table(result.metric, name, result.baselines),
    )
    print_lines(f"model in {result.model}", *([result.verdict] if result.verdict else []))


def evaluate(settings: Any) -> None:
    from bothways.evaluation import evaluate

    found = evaluate.run(settings)
    if settings.json:
        print_json({"metrics": dict(found)})
        return
    for name, value in found.items():
        low, high = map(_short, found.get(f"{name}_interval", ("", "")))
        if name.removesuffix("_interval") not in found or not name.endswith("_interval"):
            print_lines(f"{name:24} {_short(value):8}{f' (95 % interval {low} to {high})' if low else ''}".rstrip())


def predict(settings: Any) -> None:
    from bothways.batch_jobs import files

    if settings.out is None:
        for rows in files.predict_blocks(settings):
            print_json(*rows)
        return
    done = files.predict(settings)
    told = {"predictions": done.results, "file": str(settings.out), **_set_aside(settings, done)}
    print_json(told) if settings.json else print_lines(
        f"{done.results:,} predictions in {settings.out}{_aside_prose(told)}"
    )


def glue(settings: Any) -> None:
    from bothways.finetuning import glue

    table = glue.run(settings)
    if settings.json:
        scores = {
            name: {
                "metric": one.metric, "mean": one.mean, "std": one.std, "n": len(one.scores), "failed": one.failed,
                "selected_on": "dev", "interval": one.interval, "rows": one.rows,
            }
            for name, one in table.rows
        }  # fmt: skip
        print_json({"tasks": scores, "average": table.average, "std": table.std, "n": len(table.by_seed)})
        return
    for name, one in table.rows:
        spread = f"+- {one.std:6.2%}" if len(one.scores) > 1 else "one seed "
        failed = f"  {one.failed} failed" if one.failed else ""
        interval = f"  95 %: {one.interval[0]:.2%} to {one.interval[1]:.2%}" if one.interval else ""
        print_lines(f"{name:8} {one.metric:10} {one.mean:7.2%} {spread}{interval}{failed}")
    spread = f"+- {table.std:6.2%}" if len(table.by_seed) > 1 else "one seed "
    print_lines(f"{'average':19} {table.average:7.2%} {spread}  (of dev, which the weights were chosen on)")


def fill(settings: Any) -> None:
    from bothways.inference.load import load

    model = load(settings.model, dtype=settings.dtype, window=settings.window)
    masks = model.fill(settings.text, top=settings.top)
    if settings.json:
        print_json([[{"token": one.token, "score": one.score, "text": one.text} for one in mask] for mask in masks])
        return
    for number, mask in enumerate(masks, 1):
        if len(masks) > 1:
            print_lines(f"mask {number}")
        for one in mask:
            print_lines(f"{one.score:6.1%}  {one.token:16} {one.text}")


def embed(settings: Any) -> None:
    from bothways.batch_jobs import files

    done, width = files.embed(settings)
    told = {"vectors": done.results, "size": width, "file": str(settings.out), **_set_aside(settings, done)}
    print_json(told) if settings.json else print_lines(
        f"{done.results:,} vectors of {width} in {settings.out}{_aside_prose(told)}"
    )


def quantize(settings: Any) -> None:
    from bothways.compression import quantize

    found = quantize.run(settings)
    if settings.json:
        print_json(found.as_json())
        return
    for line in found.as_table():
        print_lines(line)


def bench(settings: Any) -> None:
    from bothways.bench import bench
    from bothways.bench.result import as_json, as_table

    measured = bench.run(settings)
    if settings.json:
        print_json(as_json(measured))
        return
    for line in as_table(measured):
        print_lines(line)
    if settings.out:
        print_lines(f"picture in {settings.out}")


def export(settings: Any) -> None:
    from bothways.export import export

    made = export.run(settings, lambda line: None if settings.json else print_lines(line))
    if settings.json:
        print_json({"directory": str(settings.out), **made})


def info(settings: Any) -> None:
    from bothways.cli import info

    facts = info.run(settings.path)
    if settings.json:
        print_json(facts)
        return
    for name, value in facts.items():
        rows = (
            [f"{key} {_short(inner)}" for key, inner in value.items()] if isinstance(value, dict) else [_short(value)]
        )
        for index, row in enumerate(rows):
            print_lines(f"{name if index == 0 else '':12} {row}")


def cache(settings: Any) -> None:
    from bothways.corpus import cache

    folder = settings.token_store or cache.cache_directory() / "stores"
    gone, left = cache.clear_cache(folder) if settings.clear else ([], cache.cached_stores(folder))
    if settings.json:
        told = [[{**asdict(kept), "path": str(kept.path)} for kept in some] for some in (gone, left)]
        print_json({"directory": str(folder), "deleted": told[0], "stores": told[1]})
        return
    for kept in gone or left:
        held = (
            f"{kept.statistics['tokens']:,} tokens of {', '.join(kept.corpus)}"
            if kept.statistics
            else "damaged or unfinished"
        )
        print_lines(f"{kept.path.name}  {kept.modified}  {kept.size / 1e6:9,.1f} MB  {held}")
    size = f"{sum(kept.size for kept in left) / 1e6:,.1f} MB in {len(left)} token stores in {folder}"
    if settings.clear:
        deleted = f"deleted {sum(kept.size for kept in gone) / 1e6:,.1f} MB"
        print_lines(f"{deleted}; left, since a run is building them: {size}" if left else deleted)
    else:
        print_lines(f"{size}; bothways cache --clear deletes them" if left else size)


def demo(settings: Any) -> None:
    from bothways.cli import demo

    told = demo.run(settings)
    if settings.json:
        print_json(told)


def _set_aside(settings: Any, done: Any) -> dict[str, Any]:
    """What to tell of rows that could not be read; nothing where there are none."""
    from bothways.batch_jobs.journal import side_file

    return {"set_aside": done.set_aside, "set_aside_file": str(side_file(settings.out))} if done.set_aside else {}


def _aside_prose(told: dict[str, Any]) -> str:
    return f"; {told['set_aside']:,} rows set aside, listed in {told['set_aside_file']}" if "set_aside" in told else ""


def _short(value: Any) -> str:
    if isinstance(value, float):
        small = 0 < abs(value) < 0.01
        return f"{value:.4g}" if small else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_short, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
    return str(value)


VERBS: dict[str, Verb] = {
    "demo": ("Demo", "the whole life of a small BERT on the text in the package, in about three minutes", demo),
    "vocab": ("Vocab", "learn a WordPiece vocabulary", vocab),
    "pretrain": ("Pretrain", "pre-train a BERT with masked words and next sentences", pretrain),
    "finetune classify": ("Classify", "fine-tune a model to tell classes of texts apart", finetune),
    "finetune regress": ("Regress", "fine-tune a model to give texts a number", finetune),
    "finetune tag": ("Tag", "fine-tune a model to find entities, or to label words", finetune),
    "finetune answer": ("Answer", "fine-tune a model to find answers in passages", finetune),
    "finetune embed": ("TrainEmbed", "fine-tune a model to give texts vectors", finetune),
    "glue": ("Glue", "fine-tune on every task of GLUE in a directory, as a table", glue),
    "evaluate": ("Evaluate", "measure a model on labelled data or text, or somebody's predictions", evaluate),
    "predict": ("Predict", "labels, numbers, entities or answers, one JSON object a line", predict),
    "fill": ("Fill", "guess the words behind each [MASK]", fill),
    "embed": ("Embed", "a vector a text", embed),
    "quantize": ("Quantize", "make a model int8: smaller, faster, and measured before it is written", quantize),
    "bench": ("Bench", "how fast a model is here, beside its peers, as a table and a picture", bench),
    "export": ("Export", "write a model as ONNX, compared with ours before the file gets its name", export),
    "cache": ("Cache", "list or delete the token stores that pre-training keeps", cache),
    "info": ("Info", "what a checkpoint or run is and how it was made", info),
}
