"""Text as other encoders than BERT read it, through the `tokenizers` library: byte-level BPE (Radford 2019, section
2.2; RoBERTa) and Unigram (Kudo 2018; ALBERT, XLM-RoBERTa).

A tokenizer.json is kept as it was given. What reads a text is made of its model, normalizer and pre-tokenizer alone:
special tokens are found in a text only where they are asked for, and nothing is cut or padded.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.errors import InputError
from bothways.io import to_json, write_atomic
from bothways.tokenizer.fast import TokenSpan
from bothways.tokenizer.json_models import BYTE_LEVEL_SPACE, DECODERS, ROLES, special_token_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

_NO_WORDS = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
_SURROGATE = re.compile("[\ud800-\udfff]")


class LibraryBackend:
    """What BertBackend does, for the other kinds of tokenizer.json; places leave out the space before a word.

    content: the file's text, without truncation and padding. vocab: its entries, added ones among them. mark:
    BYTE_SPACE or SIGN. config: the content of tokenizer_config.json. InputError: the library is missing or cannot read
    it, or a text is framed as in no BERT.
    """

    def __init__(self, content: str, vocab: dict[str, int], mark: str, config: dict[str, Any]) -> None:
        self.content, self.vocab, self.mark, self.config = content, vocab, mark, config
        given = json.loads(content)
        self.added = {token["content"]: token for token in given.get("added_tokens") or []}
        plain = {**given, "added_tokens": [], "decoder": given.get("decoder") or DECODERS[mark]}
        self._readers: dict[tuple[str, ...], tuple[Library, dict[int, int]]] = {}
        with _refusing():
            framing = _opened({**plain, "model": _NO_WORDS}).post_processor
            first, last, self.num_separators, self.second_segment_id = _frame(framing)
            self.special_tokens = self._specials(first, last)
            self.library = _opened({**plain, "model": self._model(given["model"])})
            self.ids("any \U0010fffe")

    @property
    def rules(self) -> dict[str, Any]:
        """All that ids depend on, beside the vocabulary."""
        import tokenizers

        content = sha256(self.content.encode()).hexdigest()
        return {"content": content, "specials": self.special_tokens, "tokenizers": tokenizers.__version__}

    def __reduce__(self) -> tuple[Callable[..., "LibraryBackend"], tuple[str, dict[str, int], str, dict[str, Any]]]:
        return LibraryBackend, (self.content, self.vocab, self.mark, self.config)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        library, own = self._reader(tuple(special_tokens))
        try:
            ids = library.encode_batch_fast([_readable(text, leading_space)], add_special_tokens=False)[0].ids
        except BaseException as error:  # as of a damaged table of normalizations, which some texts alone show
            raise _refusal(error) from None
        return [own.get(index, index) for index in ids] if own else ids

    def token_spans(
        self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False
    ) -> list[TokenSpan]:
        read = _readable(text, leading_space)
        shift = len(read) - len(text)
        with _refusing():
            found = self._reader(tuple(special_tokens))[0].encode(read, add_special_tokens=False)
        token_spans = []
        for token, (start, end), word in zip(found.tokens, found.offsets, found.word_ids, strict=True):
            if read[start:end] != read[start:end].strip():
                start, end = self._trimmed(read, token, start, end)
            token_spans.append(TokenSpan(max(start - shift, 0), max(end - shift, 0), word or 0))
        return token_spans

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        """clean has no use here: the spaces of a text are in its tokens."""
        with _refusing():
            return str(self.library.decoder.decode(list(tokens)))

    def is_continuation(self, token: str) -> bool:
        """Whether an entry of the vocabulary goes on with a word."""
        return not token.startswith(self.mark)

    def append_token(self, before: str, token: str) -> str:
        """What stands before a gap, with an entry in the gap: parted by a space, or closed up if it goes on."""
        word = self.text([token], clean_up_spaces=False).removeprefix(" ")
        space = " " * (before != "" and not before[-1].isspace())
        return before.rstrip() + word if self.is_continuation(token) else before + space + word

    def save(self, path: str | PathLike[str], tokens: Sequence[str], longest_input: int, segments: int) -> None:
        """tokenizer.json and tokenizer_config.json; of BPE also vocab.json and merges.txt. transformers tells a
        model of two segments those of the file."""
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        given = json.loads(self.content)
        files = {
            "tokenizer.json": to_json(given),
            "tokenizer_config.json": to_json(self._config(longest_input, segments), 1),
        }
        if self.mark == BYTE_LEVEL_SPACE:
            merges = (pair if isinstance(pair, str) else " ".join(pair) for pair in given["model"]["merges"])
            files["vocab.json"] = json.dumps({token: index for index, token in enumerate(tokens)}, ensure_ascii=False)
            files["merges.txt"] = "\n".join(["#version: 0.2", *merges])
        for name, text in files.items():
            write_atomic(directory / name, text + "\n")

    # --- inside ---------------------------------------------------------------------------------------------------

    def _model(self, given: dict[str, Any]) -> dict[str, Any]:
        """The file's model, always of one mind. Unigram would find special tokens in a text by itself: they are spelled
        with a space here, which no word has."""
        if self.mark == BYTE_LEVEL_SPACE:
            return {**given, "dropout": None}
        return {
            **given,
            "vocab": [[" " * (piece in self.special_tokens) + piece, score] for piece, score in given["vocab"]],
        }

    def _specials(self, first: int, last: int) -> tuple[str, ...]:
        """[PAD] [UNK] [CLS] [SEP] [MASK], by their names here, and all others that the file calls special."""
        tokens = {index: token for token, index in self.vocab.items()}
        pad, unknown, _, _, mask = (special_token_name(role, self.config, self.vocab) for role in ROLES)
        named = (pad, unknown, *(tokens.get(index, f"the entry of id {index}") for index in (first, last)), mask)
        return (*named, *(token for token, kept in self.added.items() if kept.get("special") and token not in named))

    def _reader(self, special_tokens: tuple[str, ...]) -> tuple["Library", dict[int, int]]:
        """What reads texts in which these special tokens are read, and which of its ids have other numbers here."""
        from tokenizers import AddedToken, Tokenizer

        if special_tokens not in self._readers:
            library = Tokenizer(self.library.model)
            library.normalizer, library.pre_tokenizer = self.library.normalizer, self.library.pre_tokenizer
            ordinary = [token for token in self.added if token not in self.special_tokens]
            found = [{"normalized": False, **self.added.get(token, {"content": token})} for token in special_tokens]
            wanted = [*found, *(self.added[token] for token in ordinary)]
            flags = ("single_word", "lstrip", "rstrip", "normalized")
            library.add_tokens([AddedToken(one["content"], **{f: bool(one.get(f)) for f in flags}) for one in wanted])
            numbers = {library.token_to_id(one["content"]) or 0: self.vocab[one["content"]] for one in wanted}
            self._readers[special_tokens] = (
                library,
                {theirs: ours for theirs, ours in numbers.items() if theirs != ours},
            )
        return self._readers[special_tokens]

    def _trimmed(self, text: str, token: str, start: int, end: int) -> tuple[int, int]:
        """Without the spaces at either end that the token stands for, which may be all of it."""
        core = token.strip().strip(self.mark)
        leading = token.index(core) if core else len(token)
        for _ in range(min(leading, end - start)):
            start += text[start].isspace()
        for _ in range(min(len(token) - leading - len(core), end - start)):
            end -= text[end - 1].isspace()
        return start, end

    def _config(self, longest_input: int, segments: int) -> dict[str, Any]:
        """tokenizer_config.json: what was given, with the names of the special tokens."""
        names = dict(zip(ROLES, self.special_tokens, strict=False))
        names |= {"bos": names["cls"], "eos": names["sep"]}
        told = self.second_segment_id if segments > 1 else 0
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",  # which follows tokenizer.json to the letter
            **self.config,
            "model_input_names": ["input_ids", *["token_type_ids"] * told, "attention_mask"],
            "model_max_length": longest_input,
            **{f"{name}_token": token for name, token in names.items()},
        }


@contextmanager
def _refusing() -> Iterator[None]:
    """InputError where the library is missing or gives up."""
    try:
        yield
    except ImportError:
        raise InputError(
            "this kind of tokenizer needs the tokenizers library: pip install 'bothways[tokenizers]'"
        ) from None
    except BaseException as error:
        raise _refusal(error) from None


def _refusal(error: BaseException) -> BaseException:
    """The InputError for what the library raises: it raises none narrower, and its panics are no Exception."""
    is_theirs = isinstance(error, Exception) or type(error).__name__ == "PanicException"
    if isinstance(error, InputError) or not is_theirs:
        return error
    reason = " ".join(str(error).split())[:200]
    return InputError(f"the tokenizers library cannot read it ({reason}); fetch or write the file again")


def _opened(content: dict[str, Any]) -> "Library":
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(content))


def _frame(rule: Any) -> tuple[int, int, int, int]:
    """The ids before and behind a text, how often the latter parts two, and the segment of the second; from what the
    file puts around empty texts."""
    from tokenizers import Encoding

    single = rule.process(Encoding()) if rule else Encoding()
    pair = rule.process(Encoding(), Encoding()) if rule else Encoding()
    if len(single) != 2 or set(pair.ids[1:]) != {single.ids[1]} or pair.ids[0] != single.ids[0] or len(pair) < 3:
        raise InputError(
            "post_processor must put one token before a text and one behind it, the latter between two as well, as "
            "BERT and RoBERTa do"
        )
    return (*single.ids, len(pair) - 2, pair.type_ids[-1])


def _readable(text: str, leading_space: bool) -> str:
    """Text as the library takes it: with U+FFFD for a lone surrogate, and a space in front if there should be one."""
    text = text if text.isascii() else _SURROGATE.sub("\ufffd", text)
    return " " + text if leading_space and text and text[0] != " " else text
