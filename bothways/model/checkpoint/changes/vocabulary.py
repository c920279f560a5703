"""Fewer entries in the vocabulary of a model: those that some texts need."""

import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from bothways.errors import InputError
from bothways.model.checkpoint.changes.cut import copy_weights
from bothways.model.checkpoint.contents import Checkpoint, empty_model
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.text.tokenizer.wordpiece import CONTINUATION

ALPHABET = string.ascii_letters + string.digits  # always kept, at the start and inside of words


def cut_vocabulary(source: Checkpoint, words: Mapping[str, int]) -> Checkpoint:
    """A checkpoint with only the entries that these words need, and all single characters; texts of these words have
    the same pieces and the same hidden states.

    InputError if the vocabulary is not WordPiece."""
    tokenizer, config = source.need_tokenizer(), source.model.config
    smaller = reduce_vocabulary(tokenizer, words)
    ids_V = torch.tensor([tokenizer.vocab[token] for token in smaller.tokens])
    model = empty_model(source.model, config.replace(vocab_size=len(smaller), pad_token_id=smaller.pad_id))
    copy_weights(source.model, model, range(config.num_hidden_layers), ids_V)
    return replace(source, model=model, tokenizer=smaller)


def reduce_vocabulary(tokenizer: Tokenizer, words: Mapping[str, int], size: int | None = None) -> Tokenizer:
    """A tokenizer with the `size` most frequent entries of a WordPiece vocabulary, in their order; None: all that
    occur.

    words: count of each word of the text. Special and added tokens, Latin letters and digits always stay, and without a
    size every single character, so that a word whose entry is gone is split into smaller pieces instead of becoming
    [UNK].
    """
    check_word_pieces(tokenizer, f"vocab_size ({size})")
    counts: Counter[int] = Counter()
    for word, count in words.items():
        for piece in tokenizer.ids(word):
            counts[piece] += count
    assert isinstance(tokenizer.backend, BertBackend)
    needed = {*tokenizer.special_ids, *(tokenizer.vocab[token.content] for token in tokenizer.backend.added)}
    needed |= {
        index
        for index, char in enumerate(token.removeprefix(CONTINUATION) for token in tokenizer.tokens)
        if len(char) == 1 and (size is None or char in ALPHABET)
    }
    size = len(tokenizer) if size is None else size
    if size < len(needed):
        raise InputError(f"vocab_size ({size}) must be at least {len(needed)}: special tokens, letters and digits")
    ranked = sorted(counts.keys() - needed, key=lambda index: (-counts[index], index))
    kept = sorted(needed.union(ranked[: size - len(needed)]))
    return Tokenizer({tokenizer.tokens[index]: new for new, index in enumerate(kept)}, **tokenizer.backend.rules)


def check_word_pieces(tokenizer: Tokenizer, setting: str) -> None:
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"{setting}: only WordPiece vocabularies can be reduced; leave it out")
