"""Byte-level BPE (RoBERTa) and Unigram (ALBERT, XLM-RoBERTa), with the `tokenizers` library.

Sources: Radford 2019, section 2.2; Kudo 2018. The tokenizer.json is kept unchanged. Only its model, normalizer and
pre-tokenizer are used to encode text: [PAD] to [MASK] are parsed only on request, and nothing is truncated or padded.
Decoders, special tokens and templates are components of the file.
"""

import json
from array import array
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
BYTE_LEVEL_SPACE = "Ġ"  # the symbol for the space before a word in byte-level BPE
METASPACE = "▁"  # the symbol for the space before a word in Unigram
DECODERS = {
    BYTE_LEVEL_SPACE: {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
    METASPACE: {
        "type": "Metaspace",
        "replacement": METASPACE,
        "prepend_scheme": "always",
        "split": True,
    },
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

    content: text of a tokenizer.json, without truncation and padding.
    vocab: its entries, including added ones.
    space_symbol: BYTE_LEVEL_SPACE or METASPACE.
    config: content of tokenizer_config.json.

    InputError if the library is missing or rejects the content, or if the special tokens around a text are not
    [CLS] text [SEP].
    """

    has_bos_and_eos = True

    def __init__(
        self,
        content: str,
        vocab: dict[str, int],
        space_symbol: str,
        config: dict[str, Any],
    ) -> None:
        self.content = content
        self.vocab = vocab
        self.space_symbol = space_symbol
        self.config = config
        self._encoders: dict[tuple[str, ...], tuple[Library, dict[int, int]]] = {}

        parsed = json.loads(content)
        self.added = {token["content"]: token for token in parsed.get("added_tokens") or []}
        decoder = parsed.get("decoder") or DECODERS[space_symbol]
        plain = {**parsed, "added_tokens": [], "decoder": decoder}

        # The special tokens are read from the template, before the model, which depends on them, is built.
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

        return {
            "content": sha256(self.content.encode()).hexdigest(),
            "specials": self.special_tokens,
            "tokenizers": tokenizers.__version__,
        }

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
        prepared = prepare(text, leading_space)
        try:
            # This one computes no offsets.
            ids = library.encode_batch_fast([prepared], add_special_tokens=False)[0].ids
        except BaseException as error:  # such as damaged normalization tables, which only some texts reveal
            raise _to_input_error(error) from None
        return [id_map.get(index, index) for index in ids] if id_map else ids

    def packed_ids(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as the bytes of 32-bit integers."""
        return [array("i", self.ids(text)).tobytes() for text in texts]

    def token_spans(
        self,
        text: str,
        special_tokens: Sequence[str] = (),
        *,
        leading_space: bool = False,
    ) -> list[TokenSpan]:
        prepared = prepare(text, leading_space)
        shift = len(prepared) - len(text)
        with library_errors():
            library, _ = self._encoder(tuple(special_tokens))
            encoding = library.encode(prepared, add_special_tokens=False)

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
        if self.is_continuation(token):
            return text.rstrip() + word
        needs_space = text != "" and not text[-1].isspace()
        return f"{text} {word}" if needs_space else text + word

    def save(
        self,
        path: str | PathLike[str],
        tokens: Sequence[str],
        max_length: int,
        segments: int,
    ) -> None:
        """Write tokenizer.json and tokenizer_config.json; for BPE also vocab.json and merges.txt."""
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)

        content = json.loads(self.content)
        files = {
            "tokenizer.json": to_json(content),
            "tokenizer_config.json": to_json(self._config(max_length, segments), 1),
        }
        if self.space_symbol == BYTE_LEVEL_SPACE:
            ids = {token: index for index, token in enumerate(tokens)}
            merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"])
            files["vocab.json"] = json.dumps(ids, ensure_ascii=False)
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

        vocab = []
        for piece, score in model["vocab"]:
            prefix = " " if piece in self.special_tokens else ""
            vocab.append([prefix + piece, score])
        return {**model, "vocab": vocab}

    def _find_special_tokens(self, cls_id: int, sep_id: int) -> tuple[str, ...]:
        """The file's names of [PAD] [UNK] [CLS] [SEP] [MASK], then all other special tokens."""
        tokens = {index: token for token, index in self.vocab.items()}
        pad, unknown, _, _, mask = (special_token_name(role, self.config, self.vocab) for role in ROLES)
        cls, sep = (tokens.get(index, f"the entry of id {index}") for index in (cls_id, sep_id))
        usual = (pad, unknown, cls, sep, mask)
        others = [token for token, entry in self.added.items() if entry.get("special") and token not in usual]
        return (*usual, *others)

    def _encoder(self, special_tokens: tuple[str, ...]) -> tuple["Library", dict[int, int]]:
        """An encoder that parses these special tokens, and a map from its ids to ours where they differ."""
        if special_tokens not in self._encoders:
            self._encoders[special_tokens] = self._build_encoder(special_tokens)
        return self._encoders[special_tokens]

    def _build_encoder(self, special_tokens: tuple[str, ...]) -> tuple["Library", dict[int, int]]:
        from tokenizers import AddedToken, Tokenizer

        library = Tokenizer(self.library.model)
        library.normalizer = self.library.normalizer
        library.pre_tokenizer = self.library.pre_tokenizer

        # The requested special tokens, then all added tokens that have no role.
        entries = [{"normalized": False, **self.added.get(token, {"content": token})} for token in special_tokens]
        left_out = {*self.special_tokens[: len(ROLES)], *special_tokens}
        entries += [entry for token, entry in self.added.items() if token not in left_out]

        tokens = []
        for entry in entries:
            token = AddedToken(
                entry["content"],
                single_word=bool(entry.get("single_word")),
                lstrip=bool(entry.get("lstrip")),
                rstrip=bool(entry.get("rstrip")),
                normalized=bool(entry.get("normalized")),
            )
            tokens.append(token)
        library.add_tokens(tokens)

        id_map = {}
        for entry in entries:
            theirs = library.token_to_id(entry["content"]) or 0
            id_map[theirs] = self.vocab[entry["content"]]
        return library, {theirs: ours for theirs, ours in id_map.items() if theirs != ours}

    def _trim(
        self,
        text: str,
        token: str,
        start: int,
        end: int,
    ) -> tuple[int, int]:
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
        names["bos"] = names["cls"]
        names["eos"] = names["sep"]

        has_segments = segments > 1 and self.second_segment_id
        inputs = ["input_ids", "token_type_ids", "attention_mask"] if has_segments else ["input_ids", "attention_mask"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",  # uses tokenizer.json without changes
            **self.config,
            "model_input_names": inputs,
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

    is_like_bert = (
        len(single) == 2 and len(pair) >= 3 and pair.ids[0] == single.ids[0] and set(pair.ids[1:]) == {single.ids[1]}
    )
    if not is_like_bert:
        raise InputError(
            "post_processor must add one token before a text and one after it, and the latter between the texts of a "
            "pair, as in BERT and RoBERTa"
        )

    cls_id, sep_id = single.ids
    num_separators = len(pair) - 2
    return cls_id, sep_id, num_separators, pair.type_ids[-1]


def prepare(text: str, leading_space: bool = False) -> str:
    """The text as the library accepts it: U+FFFD for lone surrogates, and a leading space if requested."""
    if not text.isascii():
        text = SURROGATES.sub("\ufffd", text)
    if leading_space and text and text[0] != " ":
        return " " + text
    return text


def special_token_name(role: str, config: Mapping[str, Any], vocab: Mapping[str, int]) -> str:
    """The special token for a role such as "mask": the token of the config, else a usual name in the vocabulary."""
    token = config.get(f"{role}_token")
    if isinstance(token, dict):
        token = token.get("content")
    if token:
        return str(token)

    usual_names = ROLES[role]
    return next((name for name in usual_names if name in vocab), usual_names[0])


def template_processing(
    cls: str,
    sep: str,
    ids: Mapping[str, int],
    *,
    num_separators: int,
    second_segment: int,
) -> dict[str, Any]:
    """The post_processor that adds [CLS] and [SEP].

    cls, sep: the two tokens.
    ids: token -> id.
    num_separators, second_segment: see BertBackend.
    """

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
        "special_tokens": {
            cls: {"id": cls, "ids": [ids[cls]], "tokens": [cls]},
            sep: {"id": sep, "ids": [ids[sep]], "tokens": [sep]},
        },
    }


def added_tokens(ids: Mapping[str, int], *, mask: str) -> list[dict[str, Any]]:
    """The added_tokens of a tokenizer.json. The mask includes the space before it (lstrip)."""
    entries = []
    for token, index in sorted(ids.items(), key=lambda entry: entry[1]):
        entry = {
            "id": index,
            "content": token,
            "lstrip": token == mask,
            "single_word": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        entries.append(entry)
    return entries
