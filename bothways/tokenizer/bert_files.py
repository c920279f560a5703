"""BERT tokenizer files as in transformers: vocab.txt, tokenizer.json and its config.

formats.py locates tokenizer files and reads those of other encoders.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from bothways.errors import InputError
from bothways.io import SURROGATES, get_object, read_json, read_text, write_atomic
from bothways.tokenizer.basic import Splitter
from bothways.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS

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


@dataclass(frozen=True)
class TokenizerData:
    """The content of tokenizer files: vocabulary, arguments of `Tokenizer`, and the file they come from."""

    vocab: dict[str, int]
    options: dict[str, Any]
    file: Path


def read_vocab_txt(file: Path) -> TokenizerData:
    """Read BERT's vocab.txt, one entry per line."""
    config_file = file.parent / "tokenizer_config.json"
    config = read_json(config_file) if config_file.exists() else {}
    # Only line feeds separate lines: some vocabularies have entries with other separators.
    lines = read_text(file).replace("\r\n", "\n").split("\n")
    tokens = lines[:-1] if lines[-1] == "" else lines
    if not tokens:
        raise InputError(f"{file}: empty; a vocabulary has one entry per line")
    if repeated := [token for token, count in Counter(tokens).items() if count > 1]:
        lines_of_token = [index + 1 for index, token in enumerate(tokens) if token == repeated[0]]
        raise InputError(
            f"{file}:{lines_of_token[1]}: {short_repr(repeated[0])} repeats line {lines_of_token[0]}; each entry must "
            "be unique"
        )
    _reject_other_special_tokens(config, config_file)
    vocab = {token: index for index, token in enumerate(tokens)}
    _reject_added_tokens(vocab, get_object(config, "added_tokens_decoder", config_file), file.parent)
    return TokenizerData(vocab, _options(read_flags(config, config_file), {}), file)


def _reject_added_tokens(vocab: Mapping[str, int], decoder: Mapping[str, Any], directory: Path) -> None:
    """InputError for tokens that are added to a vocabulary: transformers extracts them before splitting a text.

    decoder: added_tokens_decoder of tokenizer_config.json, {id: entry}.
    """
    older_file = directory / "added_tokens.json"
    added = [*(read_json(older_file) if older_file.exists() else {})]
    added += [str(entry["content"]) for entry in decoder.values() if isinstance(entry, dict) and "content" in entry]
    if unsupported := [token for token in added if token not in vocab and token not in SPECIAL_TOKENS]:
        raise InputError(
            f"{directory}: added token {short_repr(unsupported[0])} is not supported; use {', '.join(SPECIAL_TOKENS)}"
        )


def read_bert_json(content: dict[str, Any], file: Path) -> TokenizerData:
    """Parse BERT's tokenizer.json."""
    model, rules, splitter = (get_object(content, name, file) for name in ("model", "normalizer", "pre_tokenizer"))
    for name, value, expected in (
        ("normalizer", rules.get("type"), "BertNormalizer"),
        ("normalizer's clean_text", rules.get("clean_text"), True),
        ("pre_tokenizer", splitter.get("type"), "BertPreTokenizer"),
        ("continuing_subword_prefix", model.get("continuing_subword_prefix", "##"), "##"),
        ("unk_token", model.get("unk_token", "[UNK]"), "[UNK]"),
    ):
        if value != expected:
            raise InputError(f"{file}: {name} {short_repr(value)} is not supported; BERT's is {expected!r}")
    entries = get_object(model, "vocab", file)
    if not entries:
        raise InputError(f"{file}: model has no vocab; download the file again")
    try:
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    except (KeyError, TypeError):
        raise InputError(f"{file}: added_tokens must be objects with content and id") from None
    if unsupported := [token for token in added if token not in SPECIAL_TOKENS and token not in entries]:
        raise InputError(
            f"{file}: added token {short_repr(unsupported[0])} is not supported; use {', '.join(SPECIAL_TOKENS)}"
        )
    vocab = check_vocab(entries | added, file)
    max_word_length = model.get("max_input_chars_per_word", 100)
    if type(max_word_length) is not int or max_word_length < 1:
        raise InputError(
            f"{file}: max_input_chars_per_word ({short_repr(max_word_length)}) must be a whole number of at least 1"
        )
    config_file = file.parent / "tokenizer_config.json"
    config = read_json(config_file) if config_file.exists() else {}
    return TokenizerData(
        vocab,
        {**_options(read_flags(config, config_file), read_flags(rules, file)), "max_word_length": max_word_length},
        file,
    )


def check_vocab(vocab: Mapping[Any, Any], file: Path) -> dict[str, int]:
    """The vocabulary. InputError if an entry is not text or an id is not a whole number."""
    for token, index in vocab.items():
        if type(index) is not int:
            raise InputError(f"{file}: id of {short_repr(token)} must be a whole number, found {short_repr(index)}")
        if type(token) is not str or (not token.isascii() and SURROGATES.search(token)):
            raise InputError(f"{file}: entry {short_repr(token)} is not text")
    return dict(vocab)


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
        value = value.get("content", token) if isinstance(value, dict) else value
        if value not in (token, None):
            raise InputError(f"{file}: {name} {short_repr(value)} is not supported; BERT's is {token!r}")


def save(
    path: str | PathLike[str],
    tokens: Sequence[str],
    splitter: Splitter,
    max_word_length: int,
    max_length: int,
    segments: int,
) -> None:
    """Write the three files into a directory, which is created if necessary. tokens: the vocabulary in id order.

    max_length: length at which transformers truncates on request. segments: number of segment types of the model; below
    2, transformers does not return token_type_ids.
    """
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (  # vocab.txt last, since without the others it is ambiguous
        ("tokenizer_config.json", _config(splitter, max_length, segments)),
        ("tokenizer.json", _json(tokens, splitter, max_word_length, min(segments - 1, 1) if segments else 0)),
    ):
        write_atomic(directory / name, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    write_atomic(directory / "vocab.txt", "".join(f"{token}\n" for token in tokens))


def _config(splitter: Splitter, max_length: int, segments: int) -> dict[str, Any]:
    inputs = {"model_input_names": ["input_ids", "attention_mask"]} if segments < 2 else {}
    return {
        **inputs,
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": splitter.lowercase,
        "strip_accents": splitter.strip_accents,
        "tokenize_chinese_chars": splitter.split_chinese,
        "model_max_length": max_length,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }


def _json(tokens: Sequence[str], splitter: Splitter, max_word_length: int, second_segment: int) -> dict[str, Any]:
    vocab = {token: index for index, token in enumerate(tokens)}
    ids = {token: vocab[token] for token in SPECIAL_TOKENS}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **flags} for token, index in sorted(ids.items(), key=lambda entry: entry[1])
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
            "pair": [*single, {"Sequence": {"id": "B", "type_id": second_segment}}, special("[SEP]", second_segment)],
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
