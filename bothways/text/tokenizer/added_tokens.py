"""A vocabulary with the tokens that its tokenizer file and the files beside it add, as transformers merges them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any

from bothways.base.errors import InputError
from bothways.base.io import SURROGATES, Files, get_object
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS, AddedToken

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
