"""The token store: every sentence of every document, with bounds, and a name for what it holds; on disk whole or not at
all."""

import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from threading import Event, Thread

import numpy as np
import pytest

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.text.corpus import array_files, encode
from bothways.text.corpus import token_store as module
from bothways.text.corpus.token_store import build_in_memory, open_or_build

DOCUMENTS = ["The cat sat. The dog ran!\nA mat", "  \n\n", "On and on.", "A b"]
NAMES = ("ids", "sentences", "documents")
GUARD = 250.0  # seconds, against hangs


@pytest.fixture
def store(tokenizer):
    return build_in_memory(DOCUMENTS, tokenizer)


@pytest.fixture
def opened(tokenizer, tmp_path):
    """Opens the store of some documents; its messages are in .messages, the number of times it read them in .reads."""

    def call(texts=DOCUMENTS, key="a key", directory=tmp_path / "stores", tokenizer=tokenizer, **changes):
        def documents():
            call.reads += 1
            return iter(texts)

        options = {"language": "en", "processes": 1, "drop_duplicates": False} | changes
        with messages_to(call.messages.append):
            return open_or_build(directory, key, documents, tokenizer, **options)

    call.reads, call.messages = 0, []
    return call


def test_a_store_is_every_sentence_of_every_document_in_order(store, tokenizer):
    expected = ["The cat sat.", "The dog ran!", "A mat", "On and on.", "A b"]
    bounds = store.sentences.tolist()
    assert [store.ids[start:end].tolist() for start, end in pairwise(bounds)] == [
        tokenizer.ids(sentence) for sentence in expected
    ]
    assert store.documents.tolist() == [0, 3, 4, 5]
    assert store.num_documents == 3 and store.num_tokens == sum(len(tokenizer.ids(part)) for part in expected)
    assert bounds[-1] == store.num_tokens


def test_nothing_of_a_text_is_lost_between_sentences(tokenizer):
    text = 'One. Two two!  Three? (four) five...\nsix "seven." eight 9.5 e.g. ten'
    assert build_in_memory([text], tokenizer).ids.tolist() == tokenizer.ids(text)


def test_a_fingerprint_names_the_text_as_the_tokenizer_reads_it(store, tokenizer):
    assert build_in_memory(DOCUMENTS, tokenizer).fingerprint == store.fingerprint
    assert len(store.fingerprint) == 16
    others = [
        [*DOCUMENTS[:-1], "A c"],
        DOCUMENTS[::-1],
        [DOCUMENTS[0].replace("\n", "\n\n").replace(". ", ".\n"), *DOCUMENTS[1:]],  # the same tokens and sentences
        [*DOCUMENTS[:-1], "A\nb"],  # the same tokens, a sentence more
        [DOCUMENTS[0], DOCUMENTS[2] + "\n" + DOCUMENTS[3]],  # the same sentences, one document fewer
    ]
    fingerprints = [build_in_memory(texts, tokenizer).fingerprint for texts in others]
    assert [fingerprint == store.fingerprint for fingerprint in fingerprints] == [False, False, True, False, False]
    early, late = (build_in_memory([text], tokenizer).fingerprint for text in ("cat\nsat ran", "cat sat\nran"))
    assert early != late  # the same tokens, as many sentences
    moved = Tokenizer({token: (index + 1) % 97 for token, index in tokenizer.vocab.items()})
    assert build_in_memory(DOCUMENTS, moved).fingerprint != store.fingerprint


def test_a_corpus_without_words_is_refused_and_leaves_no_store(tokenizer, opened, tmp_path):
    for texts in (["", " \n "], []):
        with pytest.raises(InputError, match="holds no text"):
            build_in_memory(texts, tokenizer)
        with pytest.raises(InputError, match="holds no text"):
            opened(texts)
    assert visible(tmp_path / "stores") == []


def test_a_store_on_disk_is_the_one_in_memory(opened, store, paragraphs, tokenizer):
    first, second = opened(), opened()
    assert not first.reused and second.reused and opened.reads == 1 and opened.messages == []
    for built in (first, second):
        same_store(built.store, store)
        assert built.store.fingerprint == store.fingerprint
        assert built.megabytes == sum(map(len, DOCUMENTS)) / 1e6 and built.duplicates == 0 and built.seconds > 0
    same_store(opened(paragraphs, key="another").store, build_in_memory(paragraphs, tokenizer))


def test_ids_take_two_bytes_on_disk_and_four_with_a_large_vocabulary(opened, tokenizer, tmp_path):
    assert opened().store.ids.dtype == np.uint16
    [folder] = visible(tmp_path / "stores")
    assert (folder / "ids").stat().st_size == 2 * opened().store.num_tokens
    many = {f"word{index}": index for index in range(97, 65_537)}
    large = opened(["the word65536"], directory=tmp_path / "large", tokenizer=Tokenizer(tokenizer.vocab | many)).store
    assert large.ids.dtype == np.int32 and large.ids.tolist() == [tokenizer.vocab["the"], 65_536]


def test_a_store_is_used_again_only_if_nothing_that_it_depends_on_changed(opened, tokenizer, monkeypatch):
    rules = {"lowercase": False}, {"strip_accents": False}, {"split_chinese": False}, {"max_word_length": 7}
    moved = {token: (index + 1) % 97 for token, index in tokenizer.vocab.items()}
    changes = [
        {"key": "another"},
        {"language": "de"},
        {"drop_duplicates": True},
        {"tokenizer": Tokenizer(moved)},
        *({"tokenizer": Tokenizer(tokenizer.vocab, **rule)} for rule in rules),
    ]
    for change in [{}, *changes]:
        assert not opened(**change).reused
    for name, value in {"FORMAT": 0, "version": lambda _: "0", "bothways.__version__": "0"}.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"{module.__name__}.{name}", value)
            assert not opened().reused
    assert all(opened(processes=2, **change).reused for change in [{}, *changes])
    assert opened.reads == 1 + len(changes) + 3


def test_duplicate_documents_are_dropped_on_request_and_counted(opened, tokenizer):
    texts = ["the cat", "a dog", "the cat", "The cat", "the cat ", "a dog", "the cat", "\ud800 mat"]
    for _ in range(2):
        built = opened(texts, drop_duplicates=True)
        assert built.duplicates == 3
        same_store(built.store, build_in_memory(["the cat", "a dog", "The cat", "the cat ", "\ufffd mat"], tokenizer))
    assert built.reused
    assert opened(texts).duplicates == 0 and opened(texts).store.num_documents == 8


def test_the_files_are_the_same_whatever_the_number_of_processes(opened, paragraphs, tokenizer, tmp_path, monkeypatch):
    in_memory = build_in_memory(paragraphs, tokenizer)
    monkeypatch.setattr(encode, "BLOCK_CHARACTERS", 5000)
    for processes in (1, 2):
        built = opened(paragraphs, processes=processes, directory=tmp_path / str(processes))
        same_store(built.store, in_memory)
    [one], [two] = (visible(tmp_path / number) for number in "12")
    assert one.name == two.name
    for name in (*NAMES, array_files.METADATA_FILE):
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, array_files.METADATA_FILE])
def test_a_damaged_store_is_named_in_one_line_and_rebuilt(name, opened, store, tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "CHECKSUM_BYTES", 16)  # so that there are several
    opened()
    [folder] = visible(tmp_path / "stores")
    sound = (folder / name).read_bytes()
    flipped = [sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :] for at in (0, len(sound) // 2, len(sound) - 3)]
    for content in (*flipped, sound[:-8], sound[:-1], sound + b"\0" * 8, b"", b"[]", b"{}", None):
        opened.messages.clear()
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        built = opened()
        assert not built.reused
        same_store(built.store, store)
        assert len(opened.messages) == 1
        assert opened.messages[0].startswith(f"warning: {folder}: damaged ") and f"({name} " in opened.messages[0]
        assert "\n" not in opened.messages[0] and opened.messages[0].endswith("again")
        assert opened().reused and (folder / name).read_bytes() == sound


@pytest.mark.parametrize("field", ["duplicates", "megabytes", "counts", "dtypes", "checksums"])
def test_changed_metadata_is_rejected(field, opened, tmp_path):
    opened()
    [folder] = visible(tmp_path / "stores")
    metadata = json.loads((folder / array_files.METADATA_FILE).read_text())
    (folder / array_files.METADATA_FILE).write_text(json.dumps(metadata | {field: None}))
    assert not opened().reused


KILLED = """
import os, signal, sys
from pathlib import Path
from bothways import Tokenizer
from bothways.text.corpus import encode
from bothways.text.corpus.token_store import open_or_build

def documents():
    yield from ["the cat sat"] * 5
    os.kill(os.getpid(), signal.SIGKILL)

encode.BLOCK_CHARACTERS = 11
directory, vocabulary = sys.argv[1:]
options = {"language": "en", "processes": 1, "drop_duplicates": False}
open_or_build(Path(directory), "a key", documents, Tokenizer.load(vocabulary), **options)
"""


def test_leftovers_of_a_killed_build_are_removed_by_the_next_one(opened, store, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    directory = tmp_path / "stores"
    command = [sys.executable, "-c", KILLED, str(directory), str(tmp_path / "tokenizer")]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    [left] = [path for path in directory.iterdir() if path.is_dir()]
    assert visible(directory) == [] and (left / "ids").stat().st_size == 5 * 3 * 2
    built = opened()
    assert not built.reused and not left.exists()
    same_store(built.store, store)


def test_an_error_halfway_leaves_nothing(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "BLOCK_CHARACTERS", 11)

    def broken():
        yield from ["the cat sat"] * 5
        raise InputError("corpus.txt:6: not UTF-8")

    for processes in (1, 2):
        with pytest.raises(InputError, match="corpus.txt:6"):
            opened(broken(), processes=processes)
    assert [path.suffix for path in (tmp_path / "stores").iterdir()] == [".lock"]
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(InputError, match="No space left on device.*free space"):
        opened()
    assert [path.suffix for path in (tmp_path / "stores").iterdir()] == [".lock"]


def test_all_of_a_store_is_synced(opened, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    opened()
    [folder] = visible(tmp_path / "stores")
    parts = sorted(path.stat().st_ino for path in folder.iterdir())
    assert sorted(synced[:-2]) == parts and len(parts) == 4
    assert synced[-2:] == [folder.stat().st_ino, folder.parent.stat().st_ino]


def test_of_two_concurrent_builds_one_waits_with_a_message_and_uses_the_others_store(opened, tmp_path):
    has_begun, may_end = Event(), Event()
    opening = {}  # by role: which of the two threads ends first is not decided

    def slow():
        yield DOCUMENTS[0]
        has_begun.set()
        may_end.wait(GUARD)
        yield from DOCUMENTS[1:]

    class Waiting(list):
        def append(self, text):
            super().append(text)
            may_end.set()

    def build(role, texts):
        opening[role] = opened(texts)

    opened.messages = Waiting()
    builder = Thread(target=build, args=("builder", slow()))
    waiter = Thread(target=build, args=("waiter", DOCUMENTS))

    builder.start()
    assert has_begun.wait(GUARD)
    waiter.start()
    for thread in (builder, waiter):
        thread.join(GUARD)

    assert not opening["builder"].reused
    assert opening["waiter"].reused
    assert opened.reads == 1
    assert len(opened.messages) == 1 and "another process is building" in opened.messages[0]
    same_store(opening["builder"].store, opening["waiter"].store)


def test_a_directory_without_write_permission_is_reported(opened, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: .*cannot be written"):
        opened(directory=tmp_path / "file")


def test_lines_of_progress_are_logged(opened, monkeypatch):
    monkeypatch.setattr(module, "PROGRESS_EVERY", 0.0)
    opened()
    assert len(opened.messages) == len(DOCUMENTS) and opened.messages[0].startswith("token store: 0 MB read, ")


def visible(directory):
    """The stores there."""
    return [path for path in directory.iterdir() if not path.name.startswith(".")]


def same_store(first, second):
    for name in NAMES:
        mine, theirs = getattr(first, name), getattr(second, name)
        assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist()
