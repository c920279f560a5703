"""BERT tokenizer files as in transformers: vocab.txt, tokenizer.json and its config.

formats.py locates tokenizer files, and reads the files of other encoders.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from bothways.base.errors import InputError, shorten
from bothways.base.io import SURROGATES, Files, get_object, read_text, write_atomic
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, AddedToken

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
EXTRA_KEYS = (
    "additional_special_tokens",
    "extra_special_tokens",
    "model_specific_special_tokens",
)
# Keys of tokenizer_config.json that change ids, with the values that are computed.
CONFIG_VALUES: dict[str, tuple[Any, ...]] = {
    "do_basic_tokenize": (True,),
    "never_split": ([],),
    "split_special_tokens": (False,),
    "truncation_side": ("right",),
    "wordpieces_prefix": ("##",),
}


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


def read_configs(files: Files) -> dict[Path, dict[str, Any]]:
    """The contents of the files with settings beside a vocabulary, empty for those that are missing."""
    return {files.path / name: files.json(name) for name in ("tokenizer_config.json", "special_tokens_map.json")}


def merge_added(
    entries: Mapping[str, Any],
    added: Sequence[Any],
    file: Path,
    *,
    configs: Mapping[Path, Mapping[str, Any]],
    files: Files,
) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """The vocabulary with all added tokens, and the added tokens by their text.

    entries: token -> id.
    added: the added tokens of the file; they come before the tokens of the files beside it.
    file: the file, for messages.
    configs: see `read_configs`.
    files: the directory of the files beside it.

    InputError if an id differs from the id in the vocabulary.
    """
    vocab = dict(entries)
    tokens: dict[str, dict[str, Any]] = {}
    for entry in (*added, *_added_beside(files, configs, vocab)):
        content = entry.get("content") if isinstance(entry, dict) else None
        if type(content) is not str:
            raise InputError(f"{file}: added_tokens must be objects with content and id, found {short_repr(entry)}")

        index = vocab.setdefault(content, entry.get("id", len(vocab)))
        if entry.get("id", index) != index:
            raise InputError(
                f"{file}: added token {short_repr(content)} has the id {short_repr(entry['id'])}, but the vocabulary "
                f"has {short_repr(index)}; correct one of them"
            )

        flags = {flag: bool(entry.get(flag)) for flag in AddedToken._fields[1:]}
        tokens.setdefault(content, {"id": index, "content": content, **flags})
    return check_vocab(vocab, file), tokens


def _added_beside(files: Files, configs: Mapping[Path, Mapping[str, Any]], vocab: Mapping[str, Any]) -> list[Any]:
    """The added tokens in the files beside a vocabulary, in the order of precedence of transformers."""
    entries: list[Any] = []
    specials: list[Any] = []
    for file, config in configs.items():
        for key, values in CONFIG_VALUES.items():
            if config.get(key) not in (None, *values):
                raise InputError(f"{file}: {key} ({short_repr(config[key])}) is not supported; only {values[0]!r}")

        for index, entry in get_object(config, "added_tokens_decoder", file).items():
            # Longer ones are no ids, and reading a number of thousands of digits is an error.
            id_ = int(index) if index.isdecimal() and len(index) < 20 else index
            entries.append({"id": id_, **entry} if isinstance(entry, dict) else entry)
        specials += _special_entries(config, vocab, file)

    special_names = {*SPECIAL_TOKENS, *(entry["content"] for entry in specials)}
    for token, index in files.json("added_tokens.json").items():
        is_special = token in special_names
        entry = {
            "content": token,
            "id": index,
            "special": is_special,
            "normalized": not is_special,
        }
        entries.append(entry)

    return [*entries, *specials]


def _special_entries(config: Mapping[str, Any], vocab: Mapping[str, Any], file: Path) -> list[dict[str, Any]]:
    """The special tokens of a tokenizer_config.json or special_tokens_map.json, besides [PAD] to [MASK].

    Tokens with a role, such as "eos_token", count if they are entries of the vocabulary; the lists of EXTRA_KEYS add
    tokens.
    """
    usual_roles = [token[1:-1].lower() + "_token" for token in SPECIAL_TOKENS]
    values: list[Any] = []
    for key, value in config.items():
        if key.endswith("_token") and key not in usual_roles:
            text = _text_of(value)
            if type(text) is str and text in vocab:
                values.append(value)

    for key in EXTRA_KEYS:
        extra = config.get(key) or []
        if isinstance(extra, dict):
            values += extra.values()
        elif isinstance(extra, list):
            values += extra
        else:
            values.append(extra)

    entries = []
    for value in values:
        if type(_text_of(value)) is not str:
            raise InputError(f"{file}: special token {short_repr(value)} must be text, or an object with content")
        entry = value if isinstance(value, dict) else {"content": value}
        entries.append({**entry, "special": True, "normalized": False})
    return entries


def _text_of(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def check_vocab(vocab: Mapping[Any, Any], file: Path) -> dict[str, int]:
    """The vocabulary. InputError if an entry is not text or an id is not a whole number."""
    # All entries are checked at once; the loop finds the wrong one.
    key_types = {*map(type, vocab)}
    value_types = {*map(type, vocab.values())}
    if key_types == {str} and value_types == {int} and not SURROGATES.search("".join(vocab)):
        return dict(vocab)

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
        if isinstance(value, dict):
            value = value.get("content", token)
        if value not in (token, None):
            raise InputError(f"{file}: {name} {short_repr(value)} is not supported; BERT's is {token!r}")


def save(
    path: str | PathLike[str],
    tokens: Sequence[str],
    splitter: Splitter,
    max_word_length: int,
    max_length: int,
    segments: int,
    added: Sequence[AddedToken] = (),
) -> None:
    """Write the three files into a directory, which is created if necessary.

    path: the directory.
    tokens: the vocabulary in id order.
    splitter: the rules of basic tokenization.
    max_word_length: a word of more characters becomes [UNK].
    max_length: length at which transformers truncates on request.
    segments: number of segment types of the model; below 2, transformers does not return token_type_ids.
    added: tokens that are parsed in every text.
    """
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)

    config = _config(splitter, max_length, segments, added=_entries(tokens, added) if added else [])
    content = _json(
        tokens,
        splitter,
        max_word_length,
        second_segment=1 if segments > 1 else 0,
        added=added,
    )

    # vocab.txt last, since without the others it is ambiguous.
    write_atomic(directory / "tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=1) + "\n")
    write_atomic(directory / "tokenizer.json", json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    write_atomic(directory / "vocab.txt", "".join(f"{token}\n" for token in tokens))


def _entries(tokens: Sequence[str], added: Sequence[AddedToken]) -> list[dict[str, Any]]:
    """The added_tokens of a tokenizer.json."""
    added_by_name = {token: AddedToken(token, special=True) for token in SPECIAL_TOKENS}
    added_by_name |= {token.content: token for token in added}

    entries = []
    for index, token in enumerate(tokens):
        if token in added_by_name:
            entries.append({"id": index, **added_by_name[token]._asdict()})
    return entries


def _config(
    splitter: Splitter,
    max_length: int,
    segments: int,
    *,
    added: list[dict[str, Any]],
) -> dict[str, Any]:
    """The content of tokenizer_config.json."""
    config: dict[str, Any] = {}
    if segments < 2:
        config["model_input_names"] = ["input_ids", "attention_mask"]

    config |= {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": splitter.lowercase,
        "strip_accents": splitter.strip_accents,
        "tokenize_chinese_chars": splitter.split_chinese,
        "model_max_length": max_length,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }

    if added:
        decoder = {}
        for entry in added:
            decoder[str(entry["id"])] = {key: value for key, value in entry.items() if key != "id"}
        config["added_tokens_decoder"] = decoder
    return config


def _json(
    tokens: Sequence[str],
    splitter: Splitter,
    max_word_length: int,
    *,
    second_segment: int,
    added: Sequence[AddedToken],
) -> dict[str, Any]:
    """The content of tokenizer.json."""
    vocab = {token: index for index, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _entries(tokens, added),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": splitter.split_chinese,
            "strip_accents": splitter.strip_accents,
            "lowercase": splitter.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(vocab, second_segment),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": max_word_length,
            "vocab": vocab,
        },
    }


def _template(vocab: Mapping[str, int], second_segment: int) -> dict[str, Any]:
    """The post_processor of a tokenizer.json: the special tokens around a text and a pair."""

    def special(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    single = [special("[CLS]", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": second_segment}}, special("[SEP]", second_segment)],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [vocab["[CLS]"]], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [vocab["[SEP]"]], "tokens": ["[SEP]"]},
        },
    }
