"""Tokenizer files are untrusted input: broken ones by the thousand, hostile patterns, values of wrong types. Each is
refused quickly, in one line.

`soak/test_fuzz_tokenizers.py` runs the same with 150 times as many.
"""

import json
import os
import random
import shutil
import string
from contextlib import suppress
from itertools import pairwise

import pytest

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.text.tokenizer.library import BYTE_LEVEL_SPACE, DECODERS, METASPACE, added_tokens, template_processing
from bothways.text.tokenizer.regexes import KNOWN_PATTERNS, check_patterns
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS, AddedToken
from tests.fuzz import mutated_bytes, mutated_json, refusals

TEXTS = ("The caf\u00e9, 12 cats \u4e2d\u6587 [MASK] <mask> \ud800\x00\u200b  end", "a" * 200, " " * 40, "")
LETTERS = [*"abcdest", "the", "cat", "."]
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True, "strip_accents": None, "model_max_length": 512,
    "mask_token": {"content": "[MASK]", "lstrip": True}, "add_prefix_space": False,
}  # fmt: skip
REPLACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def pipeline(vocab, model, mark):
    """A tokenizer.json of another kind than BERT's."""
    ids = {token: index for index, (token, *_) in enumerate(vocab)}
    splitter = {"type": "Split", "pattern": {"Regex": KNOWN_PATTERNS[0]}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": added_tokens({name: ids[name] for name in SPECIAL_TOKENS}, mask="[MASK]"),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, REPLACE, {"type": "NFKD"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [splitter, DECODERS[mark]]},
        "post_processor": template_processing("[CLS]", "[SEP]", ids, num_separators=1, second_segment=1),
        "decoder": DECODERS[mark],
        "model": model,
    }  # fmt: skip


def tokenizer_files(kind):
    """Small whole tokenizer files of a kind, by name; those of `spiece` are made of another's."""
    tokens = [*SPECIAL_TOKENS, *LETTERS, *("##" + letter for letter in LETTERS)]
    bytewise = {
        token: index
        for index, token in enumerate([*SPECIAL_TOKENS, *string.ascii_letters, BYTE_LEVEL_SPACE, "th", "the"])
    }
    merges = [["t", "h"], ["th", "e"]]
    pieces = [
        [token, -float(index)] for index, token in enumerate([*SPECIAL_TOKENS, METASPACE, *LETTERS, f"{METASPACE}the"])
    ]
    lines = "".join(f"{token}\n" for token in tokens).encode()
    files = {
        "bert": {"vocab.txt": lines, "tokenizer.json": None, "tokenizer_config.json": CONFIG},
        "bert's vocabulary": {
            "vocab.txt": lines, "tokenizer_config.json": CONFIG, "added_tokens.json": {"cat": 13},
            "config.json": {"tokenizer_class": None, "model_type": "bert"},
        },
        "byte pairs": {
            "tokenizer.json": pipeline(
                [(token,) for token in bytewise], {"type": "BPE", "vocab": bytewise, "merges": merges}, BYTE_LEVEL_SPACE
            ),
            "tokenizer_config.json": CONFIG,
        },
        "byte pairs' files": {
            "vocab.json": bytewise, "merges.txt": b"#version: 0.2\nt h\nth e\n", "tokenizer_config.json": CONFIG,
            "special_tokens_map.json": {"mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
            "added_tokens.json": {"[E1]": len(bytewise)},
        },
        "unigram": {
            "tokenizer.json": pipeline(pieces, {"type": "Unigram", "unk_id": 1, "vocab": pieces}, METASPACE),
            "tokenizer_config.json": CONFIG,
        },
    }[kind]  # fmt: skip
    return {
        name: content if isinstance(content, bytes) else json.dumps(content).encode() for name, content in files.items()
    }


def make_directory(kind, directory, make_sentencepiece):
    """Whole files of a kind, to be broken."""
    directory.mkdir(parents=True)
    if kind == "spiece":
        special_tokens = ["<pad>", "<unk>", *SPECIAL_TOKENS[2:]]
        pieces = [*((one, 0.0) for one in special_tokens), (METASPACE, -2.0), *((one, -3.0) for one in LETTERS)]
        make_sentencepiece(directory / "spiece.model", pieces, controls=special_tokens)
        (directory / "tokenizer_config.json").write_text('{"keep_accents": false, "do_lower_case": true}')
        return directory
    for name, content in tokenizer_files(kind).items():
        (directory / name).write_bytes(content)
    if kind == "bert":
        Tokenizer.load(directory / "vocab.txt").save(directory)
    return directory


KINDS = ("bert", "bert's vocabulary", "byte pairs", "byte pairs' files", "unigram", "spiece")


def use(directory, *, save=True):
    """Load the tokenizer there, read texts with it; save it and load it again."""
    tokenizer = Tokenizer.load(directory)
    for text in TEXTS:
        encoding = tokenizer.encode(text, text[:9], allow_special=True)
        assert len(encoding.offsets) == len(encoding.tokens) == len(encoding)
        tokenizer.decode(encoding.ids)
        tokenizer.encode(text)
    if save:
        tokenizer.save(directory / "saved")
        Tokenizer.load(directory / "saved")


def check(number, whole, directory, seed=0):
    """The number of directories, of `number` with a broken file each, that are refused."""
    files = {file.name: file.read_bytes() for file in whole.iterdir()}

    def make(random):
        name = random.choice(sorted(files))
        as_json = name.endswith(".json") and random.random() < 0.9
        content = mutated_json(json.loads(files[name]), random) if as_json else mutated_bytes(files[name], random)
        return name, content, random.random() < 0.25

    def load(case):
        name, content, save = case  # saving waits for the disk
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for other, whole in (files | {name: content}).items():
            (directory / other).write_bytes(whole)
        use(directory, save=save)

    return refusals(number, make, load, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_broken_tokenizer_files_are_refused_in_one_line(kind, tmp_path, make_sentencepiece):
    whole = make_directory(kind, tmp_path / "whole", make_sentencepiece)
    use(whole)
    shutil.rmtree(whole / "saved")
    refused = check(113, whole, tmp_path / "broken")
    assert 10 < refused < 113


# --- patterns ---------------------------------------------------------------------------------------------------------

HOSTILE = [
    "(a+)+$", "(a|a)*b", "(a*)*b", r"(\w+\s?)+$", "a*a*b", "a+b", ".*x", r"(.)\1+", "a?" * 30 + "a" * 30, "a{0,2000}b",
    "[[:alpha:]]+b", "(?=a*)b", "a++b", "a*?b", "", "x" * 2000, "[" * 500, "(" * 500,
]  # fmt: skip
HARMLESS = [
    *KNOWN_PATTERNS,
    " {2,}",
    r"\s+",
    r"\p{N}{1,3}",
    r"[^\r\n]?\p{L}+",
    "a|bc?|[d-f]*",
    r"\u2581",
    r"[\]\[]+",
    ".",
]


def replacing(regex, content=" "):
    return {"type": "Replace", "pattern": {"Regex": regex}, "content": content}


@pytest.mark.parametrize("regex", HOSTILE, ids=lambda regex: regex[:20])
@pytest.mark.parametrize("place", ["normalizer", "pre_tokenizer", "decoder"])
def test_a_pattern_that_may_never_end_is_refused_before_it_runs(regex, place, tmp_path, make_sentencepiece):
    make_directory("unigram", tmp_path / "whole", make_sentencepiece)
    file = tmp_path / "whole" / "tokenizer.json"
    content = json.loads(file.read_text())
    lists = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    step = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    step = step if place == "pre_tokenizer" else replacing(regex)
    content[place] = (
        {"type": "Sequence", lists[place]: [step, DECODERS[METASPACE]]} if place == "pre_tokenizer" else step
    )
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"tokenizer.json: .*regular expression"):
        Tokenizer.load(file)


@pytest.mark.parametrize("regex", HARMLESS, ids=lambda regex: regex[:20])
def test_patterns_of_published_tokenizers_are_read(regex):
    check_patterns({"normalizers": [replacing(regex)]}, None, 5)


ATOMS = {"a": "a".__eq__, "b": "b".__eq__, ".": "\n".__ne__, "[ab]": "ab".__contains__}
ATOMS |= {r"\s": str.isspace, r"\w": str.isalnum, r"\p{L}": str.isalpha}
REPEATS = {
    "": (1, 1),
    "?": (0, 1),
    "*": (0, 999_999),
    "+": (1, 999_999),
    "{2}": (2, 2),
    "{1,3}": (1, 3),
    "{2,}": (2, 999_999),
}


def steps(branches, text):
    """How often a backtracking matcher looks at a character or a state, to find all matches.

    branches: of (atom, repetition) each.
    """
    number = position = 0

    def match(items, start):
        nonlocal number
        number += 1
        if not items:
            return start
        accepts, (least, most) = ATOMS[items[0][0]], REPEATS[items[0][1]]
        end = start
        while end < len(text) and end - start < most and accepts(text[end]):
            end += 1
        number += end - start
        ends = (match(items[1:], stop) for stop in range(end, start + least - 1, -1))
        return next((found for found in ends if found is not None), None)

    while position < len(text):
        ends = (match(branch, position) for branch in branches)
        position = max(position + 1, next((end for end in ends if end is not None), 0))
    return number


def as_regex(branches):
    return "|".join("".join(map("".join, branch)) for branch in branches)


def test_reading_takes_linear_time():
    """Random patterns of few letters: a matcher works through a long text that fits none of them, or nearly."""
    draw, harmless = random.Random(0), []
    for _ in range(250):
        items = [(draw.choice([*ATOMS]), draw.choice(["", "", *REPEATS])) for _ in range(5)]
        cuts = [0, *(place for place in range(1, 5) if draw.random() < 1 / 3), 5]
        branches = [items[start:end] for start, end in pairwise(cuts)]
        with suppress(InputError):
            check_patterns(replacing(as_regex(branches)))
            harmless.append(branches)
    assert len(harmless) > 50
    for branches in harmless:
        for filling, last in (("a", ""), ("ab", ""), ("a", "b"), (" ", "a"), ("\n ", "")):
            few, many = (steps(branches, filling * size + last) for size in (100, 400))
            assert many < 5 * few, as_regex(branches)
    quadratic = [[("a", "+"), ("b", "")]]
    assert steps(quadratic, "a" * 400) > 10 * steps(quadratic, "a" * 100)


@pytest.mark.parametrize("regex", KNOWN_PATTERNS)
@pytest.mark.parametrize("text", ["a" * 20_000, " " * 20_000 + "a", "\n " * 10_000])
def test_patterns_of_published_tokenizers_end(regex, text):
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    parts = Split(Regex(regex), "isolated").pre_tokenize_str(text)
    assert "".join(part for part, _ in parts) == text


def test_replacements_that_make_texts_many_times_longer_are_refused():
    check_patterns(
        [replacing(" {2,}", " ")] * 50, [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 6
    )
    for steps in (
        [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
        [replacing("a", "aa")] * 40,
        [replacing("a*", "a")] * 40,
        [{"type": "Replace", "pattern": {"String": ""}, "content": "a"}] * 40,
    ):
        with pytest.raises(InputError, match="replacements .* times as long"):
            check_patterns({"type": "Sequence", "normalizers": steps})


# --- not regular files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "spiece.model"])
def test_a_pipe_a_device_or_a_folder_in_place_of_a_file_is_refused_at_once(name, tmp_path, make_sentencepiece):
    kind = "spiece" if name == "spiece.model" else "bert"
    whole = make_directory(kind, tmp_path / "whole", make_sentencepiece)
    if name == "vocab.txt":
        (whole / "tokenizer.json").unlink()
    for replace in (os.mkfifo, os.mkdir, lambda file: os.symlink("/dev/zero", file)):
        shutil.rmtree(whole / name) if (whole / name).is_dir() else (whole / name).unlink()
        replace(whole / name)
        with pytest.raises(InputError, match=f"{name}: not a regular file"):
            Tokenizer.load(whole)


@pytest.mark.parametrize(
    "content, message",
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested deeper than 100"),
        ('{"a": ' + "9" * 5000 + "}", "a number too long"),
    ],
    ids=["brackets", "objects", "digits"],
)
def test_json_that_no_program_writes_is_refused(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=f"tokenizer.json: .*{message}"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_flag_is_true_false_or_null(name, tmp_path, make_sentencepiece):
    whole = make_directory("bert's vocabulary", tmp_path / "whole", make_sentencepiece)
    for value in ("false", 0, [], "yes"):
        (whole / "tokenizer_config.json").write_text(json.dumps({name: value}))
        with pytest.raises(InputError, match=rf"tokenizer_config.json: {name} \(.*\) .*true or false"):
            Tokenizer.load(whole)
    (whole / "tokenizer_config.json").write_text(json.dumps({name: None}))
    expected = {"lowercase": True, "strip_accents": None, "split_chinese": True, "max_word_length": 100}
    assert Tokenizer.load(whole).backend.rules == {**expected, "added": (AddedToken("cat", normalized=True),)}


@pytest.mark.parametrize("value", ["100", 0, -1, None, 1.5, True, [1]])
def test_the_longest_word_is_a_whole_number(value, tmp_path, make_sentencepiece):
    whole = make_directory("bert", tmp_path / "whole", make_sentencepiece)
    content = json.loads((whole / "tokenizer.json").read_text())
    content["model"]["max_input_chars_per_word"] = value
    (whole / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="max_input_chars_per_word"):
        Tokenizer.load(whole)


def test_half_a_character_in_a_vocabulary_is_refused(tmp_path, make_sentencepiece):
    whole = make_directory("bert", tmp_path / "whole", make_sentencepiece)
    content = (whole / "tokenizer.json").read_text().replace('"cat"', '"\\ud800"')
    (whole / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match="entry .* is not text"):
        Tokenizer.load(whole)


@pytest.mark.slow
def test_a_damaged_table_of_normalizations_is_one_line_for_the_text_that_shows_it(tmp_path, make_sentencepiece):
    check_charsmaps(range(0, 400, 3), tmp_path, make_sentencepiece)


def check_charsmaps(seeds, tmp_path, make_sentencepiece):
    from tests.text.tokenizer.conftest import CHARSMAP

    special_tokens = ["<pad>", "<unk>", *SPECIAL_TOKENS[2:]]
    pieces = [*((one, 0.0) for one in special_tokens), (METASPACE, -2.0), ("a", -3.0)]
    refused = 0
    texts = ("".join(map(chr, range(1, 3000))), "".join(map(chr, range(0xFF00, 0xFFFF))))
    for number in seeds:
        damaged = mutated_bytes(CHARSMAP, random.Random(number))
        make_sentencepiece(tmp_path / "spiece.model", pieces, controls=special_tokens, charsmap=damaged)
        try:
            tokenizer = Tokenizer.load(tmp_path)
        except InputError:
            continue
        for text in texts:
            try:
                tokenizer.encode(text)
            except InputError as error:
                refused += "\n" not in str(error)
    assert refused > 0
