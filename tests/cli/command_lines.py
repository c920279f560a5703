"""Random command lines: flags of this and other verbs, values of wrong types, broken files."""

import io
import json
import os
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Literal, get_args, get_origin

from bothways.base import terminal
from bothways.cli import main
from bothways.cli.verbs import VERBS
from tests.fuzz import NASTY, mutated, mutated_bytes

# These run to their end on small files. Of the others only the checks before the work are tested: they get no model.
RUN = ("predict", "evaluate", "info", "fill", "embed", "vocab", "cache")
NUMBERS = (
    "-1",
    "0",
    "1",
    "2",
    "8",
    "1e9",
    "0.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "3.0",
    "0x10",
    "1_000",
    "٣",
    "9" * 5000,
)
WORDS = [str(one) for one in NASTY if not isinstance(one, list | dict)]
GOOD = {
    "t.txt": "the cat sat\n\na dog ran\n", "t.csv": "text,label,id\nthe cat,x,1\na dog,z,2\n",
    "p.tsv": "text\tpair\tlabel\na cat\tthe dog\t0.5\nb\ta\t0.25\n",
    "t.jsonl": '{"text": "a cat", "label": "x"}\n{"text": "b", "label": "z", "more": [1]}\n',
    "q.jsonl": '{"id": 1, "question": "who", "context": "a cat", "answers": {"text": ["cat"], "answer_start": [2]}}\n',
    "squad.json": json.dumps({"data": [{"paragraphs": [{"context": "a cat", "qas": [{"id": "1", "question": "b"}]}]}]}),
    "t.conll": "the O\ncat B-LOC\n\na O\n",
}  # fmt: skip


def write_files(directory: Path) -> None:
    """Small files, whole and broken, where the command lines look for them."""
    for name, content in GOOD.items():
        (directory / name).write_text(content, encoding="utf-8")
        for number in range(3):
            broken = mutated_bytes(content.encode(), Random(f"{name}-{number}"))
            (directory / f"broken{number}-{name}").write_bytes(broken)
    for name in ("empty.txt", "empty.csv", "t.xyz", "v.parquet", "none.txt.gz"):
        (directory / name).write_bytes(b"" if "empty" in name else b"\x1f\x8b\x00")
    (directory / "folder.txt").mkdir()


def command_line(random: Random, *, models: list[str], files: list[str]) -> list[str]:
    """A random command line. models, files: names of those there are; the last model is not there."""
    verb = random.choice([*VERBS, *RUN])
    kind = VERBS[verb].settings_class
    if verb not in RUN:
        models, files = ["t.txt", "folder.txt", models[-1]], ["empty.txt", "broken0-t.csv", "no-file.csv"]
    known = {field.name: field for field in fields(kind)}
    line = verb.split()
    for name, field in known.items():
        if "Positional" in str(field.type) and random.random() < 0.97:
            line.append(_value(name, field, random, models, files))
    needed = [name for name, field in known.items() if field.default is MISSING and "Positional" not in str(field.type)]
    some = random.sample([*known], min(len(known), random.choice((0, 0, 1, 1, 2, 3, 5))))
    for name in [*needed, *some] if random.random() < 0.95 else some:
        flag = f"--{name.replace('_', '-')}"
        if known[name].type is bool and random.random() < 0.95:
            line.append(random.choice((flag, f"--no-{name.replace('_', '-')}")))
        else:
            line += [flag, _value(name, known[name], random, models, files)]
    if random.random() < 0.1:
        changed = mutated(line, random)
        line = [str(word) for word in changed] if isinstance(changed, list) else line
    if line[:1] in (["demo"], ["serve"]):  # which would take minutes, or for ever
        line.append("--no-such-flag")
    return [_of_bytes(word) for word in line]


def _of_bytes(word: str) -> str:
    """The word as the system passes it: without NUL, and with surrogates only for bytes that are not UTF-8."""
    return os.fsdecode(word.encode(errors="surrogatepass").replace(b"\0", b""))


def _value(name: str, field: Field, random: Random, models: list[str], files: list[str]) -> str:
    closed = [str(one) for one in _closed(field.type)]
    if name in ("processes", "size", "alphabet"):  # never a million processes
        return random.choice(("1", "2", "40", "x", "-1", ""))
    if name == "out":
        return f"out/{random.randrange(99)}{random.choice(('', '.jsonl', '.csv', '.tsv', '.parquet', '.npy', '.png'))}"
    if random.random() < 0.07:
        return random.choice((*WORDS, *NUMBERS))
    if closed:
        return random.choice(closed)
    if any(kind in str(field.type) for kind in ("int", "float")):
        return random.choice(("1", "2", "8", "16", "64", "0.5", *NUMBERS))
    if name in ("model", "path", "start", "tokenizer", "directory", "store"):
        return random.choice(models)
    if name in ("file", "corpus", "train", "dev", "test", "texts", "predictions", "heldout"):
        return random.choice([*files, "-"])
    return random.choice(("a [MASK] cat", "the cat", "text", "id,text", "all", "label", "question", "en", *WORDS))


def _closed(kind: object) -> list[object]:
    """The values of a Literal, wherever it stands in a type."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    return [value for inner in get_args(kind) if not isinstance(inner, str) for value in _closed(inner)]


def run(line: list[str], capture) -> int:
    """The exit status of a command line. AssertionError where it ends in anything else, or what it prints would act on
    a terminal. capture: gives what was printed, as pytest's capsys does."""
    sys.stdin = SimpleNamespace(buffer=io.BytesIO(b"the cat\n\xff\n\na dog"))  # type: ignore[assignment]
    status: object = 0
    try:
        main.main(line)
    except SystemExit as end:
        status = end.code
    except BaseException as error:
        raise AssertionError(f"{line!r:.2000} raised {error!r:.300}") from error
    printed = capture()
    assert status in (0, 1, 2), (line, status)
    assert not terminal.CONTROLS.search(printed.out + printed.err), line
    if status == 1:
        assert printed.err.splitlines()[-1].startswith("bothways"), (line, printed.err)
    return int(str(status))
