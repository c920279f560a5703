"""The shell commands in the guides run as printed, on small files with those names.

Pre-training takes seconds in place of an hour. Lines for several machines are left to `tests/train/test_parallel.py`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bothways.text.corpus.documents import sample

pytestmark = pytest.mark.timeout(3600)
ROOT = Path(__file__).parent.parent
GUIDES = ("pretraining", "finetuning", "serving")  # and start, which the others build on
SHORTER = {"--minutes 60": "--minutes 0.2", "--minutes 30": "--minutes 0.1", "tail -f": "timeout 30 tail -f"}
GOOD, BAD = (
    ("a splendid, warm and honest story", "wonderful, I loved it"),
    ("dull and far too long", "an awful, boring mess"),
)


def lines_of(page):
    """The lines of a page that use the command; several that belong together as one."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if re.search(r"(^|\| )bothways ", line)]


def write_files(directory):
    paragraphs = [text for book in sample() for text in book["text"].split("\n\n")[5:25]]
    corpus = "\n\n".join(paragraphs)
    for name in ("corpus.txt", "text/a.txt", "law/a.txt"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(corpus, encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"text": paragraphs[:99]}), directory / "more.parquet")
    rows = [
        (f"{text}, chapter {n}", label) for n in range(60) for label, texts in enumerate((BAD, GOOD)) for text in texts
    ]
    table = "".join(f'{n},"{text}",{("bad", "good")[label]}\n' for n, (text, label) in enumerate(rows))
    for name in ("train", "test", "reviews", "gold", "texts", "my-texts", "new"):
        (directory / f"{name}.csv").write_text(f"id,text,label\n{table}")
    (directory / "new.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    (directory / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in rows))
    theirs = ({"label": ("bad", "good")[label]} for _, label in rows)
    (directory / "theirs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in theirs))
    for name in ("train", "dev"):
        sentences = ("Anna B-PER\nlives O\nin O\nParis B-LOC\n", "Paris B-LOC\nis O\ncold O\n") * 40
        (directory / f"{name}.conll").write_text("\n".join(sentences))
    data = []
    for n in range(60):
        passage = f"Anna lives in Paris and has worked in Rome for {n} years."
        answers = [{"text": "Paris", "answer_start": passage.index("Paris")}]
        asked = {"id": str(n), "question": "Where does Anna live?", "answers": answers}
        data.append({"title": str(n), "paragraphs": [{"context": passage, "qas": [asked]}]})
    (directory / "squad.json").write_text(json.dumps({"version": "1.1", "data": data}))
    (directory / "glue" / "CoLA").mkdir(parents=True)
    for name in ("train", "dev"):
        lines = "".join(f"gj04\t{label}\t\t{text}\n" for text, label in rows)
        (directory / "glue" / "CoLA" / f"{name}.tsv").write_text(lines)


def walk(page, directory):
    """Each line in bash, one after another; every one ends well."""
    script = directory.parent / "bin" / "bothways"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bothways "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "BOTHWAYS_CACHE": str(script.parent / "cache"),  # token stores, away from the user's own
    }  # fmt: skip
    lines = lines_of(page)
    assert lines
    for line in lines:
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        print(line)
        ended = subprocess.run(
            ["bash", "-c", line], cwd=directory, env=environment, capture_output=True, text=True, timeout=1200
        )
        assert ended.returncode == 0, (line, ended.stdout[-2000:], ended.stderr[-2000:])


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Where the lines of the guide "start" have run."""
    if find_spec("onnxruntime") is None:
        pytest.skip("the extra onnx is not installed")
    directory = tmp_path_factory.mktemp("walk") / "start"
    directory.mkdir()
    write_files(directory)
    walk(ROOT / "docs/guide/start.md", directory)
    return directory


def test_start(start):
    made = ("my-tokenizer", "my-bert", "my-classifier", "my-tagger", "my-reader", "my-classifier-int8")
    assert all((start / name).exists() for name in made)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide(guide, start, tmp_path):
    directory = tmp_path / guide
    directory.mkdir()
    write_files(directory)
    page = ROOT / "docs" / "guide" / f"{guide}.md"
    text = page.read_text(encoding="utf-8")
    for name in ("my-bert", "my-classifier"):  # what the page does not make itself
        if f"-o {name} " not in text and f"-o {name}\n" not in text:
            shutil.copytree(start / name, directory / name)
    walk(page, directory)
