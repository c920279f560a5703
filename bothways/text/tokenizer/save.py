"""Save a tokenizer of BERT's: vocab.txt, tokenizer.json and tokenizer_config.json, as transformers reads them."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from bothways.base.io import write_atomic
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, AddedToken


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
