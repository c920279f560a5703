"""What a pre-training run reads: a tokenizer given, remembered or learned, and its corpus as a token store."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bothways.batching import token_batches
from bothways.corpus import cache
from bothways.corpus.documents import Corpus, mark_held_out, skipped_summary
from bothways.corpus.encode import num_cores
from bothways.corpus.segments import ranges
from bothways.corpus.store import DocumentReader, TokenStore, open_or_build
from bothways.data.datasets import HUB_PREFIX
from bothways.errors import InputError
from bothways.io import atomic_directory, remove_leftovers
from bothways.log import logger
from bothways.settings import Pretrain
from bothways.tables_in_memory import MemoryTable, TableSource
from bothways.tokenizer.fast import BertBackend
from bothways.tokenizer.learn import count_words
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes

HELD_OUT_EVERY = 20  # documents
UNKNOWN = 0.01  # share of unknown words from which on it is said
LEAST = 3  # times a word must stand in the text to become an entry


@dataclass(frozen=True)
class Text:
    """Stores with the numbers of the documents to train on and to measure on; facts: about them, for bothways.json."""

    tokenizer: Tokenizer
    store: TokenStore
    training: np.ndarray
    unseen: TokenStore
    heldout: np.ndarray
    facts: dict[str, Any]

    @cached_property  # the whole store is read for it, by the model's bias and by the baseline
    def frequencies(self) -> np.ndarray:
        """How often each entry of the vocabulary stands in the training text."""
        counts_V = _counted(self.store.ids, len(self.tokenizer))
        if self.unseen is self.store:
            bounds = self.store.sentences[self.store.documents]
            starts, ends = bounds[self.heldout], bounds[self.heldout + 1]
            for part in token_batches(range(len(starts)), ends - starts, 1 << 22):
                where = ranges(starts[part], ends[part])
                counts_V -= _counted(self.store.ids[where], len(self.tokenizer))
        return counts_V

    @property
    def num_tokens(self) -> int:
        """Of the training text."""
        return _tokens(self.store, self.training)

    @property
    def unknown(self) -> float:
        """Of the training text's tokens, the share that the vocabulary has no entry for."""
        return float(self.frequencies[self.tokenizer.unknown_id] / max(1, self.frequencies.sum()))


def _counted(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    counts_V = np.zeros(vocab_size, np.int64)
    for start in range(0, len(ids), 1 << 24):  # in parts, since a store may not fit in memory
        counts_V += np.bincount(ids[start : start + (1 << 24)], minlength=vocab_size)
    return counts_V


def corpora(settings: Pretrain) -> tuple[Corpus, Corpus | None]:
    """The text to train on and, if it is given, that to measure on. InputError where files are missing."""

    def corpus(paths: tuple[TableSource, ...]) -> Corpus:
        found = Corpus(paths, settings.documents, settings.text_column, settings.on_error, settings.encoding)
        found.files()
        return found

    text, other = corpus(settings.corpus), corpus(settings.heldout) if settings.heldout else None
    if other:
        known = text.sources()
        if both := [source for key, source in other.sources().items() if key in known]:
            raise InputError(f"{both[0]}: is training text too, so that figures would be too good; hold out other text")
    return text, other


def read(settings: Pretrain, tokenizer: Tokenizer) -> Text:
    """The corpus as tokens, from where it was read before if nothing has changed."""
    corpus, other = corpora(settings)
    store, facts = _stored(settings, corpus, tokenizer)
    unseen, unseen_facts = (store, facts) if other is None else _stored(settings, other, tokenizer)
    numbers = np.arange(store.num_documents)
    if other is None:
        heldout = numbers[_are_held_out(len(numbers))]
        training = numbers[~_are_held_out(len(numbers))]
    else:
        training, heldout = numbers, np.arange(unseen.num_documents)
    for one in filter(None, (corpus, other)):
        if left_out := one.left_out():
            logger.info(left_out)
    logger.info(
        f"training text: {_tokens(store, training):,} tokens in {len(training):,} documents; held out: "
        f"{_tokens(unseen, heldout):,} in {len(heldout):,}"
    )
    data = {
        "train": {**facts, "documents": len(training), "tokens": _tokens(store, training)},
        "heldout": {**unseen_facts, "documents": len(heldout), "tokens": _tokens(unseen, heldout)},
    }
    text = Text(tokenizer, store, training, unseen, heldout, {"data": data})
    if text.unknown > UNKNOWN:
        way = "" if settings.from_checkpoint else "; learn one with more characters: bothways vocab --alphabet"
        logger.info(f"{text.unknown:.1%} of the training text are words that the vocabulary does not know{way}")
    return text


def _tokens(store: TokenStore, documents: np.ndarray) -> int:
    return int(np.diff(store.sentences[store.documents])[documents].sum())


def _are_held_out(number: int) -> np.ndarray:
    """Every 20th document; of fewer, the last, as `held_out` says while it streams."""
    if number == 1:
        raise InputError("the corpus is one document, so none can be held out; separate documents or give --heldout")
    every = min(HELD_OUT_EVERY, number)
    are: np.ndarray = (np.arange(number) + 1) % every == 0
    return are


def _said(path: TableSource | str) -> str:
    """A path as the notes of a store have it."""
    if isinstance(path, MemoryTable):
        return repr(path)
    return str(path) if str(path).startswith(HUB_PREFIX) else str(Path(path).absolute())


def _stored(settings: Pretrain, corpus: Corpus, tokenizer: Tokenizer) -> tuple[TokenStore, dict[str, Any]]:
    skipped: Counter[str] = Counter()
    paths = [*map(_said, corpus.paths)]
    folder = settings.token_store or cache.cache_directory() / "stores"
    built = open_or_build(
        folder, corpus.fingerprint(), lambda: corpus.documents(skipped), tokenizer,
        language=settings.language, processes=settings.processes, drop_duplicates=settings.drop_duplicates,
        notes=lambda: {"skipped": dict(skipped), "corpus": paths},
    )  # fmt: skip
    if not built.reused and settings.token_store is None:
        size = sum(kept.size for kept in cache.cached_stores(folder))
        if size > cache.LARGE_BYTES:
            logger.info(f"the token stores in {folder} take {size / 1e9:.1f} GB; bothways cache lists and deletes them")
    left_out = Counter(built.notes["skipped"])
    if left_out:
        logger.info(skipped_summary(left_out))
    if built.duplicates:
        logger.info(f"left out {built.duplicates:,} documents that stood there before")
    facts = {"fingerprint": built.store.fingerprint, "skipped": left_out.total(), "duplicates": built.duplicates}
    return built.store, facts


def tokenizer_of(settings: Pretrain, directory: Path, processes: Processes, given: Tokenizer | None) -> Tokenizer:
    """The one given, or, where it is to be extended or there is none, one made from the training text into the run."""
    if settings.from_checkpoint and not given:
        raise InputError(
            f"{settings.from_checkpoint}: has no tokenizer files; put its tokenizer.json or vocab.txt beside it"
        )
    if given and not settings.extend_vocab:
        return given
    own = directory / "tokenizer"
    if processes.leads and not (own / "tokenizer_config.json").exists():
        texts, workers = _training_texts(settings), settings.processes or num_cores()
        if given:
            tokenizer = extended(given, texts, settings.extend_vocab, workers)
            new = tokenizer.tokens[len(given) :]
            told = f"{len(new):,} entries more: {', '.join(new[:5])}, ..." if new else "no word to add was found"
        else:
            tokenizer = Tokenizer.learn(
                texts, settings.vocab_size, settings.lowercase, workers, strip_accents=settings.strip_accents
            )
            told = f"learned a vocabulary of {len(tokenizer):,} entries"
        remove_leftovers(own)
        with atomic_directory(own, marker="tokenizer_config.json") as beside:
            tokenizer.save(beside)
        logger.info(told)
    processes.wait()
    return Tokenizer.load(own)


def extended(tokenizer: Tokenizer, texts: Iterable[str], number: int, processes: int = 1) -> Tokenizer:
    """The tokenizer with at most `number` more entries: the text's most frequent words that it reads in pieces."""
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(
            f"extend_vocab ({number}): only a WordPiece vocabulary can be extended, as BERT's is; leave it 0"
        )
    broken = [
        (-count, word) for word, count in count_words(texts, tokenizer.backend.splitter, processes).items()
        if count >= LEAST and word not in tokenizer.vocab and tokenizer.unknown_id not in tokenizer.ids(word)
    ]  # fmt: skip
    more = [word for _, word in sorted(broken)[:number]]
    return Tokenizer(
        {**tokenizer.vocab, **{word: index for index, word in enumerate(more, len(tokenizer))}},
        **tokenizer.backend.rules,
    )  # fmt: skip


def _training_texts(settings: Pretrain) -> Iterator[str]:
    corpus, other = corpora(settings)
    texts: Iterable[str] = DocumentReader(corpus.documents(), settings.drop_duplicates, quiet=True)
    return (
        iter(texts)
        if other
        else (text for text, is_held_out in mark_held_out(texts, HELD_OUT_EVERY) if not is_held_out)
    )
