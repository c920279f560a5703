"""Compares the results of two checkouts of this repository, bit by bit: a safety net for changes of structure.

    python tools/same_results.py BEFORE AFTER [--work DIR] [--only SECTION ...] [--tolerance X]

BEFORE and AFTER are directories of checkouts. Of each, small seeded runs of the command line, of `bothways.load` and of
the server write their results, each section in a process with PYTHONPATH set to the checkout and with one thread.
Compared are: exit status and output of each command; of each file that it writes, rows (.jsonl, .csv, metrics), keys
and values (.json), vectors (.npy), or the SHA-256 (.safetensors, others, and files of more than 100 kB); what the
methods of loaded models return; status and body of each HTTP answer. Left out are times, memory, versions, dates,
places, pictures, the report page, and the state in training checkpoints that is not a tensor.

Prints `same` for each section, or its first differences with both values, at most 20 lines; the exit status is 1 if
anything differs. `--tolerance X` treats numbers of the sections use, python and server as equal that differ by at most
X. Losses, scores of runs and weights are always compared exactly.

Results are kept in DIR, by commit, changes that are not committed, and this script, so that a checkout that has not
changed is not run again; without --work they are deleted. A checkout needs no copy of this script: the one that runs
is used for both, with the Python that runs it.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

LINES = 20  # of differences that are printed of a section
TOLERANT = ("use", "python", "server")  # sections for which --tolerance counts
LIMIT = 900  # seconds of a section, a guard against hangs
MEASURED = {  # keys of values that depend on time or machine
    "began",
    "created",
    "date",
    "energy",
    "gpu_seconds",
    "host",
    "hours",
    "kwh",
    "machine",
    "memory",
    "minutes",
    "mb",
    "ms",
    "peak_flops",
    "process",
    "processor",
    "seconds",
    "seconds_per_step",
    "speed",
    "started",
    "threads",
    "tokens_per_second",
    "texts_per_second",
    "torch",
    "utilization",
    "versions",
    "watts",
    "watt_hours",
}
SPEEDS = re.compile(r"(?<=MB)\s+\d+(?=\s)|\b\d+(?= against )|(?<=%)\s+\d\.\d\d(?=\s)")  # in printed tables
LARGE = 100_000  # bytes; of a larger file the hash is compared
TIMES = re.compile(r"\b\d[\d.,]*\s?(?:ms|s|seconds?|minutes?|min|hours?|h|(?:tokens|texts|MB|rows|KB)/s|W|Wh|J)(?!\w)")
SKIPPED = {".png", ".svg", ".html", ".pt", ".lock", ".log", ".db", ".sqlite"}
BASE = "--model bothways-en --keep-layers 0 1"
BRIEF = "--no-baselines --no-linear-start"
TRAINED = "--epochs 1 --evaluations-per-epoch 2 --batch-size 16"
PRETRAINED = "--steps 8 --evaluate-every 4 --batch-tokens 512 --max-length 64"
FLOAT32 = "--dtype float32"  # unless a command has another
WITHOUT_DTYPE = ("info", "merge", "pack")
RUNS: dict[str, dict[str, str]] = {  # by section, arguments of each training run, by its directory
    "pretrain": {
        "pretrain-float32": "pretrain corpus.txt --family bert --model tiny --vocab-size 600 --dtype float32",
        "pretrain-bf16": "pretrain corpus.txt --family modernbert --model tiny --vocab-size 600 --dtype bfloat16",
        "pretrain-replaced": "pretrain corpus.txt --family electra --model tiny --vocab-size 600 --masking words",
    },
    "distill": {
        "distill": "distill pretrain-float32 corpus.txt --layers 1 --hidden-size 64",
        "distill-static": "distill pretrain-float32 corpus.txt --static --dimensions 16 --for vectors",
    },
    "classify": {
        "classify": "finetune classify --train topics.csv --dev topics-dev.csv --seeds 2 {base} {brief}",
        "classify-split": (
            "finetune classify --train topics.csv {base} --dev topics-dev.csv --class-weights balanced "
            "--no-linear-start"
        ),
        "classify-folds": "finetune classify --train topics.csv --folds 2 {base} {brief}",
        "classify-few": "finetune classify --train few.csv {base} --no-baselines",
        "classify-bf16": ("finetune classify --train topics.csv --dev topics-dev.csv {base} --dtype bfloat16 {brief}"),
        "multi-label": "finetune classify --train multi.jsonl --dev multi.jsonl --multi-label {base} {brief}",
        "pairs": "finetune classify --train pairs.csv --dev pairs.csv {base} {brief}",
        "long": ("finetune classify --train long.csv --dev long.csv --window 32 {base} {brief}"),
    },
    "variants": {
        "lora": (
            "finetune classify --train topics.csv --dev topics-dev.csv --model pretrain-float32 --adapter lora "
            "--rank 4 {brief}"
        ),
        "int8": "finetune classify --train topics.csv --dev topics-dev.csv --quantize int8 {base} {brief}",
    },
    "tag": {
        "tag": "finetune tag --train tags.conll --dev tags-dev.conll {base}",
        "tag-bf16": "finetune tag --train tags.conll --dtype bfloat16 {base} {brief}",
    },
    "answer": {
        "answer": "finetune answer --train questions.jsonl --window 48 --overlap 12 {base} --no-baselines",
    },
    "regress": {
        "regress": "finetune regress --train numbers.csv --dev numbers.csv {base} {brief}",
    },
    "embed": {
        "embed": "finetune embed --train similar.csv {base}",
        "embed-scores": "finetune embed --train scored.csv {base} --no-baselines",
    },
}
COMPRESSED = {
    "int8-classify": "quantize classify --with topics.csv --max-drop 50",
    "pruned": "prune classify --with topics.csv --parts layers --size 0.9 --cuts 1 --epochs 1",
    "merged": "merge lora",
    "packed": "pack pretrain-float32",
}
USES = {  # commands with trained models; {out} is the place of a file
    "predict.jsonl": "predict classify topics-dev.csv -o {out} --top 2",
    "predict.csv": "predict classify topics-dev.csv -o {out} --keep-columns label",
    "predict-printed": 'predict classify --text "The oven is warm."',
    "predict-sets.jsonl": "predict classify-split topics-dev.csv -o {out} --coverage 0.8",
    "predict-bf16.jsonl": "predict classify-bf16 topics-dev.csv -o {out} --dtype bfloat16",
    "predict-multi.jsonl": "predict multi-label multi.jsonl -o {out}",
    "predict-pairs.jsonl": "predict pairs pairs.csv -o {out}",
    "predict-long.jsonl": "predict long long.csv -o {out}",
    "predict-lora.jsonl": "predict lora topics-dev.csv -o {out}",
    "predict-int8.jsonl": "predict int8 topics-dev.csv -o {out}",
    "predict-tags.jsonl": "predict tag plain.txt -o {out}",
    "predict-answers.jsonl": "predict answer questions.jsonl -o {out} --top 2",
    "predict-numbers.csv": "predict regress numbers.csv -o {out}",
    "label-next.csv": "predict classify topics.csv --label-next 5 -o {out}",
    "embed.npy": "embed embed plain.txt -o {out}",
    "embed-max.jsonl": "embed bothways-en plain.txt -o {out} --pooling max",
    "embed-static.npy": "embed distill-static plain.txt -o {out}",
    "evaluate-classify": "evaluate classify topics-dev.csv --json",
    "evaluate-printed": "evaluate classify topics-dev.csv",
    "evaluate-multi": "evaluate multi-label multi.jsonl --json",
    "evaluate-pairs": "evaluate pairs pairs.csv --json",
    "evaluate-tag": "evaluate tag tags-dev.conll --json",
    "evaluate-answer": "evaluate answer questions.jsonl --json",
    "evaluate-regress": "evaluate regress numbers.csv --json",
    "evaluate-embed": "evaluate embed scored.csv --json",
    "evaluate-words": "evaluate pretrain-float32 corpus-dev.txt --json",
    "extract.jsonl": "extract documents --tag tag --classify classify -o {out}",
    "extract-answers.csv": 'extract documents --answer answer --question "Where does Ada live?" -o {out}',
    "fill": 'fill "The [MASK] was built in [MASK]." --top 3',
    "fill-json": 'fill pretrain-float32 "She went to [MASK]." --json',
    "info": "info classify",
    "info-json": "info classify --json",
    "info-packaged": "info --json",
    "info-tag": "info tag --json",
    "wrong-task": "predict embed plain.txt",
    "wrong-file": "predict classify missing.csv",
    "wrong-option": "evaluate classify topics-dev.csv --label-colum label",
}
SERVED = {name: name for name in ("classify", "multi-label", "pairs", "regress", "tag", "answer", "embed")}
SERVED |= {"fill": "bothways-en"}
LONG = "Ada walked along the river to the old market and bought bread. " * 60
REQUESTS: list[tuple[str, Any]] = [  # path and body: None is a GET, bytes are sent as they are
    *((path, None) for path in ("/health", "/ping", "/info", "/v1/models", "/v1/models/tag", "/v1/models/none")),
    *((f"/models/{name}/info", None) for name in SERVED),
    *((path, None) for path in ("/openapi.json", "/docs", "/", "/page.js", "/none", "/predict")),
    ("/predict", {"inputs": "The oven is warm."}),
    ("/predict", {"inputs": [["The oven is warm."], ["They sang in the choir."]]}),
    ("/predict", {"inputs": LONG}),
    ("/predict", {"inputs": LONG, "truncate": True}),
    ("/", {"inputs": "The oven is warm.", "raw_scores": True}),
    ("/models/multi-label/predict", {"inputs": [["The oven is warm."], ["They sang."]], "raw_scores": True}),
    ("/models/pairs/predict", {"inputs": ["A goal.", "The match."]}),
    ("/models/pairs/predict", {"inputs": [["A goal.", "The match."], ["A song.", "The soup."]]}),
    ("/models/pairs/rerank", {"query": "A goal.", "texts": ["The match.", "The soup."], "return_text": True}),
    ("/models/regress/predict", {"inputs": [["good good good"], ["bad"]]}),
    ("/models/tag/tag", {"inputs": "Ada Stone lives in Rome."}),
    ("/models/tag/tag", {"inputs": ["Ada lives in Rome.", "Bob Reed saw Oslo."]}),
    ("/models/tag/tag", {"inputs": LONG}),
    ("/models/answer/answer", {"question": "Where does Ada live?", "context": "Ada lives in Rome."}),
    ("/models/answer/answer", {"inputs": [{"question": "Where?", "context": "Bob is in Oslo."}] * 2, "top": 3}),
    ("/models/answer/answer", {"question": "Where does Ada live?", "context": LONG}),
    ("/models/embed/embed", {"inputs": "A warm oven."}),
    ("/models/embed/embed", {"inputs": ["A warm oven.", [101, 2023, 102]], "normalize": False}),
    ("/models/embed/embed", {"inputs": ["A warm oven."], "dimensions": 8}),
    ("/models/embed/embed_all", {"inputs": ["A warm oven."]}),
    ("/models/embed/similarity", {"inputs": {"source_sentence": "A song.", "sentences": ["A choir.", "Soup."]}}),
    ("/models/embed/rerank", {"query": "A song.", "texts": ["Soup.", "A choir."]}),
    ("/models/embed/tokenize", {"inputs": ["A warm oven."], "add_special_tokens": False}),
    ("/models/embed/decode", {"ids": [[101, 2023, 102]], "skip_special_tokens": True}),
    ("/models/embed/attention", {"inputs": "A warm oven.", "layer": 1, "head": 2}),
    ("/v1/embeddings", {"input": ["A song.", "Soup."], "model": "embed"}),
    ("/v1/embeddings", {"input": "A song.", "model": "embed", "encoding_format": "base64", "dimensions": 4}),
    ("/embeddings", {"input": "A song.", "model": "fill"}),
    ("/models/fill/fill", {"inputs": "The [MASK] was built."}),
    ("/fill", {"inputs": ["A [MASK] and a [MASK].", "The [MASK]."], "top": 2, "model": "fill"}),
    ("/models/fill/next", {"inputs": ["She filled the kettle.", "Then she made tea."]}),
    ("/models/fill/next", {"inputs": [["She sang.", "They clapped."], ["She sang.", "Rates rose."]]}),
    # What is refused.
    ("/predict", {"inputs": []}),
    ("/predict", {"inputs": ""}),
    ("/predict", {}),
    ("/predict", {"inputs": 3}),
    ("/predict", {"inputs": [["a"], ["a", "b"]]}),
    ("/predict", {"inputs": "a", "raw_scores": "yes"}),
    ("/predict", b"{"),
    ("/predict", b"[]"),
    ("/predict", {"inputs": "a", "model": "none"}),
    ("/models/none/predict", {"inputs": "a"}),
    ("/models/embed/predict", {"inputs": "a"}),
    ("/models/embed/embed", {"inputs": "a", "dimensions": 100000}),
    ("/models/embed/embed", {"inputs": "a", "truncate": True, "truncation_direction": "left"}),
    ("/models/embed/embed", {"inputs": ["a"] * 1025}),
    ("/models/embed/similarity", {"inputs": {"source_sentence": "a"}}),
    ("/models/embed/decode", {"ids": "a"}),
    ("/models/embed/attention", {"inputs": LONG}),
    ("/models/fill/fill", {"inputs": "No mask."}),
    ("/models/fill/fill", {"inputs": "The [MASK].", "top": 0}),
    ("/models/fill/next", {"inputs": ["one"]}),
    ("/models/tag/tag", {"inputs": {"a": 1}}),
    ("/models/answer/answer", {"question": "Where?"}),
    ("/v1/embeddings", {"input": [], "model": "embed"}),
    ("/v1/embeddings", {"input": "a", "model": "none"}),
    ("/v1/embeddings", {"input": "a", "encoding_format": "binary", "model": "embed"}),
]

# ---- data ----

TOPICS = {
    "food": ["oven", "soup", "bread", "kitchen", "recipe", "butter", "spoon", "pepper"],
    "music": ["choir", "song", "piano", "concert", "melody", "drum", "violin", "singer"],
    "sport": ["goal", "match", "coach", "team", "stadium", "race", "ball", "referee"],
}
NAMES = ["Ada", "Bob", "Clara", "Dan", "Emma", "Frank", "Gina", "Hugo"]
LAST_NAMES = ["Stone", "Reed", "Marsh", "Field"]
PLACES = ["Rome", "Oslo", "Paris", "Cairo", "Lima", "Dublin", "Kyoto", "Delhi"]
FORMS = [
    "The {a} and the {b} were {c}.",
    "Nobody saw the {a} near the {b}, which was {c}.",
    "A {c} {a} needs a {b}.",
    "We spoke about the {a}; it was {c} like a {b}.",
]
MOODS = ["good", "bad", "old", "new", "warm", "quiet", "loud", "fine"]


def sentence(source: random.Random, topic: str) -> str:
    a, b = source.sample(TOPICS[topic], 2)
    return source.choice(FORMS).format(a=a, b=b, c=source.choice(MOODS))


def write_data(place: Path) -> None:
    """All files that the runs read. The same in every checkout: they depend on this script alone."""
    source = random.Random(0)
    topics = [*TOPICS]

    def passage(topic: str, sentences: int) -> str:
        return " ".join(sentence(source, topic) for _ in range(sentences))

    def table(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with (place / name).open("w", encoding="utf-8", newline="") as file:
            if name.endswith(".jsonl"):
                file.writelines(json.dumps(row) + "\n" for row in rows)
            else:
                writer = csv.DictWriter(file, [*rows[0]])
                writer.writeheader()
                writer.writerows(rows)

    def classes(rows: int, kinds: Sequence[str], sentences: int = 1) -> list[dict[str, Any]]:
        labels = (list(kinds) * rows)[:rows]
        return [
            {"text": passage(kind if row % 7 else kinds[0], sentences), "label": kind}
            for row, kind in enumerate(labels)
        ]

    table("topics.csv", classes(48, topics))
    table("topics-dev.csv", classes(18, topics))
    table("few.csv", classes(12, topics[:2]))
    table("long.csv", classes(24, topics, 8))
    chosen = [[topic for topic in topics if source.random() < 0.5] for _ in range(60)]
    table("multi.jsonl", [{"text": " ".join(sentence(source, one) for one in many) or "Nothing.", "labels": many}
                          for many in chosen])  # fmt: skip
    kinds = [(source.choice(topics), source.choice(topics)) for _ in range(60)]
    table("pairs.csv", [{"text1": sentence(source, a), "text2": sentence(source, b), "label": "no" if a == b else "yes"}
                        for a, b in kinds])  # fmt: skip
    table("scored.csv", [{"text1": sentence(source, a), "text2": sentence(source, b), "score": 0.9 if a == b else 0.1}
                         for a, b in kinds])  # fmt: skip
    table("similar.csv", [{"query": sentence(source, a), "passage": sentence(source, a)} for a, _ in kinds])
    counts = [source.randrange(6) for _ in range(60)]
    table("numbers.csv", [{"text": " ".join(["good"] * number + ["bad"] * (5 - number)), "label": number}
                          for number in counts])  # fmt: skip
    for name, rows in (("tags.conll", 60), ("tags-dev.conll", 20)):
        (place / name).write_text("\n".join(tagged(source) for _ in range(rows)), encoding="utf-8")
    table("questions.jsonl", [question(source, row) for row in range(36)])
    (place / "plain.txt").write_text("".join(f"{people(source)}\n" for _ in range(12)) + LONG + "\n", encoding="utf-8")
    for name, documents in (("corpus.txt", 300), ("corpus-dev.txt", 12)):
        text = "\n\n".join(passage(source.choice(topics), 6) for _ in range(documents))
        (place / name).write_text(text + "\n", encoding="utf-8")
    (place / "documents").mkdir()
    for name in ("one.txt", "two.md", "three.txt"):
        (place / "documents" / name).write_text(" ".join(people(source) for _ in range(6)) + "\n", encoding="utf-8")


def people(source: random.Random) -> str:
    return f"{source.choice(NAMES)} {source.choice(LAST_NAMES)} lives in {source.choice(PLACES)}."


def tagged(source: random.Random) -> str:
    """A sentence in CoNLL columns."""
    words = [(source.choice(NAMES), "B-PER"), *([(source.choice(LAST_NAMES), "I-PER")] * (source.random() < 0.5))]
    words += [(source.choice(["saw", "left", "likes"]), "O"), ("the", "O"), (source.choice(TOPICS["music"]), "O")]
    words += [("in", "O"), (source.choice(PLACES), "B-LOC"), (".", "O")]
    return "".join(f"{word} {tag}\n" for word, tag in words)


def question(source: random.Random, row: int) -> dict[str, Any]:
    """A question about a passage of several windows; every sixth has no answer."""
    persons = source.sample(NAMES, 4)
    places = [source.choice(PLACES) for _ in persons]
    parts = [
        f"{name} lives in {place}. {sentence(source, 'food')}" for name, place in zip(persons, places, strict=True)
    ]
    context = " ".join(parts)
    chosen = source.randrange(4)
    if row % 6 == 5:
        return {"id": str(row), "question": "Where does Zoe live?", "context": context,
                "answers": {"text": [], "answer_start": []}}  # fmt: skip
    start = context.index(f"{persons[chosen]} lives in ") + len(f"{persons[chosen]} lives in ")
    return {"id": str(row), "question": f"Where does {persons[chosen]} live?", "context": context,
            "answers": {"text": [places[chosen]], "answer_start": [start]}}  # fmt: skip


# ---- a section, in a process of a checkout ----


def command(line: str) -> dict[str, Any]:
    """Run `python -m bothways` in this process. Its exit status, its output, and its errors if it fails."""
    words = shlex.split(line.replace("{base}", BASE).replace("{brief}", BRIEF))
    words += [] if "--dtype" in words or words[0] in WITHOUT_DTYPE else FLOAT32.split()
    argv = sys.argv
    output = StringIO()
    errors = StringIO()
    status = 0

    sys.argv = ["bothways", *words]
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            runpy.run_module("bothways", run_name="__main__", alter_sys=False)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = argv
    printed = output.getvalue()
    try:
        result: Any = scrub(json.loads(printed))
    except ValueError:
        result = [scrub_text(line) for line in printed.splitlines()]
    return {"status": status, "printed": result} | (
        {"errors": [scrub_text(line) for line in errors.getvalue().splitlines()]} if status else {}
    )


def scrub(value: Any) -> Any:
    """The value without what depends on time, machine or place."""
    if isinstance(value, Mapping):
        return {str(key): scrub(one) for key, one in value.items() if key not in MEASURED}
    if isinstance(value, list | tuple):
        return [scrub(one) for one in value]
    return scrub_text(value) if isinstance(value, str) else value


def scrub_text(text: str) -> str:
    for path, name in ((Path.cwd(), "PLACE"), (Path(os.environ["SAME_RESULTS_CHECKOUT"]), "CHECKOUT")):
        text = text.replace(str(path.resolve()), name).replace(str(path), name)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?", "DATE", text)
    return SPEEDS.sub(" SPEED", TIMES.sub("TIME", text))


def contents(file: Path) -> Any:
    """The part of a file that is compared."""
    if file.stat().st_size > LARGE:
        return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"
    if file.suffix == ".json":
        return scrub(json.loads(file.read_text(encoding="utf-8")))
    if file.suffix == ".jsonl":
        return [scrub(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    if file.suffix in (".csv", ".tsv"):
        with file.open(encoding="utf-8", newline="") as lines:
            return [[number(cell) for cell in row] for row in csv.reader(lines)]
    if file.suffix == ".npy":
        import numpy as np

        array = np.load(file)
        return {"dtype": str(array.dtype), "rows": array.tolist()}
    if file.suffix in (".txt", ".md"):
        return [scrub_text(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"


def number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return scrub_text(cell)


def files(directory: Path) -> dict[str, Any]:
    """Contents of all files of a run, by path."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): "" if path.suffix in SKIPPED else contents(path)
        for path in found
        if "checkpoint" not in path.relative_to(directory).parts[0] or path.suffix == ".safetensors"
    }


def run_training(section: str) -> dict[str, Any]:
    lasting = {"pretrain": f"{PRETRAINED} --checkpoint-every 4", "distill": PRETRAINED, "finetune": TRAINED}
    return run_all(
        {
            name: f"{line} {'' if '--static' in line else lasting[line.split()[0]]} --json"
            for name, line in RUNS[section].items()
        }
    )


def run_compress() -> dict[str, Any]:
    return run_all(COMPRESSED)


def run_all(lines: Mapping[str, str]) -> dict[str, Any]:
    """Result of each command and the files in its directory."""
    results = {}
    for name, line in lines.items():
        began = time.monotonic()
        results[name] = {**command(f"{line} -o {name}"), "files": files(Path(name))}
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return results


def run_resume() -> dict[str, Any]:
    """A run that an exception of a callback ends after a checkpoint, and that is resumed."""
    import bothways
    from bothways.settings import Classify, Pretrain

    class Stop(Exception):
        pass

    def stop(row: Mapping[str, Any]) -> None:
        if row["step"] == 6:
            raise Stop

    common: dict[str, Any] = {"dtype": "float32", "checkpoint_every": 4}
    pretrain = Pretrain(
        corpus=["corpus.txt"], out="resumed-pretrain", family="bert", model="tiny", vocab_size=600, steps=8,
        evaluate_every=4, batch_tokens=512, max_length=64, **common,
    )  # fmt: skip
    classify = Classify(
        train="topics.csv", out="resumed-classify", keep_layers=[0, 1], epochs=2, batch_size=16, baselines=False,
        evaluations_per_epoch=1, linear_start=False, **common,
    )  # fmt: skip
    results = {}
    for settings in (pretrain, classify):
        from dataclasses import replace

        stopped = False
        try:
            bothways.train(settings, callbacks=stop)
        except Stop:
            stopped = True
        bothways.train(replace(settings, resume=True))
        results[str(settings.out)] = {"stopped": stopped, "files": files(Path(settings.out))}
    return results


def run_use() -> dict[str, Any]:
    results = {}
    for name, line in USES.items():
        out = Path("uses") / name
        out.parent.mkdir(exist_ok=True)
        result = command(line.replace("{out}", str(out)))
        results[name] = result | ({"file": contents(out)} if out.exists() else {})
    return results


def plain(value: Any) -> Any:
    """The value of a public call as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else scrub_text(str(value))


def run_python() -> dict[str, Any]:
    """The values that methods of loaded models return."""
    import bothways

    loaded: dict[str, Any] = {name: bothways.load(name, dtype="float32") for name in (*SERVED, "long", "classify-split")
                              if name != "fill"}  # fmt: skip
    loaded["fill"] = bothways.load(dtype="float32")
    texts = [line for line in Path("plain.txt").read_text(encoding="utf-8").splitlines() if line]
    contexts = ["Ada lives in Rome. Bob lives in Oslo.", LONG]
    asked = ["Where does Bob live?", "Where did Ada walk?"]
    words = [text.split() for text in texts[:5]]
    calls: dict[str, Callable[[], Any]] = {
        "classify one": lambda: loaded["classify"].classify(texts[0]),
        "classify many": lambda: loaded["classify"].classify(texts, top=2),
        "classify window": lambda: loaded["classify"].classify(texts, window=16, overlap=4),
        "classify truncate": lambda: loaded["long"].classify(texts, long="truncate"),
        "classify error": lambda: loaded["long"].classify(texts, long="error"),
        "classify long": lambda: loaded["long"].classify(texts),
        "classify sets": lambda: loaded["classify-split"].classify(texts, coverage=0.8),
        "classify multi-label": lambda: loaded["multi-label"].classify(texts),
        "classify pairs": lambda: loaded["pairs"].classify(texts[:4], texts[4:8]),
        "classify wrong": lambda: loaded["tag"].classify(texts),
        "classify wrong option": lambda: loaded["classify"].classify(texts, windows=3),
        "label_next": lambda: loaded["classify"].label_next(texts, 3),
        "regress": lambda: loaded["regress"].regress(["good good", "bad"]),
        "tag": lambda: loaded["tag"].tag(texts),
        "tag one": lambda: loaded["tag"].tag(texts[1]),
        "tag_words": lambda: loaded["tag"].tag_words(words),
        "answer": lambda: loaded["answer"].answer(asked, contexts, top=3),
        "answer one": lambda: loaded["answer"].answer(asked[0], contexts[0], max_answer_tokens=2),
        "answer empty": lambda: loaded["answer"].answer(asked, ["", contexts[0]]),
        "embed": lambda: loaded["embed"].embed(texts),
        "embed cls": lambda: loaded["embed"].embed(texts[:3], pooling="cls", normalize=False),
        "hidden_states": lambda: loaded["embed"].hidden_states(texts[:2]),
        "fill": lambda: loaded["fill"].fill(["The [MASK] sat.", "[MASK] and [MASK]."], top=3),
        "is_next": lambda: loaded["fill"].is_next(texts[:3], texts[3:6]),
        "stream": lambda: [*loaded["classify"].stream(loaded["classify"].classify, texts, rows=3)],
        "load missing": lambda: bothways.load("missing-model"),
    }
    results: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            results[name] = plain(call())
        except Exception as error:  # its message is a result
            results[name] = f"{type(error).__name__}: {scrub_text(str(error))}"
    for name, model in loaded.items():
        results[f"model {name}"] = plain([model.task, model.labels, repr(model)])
    return results


def run_server() -> dict[str, Any]:
    """Answers to all requests, sent one after the other, and the exit status after SIGTERM."""
    arguments = [
        "serve",
        *(f"{name}={place}" for name, place in SERVED.items()),
        "--port",
        "0",
        "--json",
        *FLOAT32.split(),
        "--no-access-log",
    ]
    with open("server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "bothways", *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert server.stdout
            if not (line := server.stdout.readline()):
                raise SystemExit(f"the server has not started: {Path('server.log').read_text(encoding='utf-8')}")
            url = json.loads(line)["url"]
            while request(url, "/health", None)["status"] != 200:
                time.sleep(0.05)
            results: dict[str, Any] = {"ready": scrub(json.loads(line))}
            for path, body in REQUESTS:
                shown = body.decode() if isinstance(body, bytes) else json.dumps(body)
                results[f"GET {path}" if body is None else f"POST {path} {shown[:100]}"] = request(url, path, body)
            server.send_signal(signal.SIGTERM)
            results["exit status"] = server.wait(60)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
    return results


def request(url: str, path: str, body: Any) -> dict[str, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()

    try:
        answer = urlopen(Request(url + path, data, {"Content-Type": "application/json"}), timeout=120)
    except HTTPError as error:
        answer = error

    with answer:
        text = answer.read().decode()
        headers = {
            name: answer.headers[name] for name in ("Content-Type", "X-Vector-Space", "X-Truncated-Texts", "Allow")
        }
        status = answer.status

    try:
        value: Any = scrub(json.loads(text))
    except ValueError:
        value = [scrub_text(line) for line in text.splitlines()]
    return {"status": status, "headers": headers, "body": value}


# The sections in order, each with the sections whose models it uses.
NEEDED: dict[str, tuple[str, ...]] = dict.fromkeys(RUNS, ())
NEEDED |= {
    "distill": ("pretrain",),
    "variants": ("pretrain",),
    "resume": (),
    "compress": ("pretrain", "classify", "variants"),
    "use": tuple(RUNS),
}
NEEDED |= dict.fromkeys(("python", "server"), ("classify", "tag", "answer", "regress", "embed"))
OTHERS = {"resume": run_resume, "compress": run_compress, "use": run_use, "python": run_python, "server": run_server}


def run_section(section: str) -> None:
    """Write SECTION.json into the current directory."""
    import bothways

    checkout = Path(os.environ["SAME_RESULTS_CHECKOUT"]).resolve()
    if checkout not in Path(str(bothways.__file__)).resolve().parents:
        raise SystemExit(f"bothways comes from {bothways.__file__}, not from {checkout}")
    written = {*RUNS.get(section, ())} | {*(COMPRESSED if section == "compress" else ())}
    for name in written | ({"uses"} if section == "use" else set()):
        shutil.rmtree(name, ignore_errors=True)  # of a run that was stopped
    results = run_training(section) if section in RUNS else OTHERS[section]()
    Path(f"{section}.json").write_text(json.dumps(results, indent=1), encoding="utf-8")


# ---- both checkouts ----


def state(checkout: Path) -> str:
    """A hash of the tree: commit, changes that are not committed, new files, and this script."""

    def git(*arguments: str) -> bytes:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"{checkout}: not a checkout: {done.stderr.decode().strip()}")
        return done.stdout

    parts = [
        Path(__file__).read_bytes(),
        sys.executable.encode(),
        git("rev-parse", "HEAD"),
        git("diff", "HEAD", "--binary"),
    ]
    for name in git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        if name and (path := checkout / os.fsdecode(name)).is_file():
            parts += [name, path.read_bytes()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def results_of(checkout: Path, sections: Sequence[str], work: Path) -> dict[str, Any]:
    """Results by section. Sections that are in the directory of this state of the checkout are not run again."""
    place = work / state(checkout)
    if not (place / "documents").exists():
        place.mkdir(parents=True, exist_ok=True)
        write_data(place)
    for section in sections:
        if not (place / f"{section}.json").exists():
            began = time.monotonic()
            print(f"{checkout.name}: {section}", flush=True)
            run_in(checkout, place, section)
            print(f"{checkout.name}: {section} took {time.monotonic() - began:.0f} s", flush=True)
    return {section: json.loads((place / f"{section}.json").read_text(encoding="utf-8")) for section in sections}


def run_in(checkout: Path, place: Path, section: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOTHWAYS_")}
    environment |= {"PYTHONPATH": str(checkout), "SAME_RESULTS_CHECKOUT": str(checkout), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONHASHSEED": "0", "BOTHWAYS_CACHE": str(place / "cache"), "COLUMNS": "120", "NO_COLOR": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}

    with (place / f"{section}.log").open("w", encoding="utf-8") as log:
        child = [sys.executable, "-P", str(Path(__file__).resolve()), "--section", section]
        done = subprocess.run(
            child,
            cwd=place,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )

    if done.returncode:
        end = (place / f"{section}.log").read_text(encoding="utf-8", errors="replace")[-3000:]
        raise SystemExit(f"{checkout}: {section} ended with status {done.returncode}:\n{end}")


def differences(before: Any, after: Any, tolerance: float = 0.0, path: str = "") -> Iterator[str]:
    """A line for each key or item of the results that differs, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            where = f"{path}/{key}"
            if key not in after:
                yield f"{where}: only before: {shown(before[key])}"
            elif key not in before:
                yield f"{where}: only after: {shown(after[key])}"
            else:
                yield from differences(before[key], after[key], tolerance, where)
        if before.keys() == after.keys() and [*before] != [*after]:
            yield f"{path}: order of keys: before {shown([*before])}, after {shown([*after])}"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{path}: before {len(before)} items, after {len(after)}"
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, tolerance, f"{path}[{index}]")
    elif not equal(before, after, tolerance):
        yield f"{path}: before {shown(before)}, after {shown(after)}"


def equal(before: Any, after: Any, tolerance: float) -> bool:
    if type(before) is not type(after):
        return False
    if isinstance(before, float):
        return repr(before) == repr(after) or 0.0 < tolerance >= abs(before - after)
    return bool(before == after)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def report(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float = 0.0) -> tuple[list[str], bool]:
    """Lines about each section, and whether all are the same."""
    lines = []
    all_same = True
    for section in before:
        found = [*differences(before[section], after[section], tolerance if section in TOLERANT else 0.0)]
        number_found = f"{len(found)} difference{'s' * (len(found) > 1)}"
        lines.append(f"{section}: {number_found if found else 'same'}")
        lines += [f"  {line}" for line in found[: LINES - 1]]
        all_same &= not found
    return lines, all_same


def main() -> int:
    if sys.argv[1:2] == ["--section"]:
        run_section(sys.argv[2])
        return 0

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
    parser.add_argument("--work", type=Path, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=NEEDED, default=[*NEEDED], metavar="SECTION")
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X")
    options = parser.parse_args()

    wanted = {*options.only}.union(*(NEEDED[section] for section in options.only))
    needed = [section for section in NEEDED if section in wanted]

    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        results = [results_of(one.resolve(), needed, work) for one in (options.before, options.after)]

    before, after = ({section: one[section] for section in needed if section in options.only} for one in results)
    lines, all_same = report(before, after, options.tolerance)
    print("\n".join(lines))
    return int(not all_same)


if __name__ == "__main__":
    sys.exit(main())
