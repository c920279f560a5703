"""Parallel tokenization of documents: the ids of each sentence, in order, and no leftover processes."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import unicodedata
from itertools import pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.text.corpus import encode as module
from bothways.text.corpus.encode import encode, sentences

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
MARKS = [chr(point) for point in range(0x250, 0x1000) if unicodedata.combining(chr(point))]


def workers():
    """The processes that encode; others may run beside them, such as those that tokenize (joblib)."""
    return [child for child in multiprocessing.active_children() if isinstance(child, SpawnProcess)]


def rows(blocks):
    """What blocks hold as lists: documents of sentences of ids."""
    documents = []
    for ids_T, sentence_sizes, document_sizes in blocks:
        bounds = np.concatenate([[0], np.cumsum(sentence_sizes)])
        parts = iter([ids_T[start:end].tolist() for start, end in pairwise(bounds)])
        documents += [[next(parts) for _ in range(size)] for size in document_sizes]
        assert next(parts, None) is None
    return documents


def slowly(documents, tokenizer, language="en"):
    """The same from one sentence after another."""
    encoded = [
        [ids for text in sentences(document, language) if (ids := tokenizer.ids(text))] for document in documents
    ]
    return [document for document in encoded if document]


@pytest.fixture(scope="module")
def texts(paragraphs):
    """Real text of many scripts, strings that break programs, and marks of every kind side by side."""
    draw = random.Random(3)
    pool = [*"abI. ,'\"()-/&\n\t\x00\x0b\x85\u00a0\u2028\u4e00\u0130\u03a3\ud800", "e.g.", " Mr.", *MARKS[::40]]
    odd = ["".join(draw.choices(pool, k=draw.randrange(40))) for _ in range(2000)]
    return [*paragraphs, (FIXTURES / "blns.txt").read_text(encoding="utf-8"), *odd]


@pytest.fixture(scope="module")
def learned(paragraphs):
    return Tokenizer.learn(paragraphs, size=3000, lowercase=True)


def test_sentences_are_split_at_line_ends_and_by_rules():
    parts = [part.strip() for part in sentences("Mr. Smith sat. He ran!\n\nThe end", "en")]
    assert parts == ["Mr. Smith sat.", "He ran!", "The end"]
    assert list(sentences("A\ud800. B", "en")) == ["A\ufffd. ", "B"]


@pytest.mark.parametrize("rules", [{}, {"lowercase": False}, {"strip_accents": False}, {"split_chinese": False}])
def test_ids_are_those_of_each_sentence_alone(rules, learned, texts):
    tokenizer = Tokenizer(learned.vocab, **rules)
    expected = slowly(texts, tokenizer)
    assert len(expected) > 2000 and sum(map(len, expected)) > 4000
    assert rows(encode(texts, Tokenizer(learned.vocab, **rules), language="en", processes=1)) == expected


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(learned, texts, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 10_000)
    expected = slowly(texts, learned)
    alone = list(encode(texts, learned, language="en", processes=1))
    together = list(encode(texts, learned, language="en", processes=3))
    assert len(together) == len(alone) > 10
    for block, other in zip(alone, together, strict=True):
        assert all(map(np.array_equal, block, other))
    assert rows(alone) == expected


def test_a_short_text_starts_no_process(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 11)
    monkeypatch.setattr(module, "worker_pool", None)
    texts = ["the cat sat"] * (module.SEVERAL_BLOCKS - 1)
    assert rows(encode(iter(texts[1:]), tokenizer, language="en", processes=2)) == slowly(texts[1:], tokenizer)
    with pytest.raises(TypeError):
        list(encode(texts * 2, tokenizer, language="en", processes=2))


def test_few_blocks_are_read_ahead(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 11)
    taken = 0

    def documents():
        nonlocal taken
        for number in range(40):
            taken = number
            yield "the cat sat"  # a block each

    for done, _ in enumerate(encode(documents(), tokenizer, language="en", processes=2)):
        assert taken < done + 2 + module.READ_AHEAD
    assert done == 40  # the last holds nothing


def test_an_error_of_the_reader_comes_through_and_no_process_stays(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 11)

    def documents():
        yield from ["the cat sat"] * 7
        raise InputError("corpus.txt:8: not UTF-8")

    for processes in (1, 2):
        with pytest.raises(InputError, match="corpus.txt:8"):
            list(encode(documents(), tokenizer, language="en", processes=processes))
        assert workers() == []


def test_a_process_that_is_killed_stops_all_with_one_error(tokenizer, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 11)

    def documents():
        yield from ["the cat sat"] * 8  # processes start at the fourth
        os.kill(workers()[0].pid, signal.SIGKILL)
        yield from ["the dog ran"] * 1000

    with pytest.raises(InputError, match="2 processes .*killed.*--processes"):
        list(encode(documents(), tokenizer, language="en", processes=2))
    assert workers() == []


SCRIPT = """
import multiprocessing, sys, time
from bothways import Tokenizer
from bothways.text.corpus import encode

def documents():
    yield from ["the cat sat"] * 8
    while len(multiprocessing.active_children()) < 2: time.sleep(0.01)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    encode.BLOCK_CHARACTERS = 11
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer({token: index for index, token in enumerate(specials)})
    list(encode.encode(documents(), tokenizer, language="en", processes=2))
"""


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        children = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert len(children) == 2
    while any(is_running(child) for child in children):  # a process that outlives its parent hangs the test
        time.sleep(0.02)


def is_running(number):
    """Ended ones may stay as zombies until the process that inherits them waits for them."""
    try:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(number)], capture_output=True, text=True).stdout
    except FileNotFoundError:
        pytest.skip("no ps here")
    return bool(state.strip()) and not state.startswith("Z")


def test_a_number_of_processes_below_zero_is_refused(tokenizer):
    with pytest.raises(InputError, match=r"processes \(-1\) .*at least 1"):
        list(encode(["the cat"], tokenizer, language="en", processes=-1))


def test_ids_take_two_bytes_if_the_vocabulary_fits():
    assert [module.id_dtype(size) for size in (97, 65_536, 65_537)] == [np.uint16, np.uint16, np.int32]
