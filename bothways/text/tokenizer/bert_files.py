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

from bothways.base.errors import InputError, shorten
from bothways.base.io import SURROGATES, Files, get_object, read_text, write_atomic
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, AddedToken

FLAGS = (  # booleans of tokenizer_config.json and of the normalizer in tokenizer.json
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "keep_accents", "split_by_punct"),
    *("add_prefix_space", "lowercase", "handle_chinese_chars"),
)
# What a tokenizer.json of BERT may have; all of it is used, or does not change ids.
JSON_KEYS = (
    *("version", "truncation", "padding", "added_tokens", "model"),
    *("normalizer", "pre_tokenizer", "post_processor", "decoder"),
)
MODEL_KEYS = ("type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word")
NORMALIZER_KEYS = ("type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
TEMPLATE = ["[CLS]", "A", "[SEP]", "[CLS]", "A", "[SEP]", "B", "[SEP]"]  # of a text, and of a pair
EXTRA_KEYS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
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
    """The content of tokenizer files: vocabulary, arguments of `Tokenizer`, and the file they come from."""

    vocab: dict[str, int]
    options: dict[str, Any]
    file: Path


def read_vocab_txt(file: Path, files: Files) -> TokenizerData:
    """Read BERT's vocab.txt, one entry per line."""
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
    return _data({token: index for index, token in enumerate(tokens)}, [], {}, {}, file, files)


def read_bert_json(content: dict[str, Any], file: Path, files: Files) -> TokenizerData:
    """Parse BERT's tokenizer.json."""
    names = ("model", "normalizer", "pre_tokenizer", "post_processor")
    model, rules, splitter, template = (get_object(content, name, file) for name in names)
    for name, values, known in (
        ("", content, JSON_KEYS),
        ("model's ", model, MODEL_KEYS),
        ("normalizer's ", rules, NORMALIZER_KEYS),
        ("pre_tokenizer's ", splitter, ("type",)),
    ):
        if unknown := [key for key, value in values.items() if key not in known and value is not None]:
            raise InputError(f"{file}: {name}{shorten(unknown[0])} is not a setting of BERT's; remove it")
    try:
        around = _tokens_around(template) if template else TEMPLATE
    except (AttributeError, TypeError):  # of values of other types
        around = []
    if around != TEMPLATE:
        raise InputError(f"{file}: post_processor must add [CLS] A [SEP] B [SEP], as BERT's does")
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
    max_word_length = model.get("max_input_chars_per_word", 100)
    if type(max_word_length) is not int or max_word_length < 1:
        raise InputError(
            f"{file}: max_input_chars_per_word ({short_repr(max_word_length)}) must be a whole number of at least 1"
        )
    added = content.get("added_tokens") or []
    if not isinstance(added, list):
        raise InputError(f"{file}: added_tokens ({short_repr(added)}) must be a list; download the file again")
    return _data(entries, added, read_flags(rules, file), {"max_word_length": max_word_length}, file, files)


def _tokens_around(template: Mapping[str, Any]) -> list[str]:
    """The result of a post_processor for a text A, then for the texts A and B."""
    if template.get("type") == "BertProcessing":
        cls, sep = (next(iter(template.get(name) or [""])) for name in ("cls", "sep"))
        return [cls, "A", sep, cls, "A", sep, "B", sep]
    known = template.get("type") == "TemplateProcessing"
    parts = [*(template.get("single") or []), *(template.get("pair") or [])] if known else []
    return [str(value.get("id")) for part in parts for value in part.values()]


def _data(
    entries: Mapping[str, Any],
    added: Sequence[Any],
    rules: Mapping[str, bool],
    options: Mapping[str, Any],
    file: Path,
    files: Files,
) -> TokenizerData:
    """The data of a vocabulary and the files beside it. added: objects with content, id and flags."""
    config_file = file.with_name("tokenizer_config.json")
    configs = read_configs(files)
    for other, config in configs.items():
        _reject_other_special_tokens(config, other)
    vocab, every = merge_added(entries, added, file, configs, files)
    tokens = [AddedToken(*(entry[field] for field in AddedToken._fields)) for entry in every.values()]
    usual = {AddedToken(token, special=True) for token in SPECIAL_TOKENS}
    return TokenizerData(
        vocab,
        {
            **_options(read_flags(configs[config_file], config_file), rules),
            **options,
            "added": tuple(token for token in tokens if token not in usual),
        },
        file,
    )


def read_configs(files: Files) -> dict[Path, dict[str, Any]]:
    """The contents of the files with settings beside a vocabulary, empty for those that are missing."""
    return {files.path / name: files.json(name) for name in ("tokenizer_config.json", "special_tokens_map.json")}


def merge_added(
    entries: Mapping[str, Any],
    added: Sequence[Any],
    file: Path,
    configs: Mapping[Path, Mapping[str, Any]],
    files: Files,
) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    """The vocabulary with all added tokens, and these by their text: those of the file, then those of the files beside
    it. configs: see `read_configs`. InputError if an id differs from that of the vocabulary."""
    vocab, tokens = dict(entries), dict[str, dict[str, Any]]()
    for entry in (*added, *_added_beside(files, configs, vocab)):
        if not isinstance(entry, dict) or type(content := entry.get("content")) is not str:
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
            id_ = int(index) if index.isdecimal() and len(index) < 20 else index
            entries.append({"id": id_, **entry} if isinstance(entry, dict) else entry)
        specials += _special_entries(config, vocab, file)
    names = {*SPECIAL_TOKENS, *(entry["content"] for entry in specials)}
    for token, index in files.json("added_tokens.json").items():
        special = token in names
        entries.append({"content": token, "id": index, "special": special, "normalized": not special})
    return [*entries, *specials]


def _special_entries(config: Mapping[str, Any], vocab: Mapping[str, Any], file: Path) -> list[dict[str, Any]]:
    """The special tokens that a tokenizer_config.json or special_tokens_map.json names, if they are entries of the
    vocabulary, and those that it adds."""
    roles = [token[1:-1].lower() + "_token" for token in SPECIAL_TOKENS]
    named = [value for key, value in config.items() if key.endswith("_token") and key not in roles]
    values = [value for value in named if type(text := _text_of(value)) is str and text in vocab]
    for key in EXTRA_KEYS:
        more = config.get(key) or []
        values += more.values() if isinstance(more, dict) else more if isinstance(more, list) else [more]
    if wrong := [value for value in values if type(_text_of(value)) is not str]:
        raise InputError(f"{file}: special token {short_repr(wrong[0])} must be text, or an object with content")
    entries = [value if isinstance(value, dict) else {"content": value} for value in values]
    return [{**entry, "special": True, "normalized": False} for entry in entries]


def _text_of(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def check_vocab(vocab: Mapping[Any, Any], file: Path) -> dict[str, int]:
    """The vocabulary. InputError if an entry is not text or an id is not a whole number."""
    kinds = {*map(type, vocab)}, {*map(type, vocab.values())}
    if kinds == ({str}, {int}) and not SURROGATES.search("".join(vocab)):
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
    added: Sequence[AddedToken] = (),
) -> None:
    """Write the three files into a directory, which is created if necessary. tokens: the vocabulary in id order.

    max_length: length at which transformers truncates on request. segments: number of segment types of the model; below
    2, transformers does not return token_type_ids.
    """
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (  # vocab.txt last, since without the others it is ambiguous
        ("tokenizer_config.json", _config(splitter, max_length, segments, _entries(tokens, added) if added else [])),
        ("tokenizer.json", _json(tokens, splitter, max_word_length, min(segments - 1, 1) if segments else 0, added)),
    ):
        write_atomic(directory / name, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    write_atomic(directory / "vocab.txt", "".join(f"{token}\n" for token in tokens))


def _entries(tokens: Sequence[str], added: Sequence[AddedToken]) -> list[dict[str, Any]]:
    """The added_tokens of a tokenizer.json."""
    every = {token: AddedToken(token, special=True) for token in SPECIAL_TOKENS}
    every |= {token.content: token for token in added}
    return [{"id": index, **every[token]._asdict()} for index, token in enumerate(tokens) if token in every]


def _config(splitter: Splitter, max_length: int, segments: int, added: list[dict[str, Any]]) -> dict[str, Any]:
    decoder = {str(entry["id"]): {key: value for key, value in entry.items() if key != "id"} for entry in added}
    inputs = {"model_input_names": ["input_ids", "attention_mask"]} if segments < 2 else {}
    return {
        **inputs,
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": splitter.lowercase,
        "strip_accents": splitter.strip_accents,
        "tokenize_chinese_chars": splitter.split_chinese,
        "model_max_length": max_length,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
        **({"added_tokens_decoder": decoder} if decoder else {}),
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
            token: {"id": token, "ids": [vocab[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")
        },
    }


def _json(
    tokens: Sequence[str], splitter: Splitter, max_word_length: int, second_segment: int, added: Sequence[AddedToken]
) -> dict[str, Any]:
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
