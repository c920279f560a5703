"""BERT's tokenizer files: vocab.txt, tokenizer.json and tokenizer_config.json, read and written as transformers has
them. Where they are looked for, and those of other kinds: other_files.py."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as shortened
from stat import S_ISREG
from typing import Any

from bothways.errors import InputError, MissingFile
from bothways.io import SURROGATES, write_atomic
from bothways.tokenizer.basic import Splitter
from bothways.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS

FLAGS = (  # of tokenizer_config.json, and of tokenizer.json's normalizer
    "do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents", "split_by_punct", "add_prefix_space",
    "lowercase", "handle_chinese_chars",
)  # fmt: skip
DEEPEST = 100  # lists and objects inside each other, in a JSON file


@dataclass(frozen=True)
class TokenizerData:
    """What tokenizer files hold: the vocabulary, how text is read (arguments of `Tokenizer`), and where it stood."""

    vocab: dict[str, int]
    options: dict[str, Any]
    file: Path


def check_regular_file(file: Path) -> None:
    """InputError for what is there and may never end, or is no file: a pipe, a device, a directory."""
    if not S_ISREG(file.stat().st_mode):
        raise InputError(f"{file}: not a regular file; name one")


def read_bytes(file: Path) -> bytes:
    """A file's content. InputError if there is none; a pipe or a device, which may never end, is not read."""
    try:
        check_regular_file(file)
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{file}: no such file; check the path") from None


def read_text(file: Path) -> str:
    """A file's text as UTF-8. InputError says at which byte it is not."""
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 at byte {error.start}; convert it to UTF-8 first") from None


def read_json_value(file: Path) -> Any:
    """Any JSON value from a file. InputError says where it is not JSON, or holds what no program writes: values nested
    deeper than DEEPEST, or a number of thousands of digits."""
    text = read_text(file)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}:{error.lineno}: not valid JSON ({error.msg}); fetch or write the file again"
        ) from None
    except (ValueError, RecursionError):
        raise InputError(
            f"{file}: a number too long or values nested too deep; fetch or write the file again"
        ) from None
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    for _ in range(DEEPEST):
        inside = (value.values() if type(value) is dict else value for value in level)
        level = [child for children in inside for child in children if type(child) is dict or type(child) is list]
    if level:
        raise InputError(f"{file}: values nested deeper than {DEEPEST}; fetch or write the file again")
    return value


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file. InputError says where it is not one."""
    value = read_json_value(file)
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object, found {type(value).__name__}; fetch or write the file again")
    return value


def read_vocab_txt(file: Path) -> TokenizerData:
    """BERT's vocab.txt, one entry a line."""
    config_file = file.parent / "tokenizer_config.json"
    config = read_json(config_file) if config_file.exists() else {}
    # Only line feeds end a line: some vocabularies have entries with other separators in them.
    lines = read_text(file).replace("\r\n", "\n").split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines
    if not tokens:
        raise InputError(f"{file}: empty; a vocabulary has one entry a line")
    if repeated := [token for token, count in Counter(tokens).items() if count > 1]:
        where = [index + 1 for index, token in enumerate(tokens) if token == repeated[0]]
        raise InputError(
            f"{file}:{where[1]}: {shortened(repeated[0])} stands on line {where[0]} already; every entry must be "
            "there once"
        )
    _refuse_other_specials(config, config_file)
    vocab = {token: index for index, token in enumerate(tokens)}
    _refuse_added(vocab, get_object(config, "added_tokens_decoder", config_file), file.parent)
    return TokenizerData(vocab, _options(read_flags(config, config_file), {}), file)


def _refuse_added(vocab: Mapping[str, int], told: Mapping[str, Any], directory: Path) -> None:
    """InputError where entries were added beside a vocabulary, which transformers takes out of a text before it is
    split. told: {id: entry}, as tokenizer_config.json has it."""
    older = directory / "added_tokens.json"
    added = [*(read_json(older) if older.exists() else {})]
    added += [str(one["content"]) for one in told.values() if isinstance(one, dict) and "content" in one]
    if others := [token for token in added if token not in vocab and token not in SPECIAL_TOKENS]:
        raise InputError(
            f"{directory}: added token {shortened(others[0])} is not supported; only {', '.join(SPECIAL_TOKENS)} are"
        )


def read_bert_json(content: dict[str, Any], file: Path) -> TokenizerData:
    """A tokenizer.json of BERT's kind."""
    model, rules, splitter = (get_object(content, name, file) for name in ("model", "normalizer", "pre_tokenizer"))
    for what, found, expected in (
        ("normalizer", rules.get("type"), "BertNormalizer"),
        ("normalizer's clean_text", rules.get("clean_text"), True),
        ("pre_tokenizer", splitter.get("type"), "BertPreTokenizer"),
        ("continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##"),
        ("unk_token", model.get("unk_token", "[UNK]"), "[UNK]"),
    ):
        if found != expected:
            raise InputError(f"{file}: {what} {shortened(found)} is not supported; BERT's is {expected!r}")
    known = get_object(model, "vocab", file)
    if not known:
        raise InputError(f"{file}: model has no vocab; fetch or write the file again")
    try:
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    except (KeyError, TypeError):
        raise InputError(f"{file}: added_tokens must be objects with content and id; write the file again") from None
    if others := [token for token in added if token not in SPECIAL_TOKENS and token not in known]:
        raise InputError(
            f"{file}: added token {shortened(others[0])} is not supported; only {', '.join(SPECIAL_TOKENS)} are"
        )
    vocab = check_vocab(known | added, file)
    max_word_length = model.get("max_input_chars_per_word", 100)
    if type(max_word_length) is not int or max_word_length < 1:
        raise InputError(
            f"{file}: max_input_chars_per_word ({shortened(max_word_length)}) must be a whole number of at least 1"
        )
    config_file = file.parent / "tokenizer_config.json"
    config = read_json(config_file) if config_file.exists() else {}
    return TokenizerData(
        vocab,
        {**_options(read_flags(config, config_file), read_flags(rules, file)), "max_word_length": max_word_length},
        file,
    )


def check_vocab(vocab: Mapping[Any, Any], file: Path) -> dict[str, int]:
    """The vocabulary, if all its entries are text and all their ids whole numbers; InputError names one that is not."""
    for token, index in vocab.items():
        if type(index) is not int:
            raise InputError(
                f"{file}: id of {shortened(token)} must be a whole number, found {shortened(index)}; correct it"
            )
        if type(token) is not str or (not token.isascii() and SURROGATES.search(token)):
            raise InputError(f"{file}: entry {shortened(token)} is not text; correct it")
    return dict(vocab)


def _options(config: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """How text is split: by tokenizer_config.json where it says so, as in transformers, else by tokenizer.json's
    rules."""
    return {
        "lowercase": config.get("do_lower_case", rules.get("lowercase", True)),
        "strip_accents": config.get("strip_accents", rules.get("strip_accents")),
        "split_chinese": config.get("tokenize_chinese_chars", rules.get("handle_chinese_chars", True)),
    }


def read_flags(values: Mapping[str, Any], file: Path) -> dict[str, bool]:
    """Those of FLAGS that are true or false; null counts as not there. InputError where one is anything else."""
    there = {name: values[name] for name in FLAGS if values.get(name) is not None}
    if wrong := [name for name, value in there.items() if type(value) is not bool]:
        raise InputError(f"{file}: {wrong[0]} ({shortened(there[wrong[0]])}) must be true or false; correct it")
    return there


def get_object(content: dict[str, Any], name: str, file: Path) -> dict[str, Any]:
    """The object of this name inside another; an empty one where there is none."""
    value = content.get(name) or {}
    if not isinstance(value, dict):
        raise InputError(f"{file}: {name} must be a JSON object, found {type(value).__name__}; write the file again")
    return value


def _refuse_other_specials(config: dict[str, Any], file: Path) -> None:
    for token in SPECIAL_TOKENS:
        name = f"{token[1:-1].lower()}_token"
        given = config.get(name, token)
        given = given.get("content", token) if isinstance(given, dict) else given
        if given not in (token, None):
            raise InputError(f"{file}: {name} {shortened(given)} is not supported; BERT's is {token!r}")


def save(
    path: str | PathLike[str], tokens: Sequence[str], splitter: Splitter, max_word_length: int, longest_input: int,
    segments: int,
) -> None:  # fmt: skip
    """Write the three files into a directory (made if need be). tokens: the vocabulary in the order of its ids.

    longest_input: tokens the model reads, for transformers, which cuts there when asked to truncate. segments: how many
    it knows; of fewer than two transformers tells it none.
    """
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (  # vocab.txt, which does not say how a text is read, last
        ("tokenizer_config.json", _config(splitter, longest_input, segments)),
        ("tokenizer.json", _json(tokens, splitter, max_word_length, min(segments - 1, 1) if segments else 0)),
    ):
        write_atomic(directory / name, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    write_atomic(directory / "vocab.txt", "".join(f"{token}\n" for token in tokens))


def _config(splitter: Splitter, longest_input: int, segments: int) -> dict[str, Any]:
    inputs = {"model_input_names": ["input_ids", "attention_mask"]} if segments < 2 else {}
    return {
        **inputs,
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": splitter.lowercase,
        "strip_accents": splitter.strip_accents,
        "tokenize_chinese_chars": splitter.split_chinese,
        "model_max_length": longest_input,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }


def _json(tokens: Sequence[str], splitter: Splitter, max_word_length: int, second: int) -> dict[str, Any]:
    vocab = {token: index for index, token in enumerate(tokens)}
    ids = {token: vocab[token] for token in SPECIAL_TOKENS}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **plain} for token, index in sorted(ids.items(), key=lambda entry: entry[1])
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": splitter.split_chinese,
            "strip_accents": splitter.strip_accents,
            "lowercase": splitter.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": second}}, special("[SEP]", second)],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": max_word_length,
            "vocab": vocab,
        },
    }
