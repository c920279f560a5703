"""Read the tokenizer files of BERT as in transformers: vocab.txt, tokenizer.json and its config.

formats.py locates tokenizer files, and reads the files of other encoders.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from bothways.base.errors import InputError, shorten
from bothways.base.io import Files, get_object, read_text
from bothways.text.tokenizer.added_tokens import merge_added, read_configs
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS, AddedToken

FLAGS = (  # booleans of tokenizer_config.json and of the normalizer in tokenizer.json
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
    "keep_accents",
    "split_by_punct",
    "add_prefix_space",
    "lowercase",
    "handle_chinese_chars",
)
# The keys that a tokenizer.json of BERT may have; all of them are used, or do not change ids.
JSON_KEYS = (
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "model",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
)
MODEL_KEYS = (
    "type",
    "vocab",
    "unk_token",
    "continuing_subword_prefix",
    "max_input_chars_per_word",
)
NORMALIZER_KEYS = (
    "type",
    "clean_text",
    "handle_chinese_chars",
    "strip_accents",
    "lowercase",
)
TEMPLATE = ["[CLS]", "A", "[SEP]", "[CLS]", "A", "[SEP]", "B", "[SEP]"]  # of a text, and of a pair


@dataclass(frozen=True)
class TokenizerData:
    """The content of tokenizer files.

    vocab: token -> id.
    options: further arguments of `Tokenizer`.
    file: the file they come from.
    """

    vocab: dict[str, int]
    options: dict[str, Any]
    file: Path


def read_vocab_txt(file: Path, files: Files) -> TokenizerData:
    """Read BERT's vocab.txt, one entry per line."""
    # Only line feeds separate lines: some vocabularies have entries with other separators.
    tokens = read_text(file).replace("\r\n", "\n").split("\n")
    if tokens[-1] == "":
        tokens.pop()
    if not tokens:
        raise InputError(f"{file}: empty; a vocabulary has one entry per line")

    repeated = [token for token, count in Counter(tokens).items() if count > 1]
    if repeated:
        first, second, *_ = (number for number, token in enumerate(tokens, 1) if token == repeated[0])
        raise InputError(f"{file}:{second}: {short_repr(repeated[0])} repeats line {first}; each entry must be unique")

    entries = {token: index for index, token in enumerate(tokens)}
    return _data(entries, file, files, added=[], rules={}, options={})


def read_bert_json(content: dict[str, Any], file: Path, files: Files) -> TokenizerData:
    """Parse BERT's tokenizer.json. InputError if anything in it would give other ids than BERT's rules."""
    model = get_object(content, "model", file)
    rules = get_object(content, "normalizer", file)
    splitter = get_object(content, "pre_tokenizer", file)
    template = get_object(content, "post_processor", file)
    _reject_unknown_keys(file, content, JSON_KEYS)
    _reject_unknown_keys(file, model, MODEL_KEYS, owner="model's ")
    _reject_unknown_keys(file, rules, NORMALIZER_KEYS, owner="normalizer's ")
    _reject_unknown_keys(file, splitter, ("type",), owner="pre_tokenizer's ")

    try:
        around = _tokens_around(template) if template else TEMPLATE
    except (AttributeError, TypeError):  # of values of other types
        around = []
    if around != TEMPLATE:
        raise InputError(f"{file}: post_processor must add [CLS] A [SEP] B [SEP], as BERT's does")

    _check_value(file, "normalizer", rules.get("type"), expected="BertNormalizer")
    _check_value(file, "normalizer's clean_text", rules.get("clean_text"), expected=True)
    _check_value(file, "pre_tokenizer", splitter.get("type"), expected="BertPreTokenizer")
    prefix = model.get("continuing_subword_prefix", "##")
    _check_value(file, "continuing_subword_prefix", prefix, expected="##")
    _check_value(file, "unk_token", model.get("unk_token", "[UNK]"), expected="[UNK]")

    entries = get_object(model, "vocab", file)
    if not entries:
        raise InputError(f"{file}: model has no vocab; download the file again")

    max_word_length = model.get("max_input_chars_per_word", 100)
    if type(max_word_length) is not int or max_word_length < 1:
        raise InputError(
            f"{file}: max_input_chars_per_word ({short_repr(max_word_length)}) must be a whole number of at least 1"
        )

    added = content.get("added_tokens") or []
    if not isinstance(added, list):
        raise InputError(f"{file}: added_tokens ({short_repr(added)}) must be a list; download the file again")

    return _data(
        entries,
        file,
        files,
        added=added,
        rules=read_flags(rules, file),
        options={"max_word_length": max_word_length},
    )


def _reject_unknown_keys(
    file: Path,
    values: Mapping[str, Any],
    keys: Sequence[str],
    *,
    owner: str = "",
) -> None:
    for key, value in values.items():
        if key not in keys and value is not None:
            raise InputError(f"{file}: {owner}{shorten(key)} is not a setting of BERT's; remove it")


def _check_value(
    file: Path,
    name: str,
    value: Any,
    *,
    expected: Any,
) -> None:
    if value != expected:
        raise InputError(f"{file}: {name} {short_repr(value)} is not supported; BERT's is {expected!r}")


def _tokens_around(template: Mapping[str, Any]) -> list[str]:
    """The result of a post_processor for a text A, then for the texts A and B."""
    if template.get("type") == "BertProcessing":
        cls, sep = (next(iter(template.get(name) or [""])) for name in ("cls", "sep"))
        return [cls, "A", sep, cls, "A", sep, "B", sep]
    if template.get("type") != "TemplateProcessing":
        return []

    parts = [*(template.get("single") or []), *(template.get("pair") or [])]
    return [str(value.get("id")) for part in parts for value in part.values()]


def _data(
    entries: Mapping[str, Any],
    file: Path,
    files: Files,
    *,
    added: Sequence[Any],
    rules: Mapping[str, bool],
    options: Mapping[str, Any],
) -> TokenizerData:
    """The data of a vocabulary and the files beside it.

    entries: token -> id.
    file: the file they come from.
    files: the directory of the files beside it.
    added: objects with content, id and flags.
    rules: flags of the normalizer.
    options: further arguments of `Tokenizer`.
    """
    config_file = file.with_name("tokenizer_config.json")
    configs = read_configs(files)
    for other, config in configs.items():
        _reject_other_special_tokens(config, other)

    vocab, entry_by_token = merge_added(entries, added, file, configs=configs, files=files)
    usual = {AddedToken(token, special=True) for token in SPECIAL_TOKENS}
    tokens = []
    for entry in entry_by_token.values():
        token = AddedToken(**{field: entry[field] for field in AddedToken._fields})
        if token not in usual:
            tokens.append(token)

    flags = read_flags(configs[config_file], config_file)
    return TokenizerData(
        vocab=vocab,
        options={**_options(flags, rules), **options, "added": tuple(tokens)},
        file=file,
    )


def _options(config: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `Splitter`. tokenizer_config.json takes precedence over tokenizer.json, as in transformers."""
    return {
        "lowercase": config.get("do_lower_case", rules.get("lowercase", True)),
        "strip_accents": config.get("strip_accents", rules.get("strip_accents")),
        "split_chinese": config.get("tokenize_chinese_chars", rules.get("handle_chinese_chars", True)),
    }


def read_flags(values: Mapping[str, Any], file: Path) -> dict[str, bool]:
    """The FLAGS that are present; null counts as missing. InputError for values other than true and false."""
    flags = {name: values[name] for name in FLAGS if values.get(name) is not None}
    if wrong := [name for name, value in flags.items() if type(value) is not bool]:
        raise InputError(f"{file}: {wrong[0]} ({short_repr(flags[wrong[0]])}) must be true or false")
    return flags


def _reject_other_special_tokens(config: dict[str, Any], file: Path) -> None:
    for token in SPECIAL_TOKENS:
        name = f"{token[1:-1].lower()}_token"
        value = config.get(name, token)
        if isinstance(value, dict):
            value = value.get("content", token)
        if value not in (token, None):
            raise InputError(f"{file}: {name} {short_repr(value)} is not supported; BERT's is {token!r}")
