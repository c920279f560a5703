"""Byte-level BPE (RoBERTa) and Unigram (ALBERT, XLM-RoBERTa), with the `tokenizers` library.

Sources: Radford 2019, section 2.2; Kudo 2018. The tokenizer.json is kept unchanged. Only its model, normalizer and
pre-tokenizer are used to encode text: [PAD] to [MASK] are parsed only on request, and nothing is truncated or padded.
Decoders, special tokens and templates are components of the file.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, needs_package
from bothways.base.io import SURROGATES, to_json, write_atomic
from bothways.text.tokenizer.fast import TokenSpan

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

_EMPTY_MODEL = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
# The symbol for the space before a word: a byte's symbol in byte-level BPE, SentencePiece's in Unigram.
BYTE_LEVEL_SPACE, METASPACE = "Ġ", "▁"
DECODERS = {
    BYTE_LEVEL_SPACE: {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    METASPACE: {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True},
}
ROLES = {  # role -> usual names of the special token; in the order of SPECIAL_TOKENS
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]"),
}

GENERIC_CLASS = "PreTrainedTokenizer"  # transformers' class that uses a tokenizer.json without changes


class LibraryBackend:
    """The counterpart of BertBackend for byte-level BPE and Unigram; token spans exclude the space before a word.

    content: text of a tokenizer.json, without truncation and padding. vocab: its entries, including added ones.
    space_symbol: BYTE_LEVEL_SPACE or METASPACE. config: content of tokenizer_config.json. InputError if the library is
    missing or rejects the content, or if the special tokens around a text are not [CLS] text [SEP].
    """

    has_bos_and_eos = True

    def __init__(self, content: str, vocab: dict[str, int], space_symbol: str, config: dict[str, Any]) -> None:
        self.content, self.vocab, self.space_symbol, self.config = content, vocab, space_symbol, config
        parsed = json.loads(content)
        self.added = {token["content"]: token for token in parsed.get("added_tokens") or []}
        plain = {**parsed, "added_tokens": [], "decoder": parsed.get("decoder") or DECODERS[space_symbol]}
        self._encoders: dict[tuple[str, ...], tuple[Library, dict[int, int]]] = {}
        with library_errors():
            post_processor = load_library({**plain, "model": _EMPTY_MODEL}).post_processor
            cls_id, sep_id, self.num_separators, self.second_segment_id = _inspect_template(post_processor)
            self.special_tokens = self._find_special_tokens(cls_id, sep_id)
            self.library = load_library({**plain, "model": self._deterministic_model(parsed["model"])})
            self.ids("any \U0010fffe")  # raises if the model is damaged

    @property
    def rules(self) -> dict[str, Any]:
        """All options that ids depend on, besides the vocabulary."""
        import tokenizers

        content = sha256(self.content.encode()).hexdigest()
        return {"content": content, "specials": self.special_tokens, "tokenizers": tokenizers.__version__}

    def __reduce__(self) -> tuple[Callable[..., "LibraryBackend"], tuple[str, dict[str, int], str, dict[str, Any]]]:
        return LibraryBackend, (self.content, self.vocab, self.space_symbol, self.config)

    def lowercased(self) -> "LibraryBackend":
        """The same with texts in lower case."""
        content = json.loads(self.content)
        old = content.get("normalizer") or {"type": "Sequence", "normalizers": []}
        steps = old["normalizers"] if old["type"] == "Sequence" else [old]
        content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *steps]}
        config = {**self.config, "tokenizer_class": "PreTrainedTokenizerFast"}  # which keeps the normalizer
        return LibraryBackend(json.dumps(content), self.vocab, self.space_symbol, config)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        library, id_map = self._encoder(tuple(special_tokens))
        try:
            ids = library.encode_batch_fast([prepare(text, leading_space)], add_special_tokens=False)[0].ids
        except BaseException as error:  # such as damaged normalization tables, which only some texts reveal
            raise _to_input_error(error) from None
        return [id_map.get(index, index) for index in ids] if id_map else ids

    def token_spans(
        self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False
    ) -> list[TokenSpan]:
        prepared = prepare(text, leading_space)
        shift = len(prepared) - len(text)
        with library_errors():
            encoding = self._encoder(tuple(special_tokens))[0].encode(prepared, add_special_tokens=False)
        spans = []
        for token, (start, end), word in zip(encoding.tokens, encoding.offsets, encoding.word_ids, strict=True):
            if prepared[start:end] != prepared[start:end].strip():
                start, end = self._trim(prepared, token, start, end)
            spans.append(TokenSpan(max(start - shift, 0), max(end - shift, 0), word or 0))
        return spans

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        """The text of these tokens. clean_up_spaces has no effect, since tokens include the spaces of the text."""
        with library_errors():
            return str(self.library.decoder.decode(list(tokens)))

    def is_continuation(self, token: str) -> bool:
        return not token.startswith(self.space_symbol)

    def append_token(self, text: str, token: str) -> str:
        """The text with a token appended, without a space if the token continues a word."""
        word = self.text([token], clean_up_spaces=False).removeprefix(" ")
        space = " " * (text != "" and not text[-1].isspace())
        return text.rstrip() + word if self.is_continuation(token) else text + space + word

    def save(self, path: str | PathLike[str], tokens: Sequence[str], max_length: int, segments: int) -> None:
        """Write tokenizer.json and tokenizer_config.json; for BPE also vocab.json and merges.txt."""
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        content = json.loads(self.content)
        files = {
            "tokenizer.json": to_json(content),
            "tokenizer_config.json": to_json(self._config(max_length, segments), 1),
        }
        if self.space_symbol == BYTE_LEVEL_SPACE:
            merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"])
            files["vocab.json"] = json.dumps({token: index for index, token in enumerate(tokens)}, ensure_ascii=False)
            files["merges.txt"] = "\n".join(["#version: 0.2", *merges])
        for name, text in files.items():
            write_atomic(directory / name, text + "\n")

    # --- helpers --------------------------------------------------------------------------------------------------

    def _deterministic_model(self, model: dict[str, Any]) -> dict[str, Any]:
        """The model without dropout, and without special tokens in text.

        Unigram would find special tokens in a text. A leading space in their vocabulary entries prevents this, since no
        word has one.
        """
        if self.space_symbol == BYTE_LEVEL_SPACE:
            return {**model, "dropout": None}
        return {
            **model,
            "vocab": [[" " * (piece in self.special_tokens) + piece, score] for piece, score in model["vocab"]],
        }

    def _find_special_tokens(self, cls_id: int, sep_id: int) -> tuple[str, ...]:
        """The file's names of [PAD] [UNK] [CLS] [SEP] [MASK], then all other special tokens."""
        tokens = {index: token for token, index in self.vocab.items()}
        pad, unknown, _, _, mask = (special_token_name(role, self.config, self.vocab) for role in ROLES)
        cls, sep = (tokens.get(index, f"the entry of id {index}") for index in (cls_id, sep_id))
        named = (pad, unknown, cls, sep, mask)
        return (*named, *(token for token, entry in self.added.items() if entry.get("special") and token not in named))

    def _encoder(self, special_tokens: tuple[str, ...]) -> tuple["Library", dict[int, int]]:
        """An encoder that parses these special tokens, and a map from its ids to ours where they differ."""
        from tokenizers import AddedToken, Tokenizer

        if special_tokens not in self._encoders:
            library = Tokenizer(self.library.model)
            library.normalizer, library.pre_tokenizer = self.library.normalizer, self.library.pre_tokenizer
            named = {*self.special_tokens[: len(ROLES)], *special_tokens}
            ordinary = [token for token in self.added if token not in named]
            special = [{"normalized": False, **self.added.get(token, {"content": token})} for token in special_tokens]
            entries = [*special, *(self.added[token] for token in ordinary)]
            flags = ("single_word", "lstrip", "rstrip", "normalized")
            library.add_tokens(
                [AddedToken(entry["content"], **{flag: bool(entry.get(flag)) for flag in flags}) for entry in entries]
            )
            id_map = {library.token_to_id(entry["content"]) or 0: self.vocab[entry["content"]] for entry in entries}
            self._encoders[special_tokens] = (
                library,
                {theirs: ours for theirs, ours in id_map.items() if theirs != ours},
            )
        return self._encoders[special_tokens]

    def _trim(self, text: str, token: str, start: int, end: int) -> tuple[int, int]:
        """Exclude the spaces at both ends that are part of the token, perhaps all of it."""
        core = token.strip().strip(self.space_symbol)
        leading = token.index(core) if core else len(token)
        for _ in range(min(leading, end - start)):
            start += text[start].isspace()
        for _ in range(min(len(token) - leading - len(core), end - start)):
            end -= text[end - 1].isspace()
        return start, end

    def _config(self, max_length: int, segments: int) -> dict[str, Any]:
        """The content of tokenizer_config.json, with the names of the special tokens."""
        names = dict(zip(ROLES, self.special_tokens, strict=False))
        names |= {"bos": names["cls"], "eos": names["sep"]}
        has_segments = self.second_segment_id if segments > 1 else 0
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",  # uses tokenizer.json without changes
            **self.config,
            "model_input_names": ["input_ids", *["token_type_ids"] * has_segments, "attention_mask"],
            "model_max_length": max_length,
            **{f"{name}_token": token for name, token in names.items()},
        }


@contextmanager
def library_errors() -> Iterator[None]:
    """Convert errors of the library, or its absence, to InputError."""
    try:
        yield
    except ImportError:
        raise needs_package("this tokenizer", "tokenizers", "tokenizers") from None
    except BaseException as error:
        raise _to_input_error(error) from None


def _to_input_error(error: BaseException) -> BaseException:
    """The InputError for an error of the library, which raises plain Exceptions, and panics that are BaseExceptions."""
    is_library_error = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    if isinstance(error, InputError) or not is_library_error:
        return error
    reason = " ".join(str(error).split())[:200]
    return InputError(f"the tokenizers library rejects it ({reason}); download the file again")


def load_library(content: dict[str, Any]) -> "Library":
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(content))


def _inspect_template(post_processor: Any) -> tuple[int, int, int, int]:
    """[CLS] id, [SEP] id, number of separators in a pair, and segment of its second text, found with empty texts."""
    from tokenizers import Encoding

    single = post_processor.process(Encoding()) if post_processor else Encoding()
    pair = post_processor.process(Encoding(), Encoding()) if post_processor else Encoding()
    if len(single) != 2 or set(pair.ids[1:]) != {single.ids[1]} or pair.ids[0] != single.ids[0] or len(pair) < 3:
        raise InputError(
            "post_processor must add one token before a text and one after it, and the latter between the texts of a "
            "pair, as in BERT and RoBERTa"
        )
    return (*single.ids, len(pair) - 2, pair.type_ids[-1])


def prepare(text: str, leading_space: bool = False) -> str:
    """The text as the library accepts it: U+FFFD for lone surrogates, and a leading space if requested."""
    text = text if text.isascii() else SURROGATES.sub("\ufffd", text)
    return " " + text if leading_space and text and text[0] != " " else text


def special_token_name(role: str, config: Mapping[str, Any], vocab: Mapping[str, int]) -> str:
    """The special token for a role such as "mask": that of the config, else a usual name in the vocabulary."""
    token = config.get(f"{role}_token")
    token = token.get("content") if isinstance(token, dict) else token
    return str(token or next((name for name in ROLES[role] if name in vocab), ROLES[role][0]))


def template_processing(
    cls: str, sep: str, ids: Mapping[str, int], *, num_separators: int, second_segment: int
) -> dict[str, Any]:
    """The post_processor that adds [CLS] and [SEP]. num_separators, second_segment: see BertBackend."""

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    start = [special(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*start, special(sep, 0)],
        "pair": [
            *start,
            *[special(sep, 0)] * num_separators,
            {"Sequence": {"id": "B", "type_id": second_segment}},
            special(sep, second_segment),
        ],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (cls, sep)},
    }


def added_tokens(ids: Mapping[str, int], *, mask: str) -> list[dict[str, Any]]:
    """The added_tokens of a tokenizer.json. The mask includes the space before it (lstrip)."""
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    ordered = sorted(ids.items(), key=lambda entry: entry[1])
    return [{"id": index, "content": token, "lstrip": token == mask, **flags} for token, index in ordered]
