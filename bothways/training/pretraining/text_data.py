"""Tokenizer and token store of a pre-training run: training and held-out documents."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.device import num_cores
from bothways.base.errors import InputError, flag, format_count
from bothways.base.io import atomic_directory, remove_leftovers
from bothways.base.log import logger
from bothways.base.paths import as_path
from bothways.base.rng import Purpose, generator
from bothways.settings.tables_in_memory import MemoryTable, TableSource
from bothways.text.batching import token_batches
from bothways.text.corpus import cache
from bothways.text.corpus.array_files import StoredArray
from bothways.text.corpus.copies import copied_documents
from bothways.text.corpus.documents import SHORT, TAIL, Corpus, mark_held_out, skipped_summary
from bothways.text.corpus.sampler import StepSampler, sample_documents
from bothways.text.corpus.sentence_pairs import PairTask, ranges
from bothways.text.corpus.token_store import DocumentReader, TokenStore, open_or_build
from bothways.text.data.datasets import HUB_PREFIX
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.learn import count_words
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes

HELD_OUT_EVERY = 20  # documents
FEW_FILES, FEW_DOCUMENTS = 20, 400  # fewer files are not held out whole; fewer documents can be of very unequal sizes
LEAST, WANTED, MOST = 0.01, 0.05, 0.1  # fraction of the text that is held out
SAME_SOURCES = ", from the same sources as the training text; other text scores worse"
MAX_UNKNOWN = 0.01  # fraction of [UNK] tokens from which a warning is logged
MIN_COUNT = 3  # occurrences of a word to become an entry


@dataclass(frozen=True)
class PretrainingData:
    """Token stores with the indices of training and held-out documents. facts: a record for bothways.json."""

    tokenizer: Tokenizer
    store: TokenStore
    training: np.ndarray
    unseen: TokenStore
    heldout: np.ndarray
    facts: dict[str, Any]

    @cached_property  # reads the whole store
    def frequencies(self) -> np.ndarray:
        """Count of each vocabulary entry in the training text, [V]."""
        counts_V = _count_ids(self.store.ids, len(self.tokenizer))
        if self.unseen is self.store:
            bounds = self.store.sentences[self.store.documents]
            starts, ends = bounds[self.heldout], bounds[self.heldout + 1]
            for part in token_batches(range(len(starts)), ends - starts, 1 << 22):
                where = ranges(starts[part], ends[part])
                counts_V -= _count_ids(self.store.ids[where], len(self.tokenizer))
        return counts_V

    def sampler(self, length: int, pairs: PairTask, *, seed: int, batch_tokens: int) -> StepSampler:
        """Steps of training examples of up to `length` tokens, about `batch_tokens` in each."""
        return StepSampler(
            self.store,
            self.training,
            length=length,
            pairs=pairs,
            seed=seed,
            batch_tokens=batch_tokens,
            separators=self.tokenizer.backend.num_separators,
        )

    @property
    def num_tokens(self) -> int:
        """Tokens of training text."""
        return _tokens(self.store, self.training)

    @property
    def unknown_fraction(self) -> float:
        """Fraction of [UNK] in the training text."""
        return float(self.frequencies[self.tokenizer.unknown_id] / max(1, self.frequencies.sum()))


def _count_ids(ids: StoredArray, vocab_size: int) -> np.ndarray:
    counts_V = np.zeros(vocab_size, np.int64)
    for start in range(0, len(ids), 1 << 24):  # in parts, since a store may not fit in memory
        counts_V += np.bincount(ids[start : start + (1 << 24)], minlength=vocab_size)
    return counts_V


@dataclass(frozen=True)
class Text:
    """The text of a run, and how it becomes a token store.

    heldout: None holds out every HELD_OUT_EVERY-th training document. token_store: None for the user's cache.
    processes: None for one per core. held_out: the held-out text in words; "" for every HELD_OUT_EVERY-th document.
    is_named: whether the user named it.
    """

    training: Corpus
    heldout: Corpus | None
    token_store: Path | None
    language: str
    processes: int | None
    drop_duplicates: bool
    held_out: str = "the text that was named as held out"
    is_named: bool = True


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a run: learned from its text, or that of a tokenizer, with `extend_by` more words.

    size: maximum of a learned one; None goes by the amount of text. strip_accents: None goes by the text.
    """

    tokenizer: Tokenizer | None
    size: int | None
    lowercase: bool
    strip_accents: bool | None
    extend_by: int


def hold_out(text: Text) -> Text:
    """The text, of which a part is held out if no other text is named: whole files, or of fewer than 20, every 20th
    document (`heldout` is None), or if that were more than a tenth of the text, the end of each document.

    InputError if text that is named as held out is also training text."""
    by_key = text.training.sources()
    if text.heldout:
        if both := [source for key, source in text.heldout.sources().items() if key in by_key]:
            raise InputError(f"{both[0]}: is also training text; use other text for {flag('heldout')}")
        return text

    def divided(held_out: str, chosen: Sequence[Path] = ()) -> Text:
        training, heldout = (
            replace(text.training, part=part, held_out=tuple(chosen)) for part in ("training", "heldout")
        )
        return replace(text, training=training, heldout=heldout, held_out=held_out, is_named=False)

    files = [source for source in by_key.values() if isinstance(source, Path)]
    if len(files) == len(by_key) and (chosen := _choose_files(files)):
        names = ", ".join(file.name for file in chosen[:3]) + (", ..." if len(chosen) > 3 else "")
        return divided(f"{len(chosen)} of {len(files)} files ({names})", chosen)
    documents = DocumentReader(text.training.documents(), text.drop_duplicates, quiet=True)
    sizes = np.array([len(document) for document in islice(documents, FEW_DOCUMENTS)])
    is_uneven = 1 < len(sizes) < FEW_DOCUMENTS and sizes[_are_held_out(len(sizes))].sum() > MOST * sizes.sum()
    if is_uneven and sizes[sizes >= SHORT].sum() * TAIL >= SHORT:
        return divided(f"the last {TAIL:.0%} of each document{SAME_SOURCES}")
    return replace(text, held_out="", is_named=False)


def _choose_files(files: Sequence[Path]) -> list[Path]:
    """Random files, the same ones each time, of about 5 % of all bytes, at most 10 %; [] if there are too few."""
    if len(files) < FEW_FILES:
        return []
    sizes, chosen = [file.stat().st_size for file in files], dict[int, int]()
    for index in generator(0, Purpose.HELD_OUT, 3).permutation(len(files)).tolist():
        if 0 < sizes[index] <= MOST * sum(sizes) - sum(chosen.values()):
            chosen[index] = sizes[index]
        if sum(chosen.values()) >= WANTED * sum(sizes):
            break
    return [files[index] for index in sorted(chosen)] if sum(chosen.values()) >= LEAST * sum(sizes) else []


def read_data(text: Text, tokenizer: Tokenizer, *, new_vocabulary: bool = True) -> PretrainingData:
    """The corpus as token ids, from the token store if nothing has changed.

    new_vocabulary: whether another vocabulary could be learned, which a warning about unknown words then advises.
    """
    corpus, other = text.training, text.heldout
    store, facts = _open_store(text, corpus, tokenizer)
    unseen, unseen_facts = (store, facts) if other is None else _open_store(text, other, tokenizer)
    training, heldout = np.arange(store.num_documents), np.arange(unseen.num_documents)
    if other is None:
        are_held_out = _are_held_out(store.num_documents)
        training, heldout = training[~are_held_out], heldout[are_held_out]
    for one in filter(None, (corpus, other if text.is_named else None)):
        if left_out := one.left_out():
            logger.info(left_out)
    tokens, unseen_tokens = _tokens(store, training), _tokens(unseen, heldout)
    every = f"every {HELD_OUT_EVERY}th" if store.num_documents >= HELD_OUT_EVERY else "the last"
    share = "" if text.is_named else f"{unseen_tokens / max(1, tokens + unseen_tokens):.1%} of the text, "
    measured_on = share + (text.held_out or f"{every} document{SAME_SOURCES}")
    logger.info(
        f"training text: {tokens:,} tokens in {format_count(len(training), 'document')}; held out: "
        f"{unseen_tokens:,} in {len(heldout):,} ({measured_on})"
    )
    record = {
        "train": {**facts, "documents": len(training), "tokens": tokens},
        "heldout": {**unseen_facts, "documents": len(heldout), "tokens": unseen_tokens, "measured_on": measured_on},
    }
    data = PretrainingData(tokenizer, store, training, unseen, heldout, {"data": record})
    if copies := warn_of_copies(data):
        record["heldout"]["copies"] = copies
    if data.unknown_fraction > MAX_UNKNOWN:
        advice = "; learn one with more characters: bothways vocab --alphabet" if new_vocabulary else ""
        logger.warning(f"{data.unknown_fraction:.1%} of the training text are unknown words ([UNK]){advice}")
    return data


def warn_of_copies(data: PretrainingData) -> int:
    """The number of held-out documents that are also training text, of which a warning is logged."""
    documents = sample_documents(data.unseen, data.heldout)
    count = len(copied_documents(data.store, data.training, data.unseen, documents, len(data.tokenizer)))
    if count:
        is_other = data.unseen is not data.store
        advice = (
            f"give other text with {flag('heldout')}"
            if is_other
            else f"drop duplicates ({flag('drop_duplicates', True)}), or give {flag('heldout')}"
        )
        logger.warning(
            f"{count:,} of {len(data.heldout):,} held-out documents are also in the training text, at least half of "
            f"each, so the held-out perplexity is too low; {advice}"
        )
    return count


def _tokens(store: TokenStore, documents: np.ndarray) -> int:
    return int(np.diff(store.sentences[store.documents])[documents].sum())


def _are_held_out(count: int) -> np.ndarray:
    """Every 20th document, or the last one if there are fewer; the same choice as `mark_held_out` while streaming."""
    if count == 1:
        raise InputError(f"the corpus is one document, so none can be held out; split it or add {flag('heldout')}")
    every = min(HELD_OUT_EVERY, count)
    are: np.ndarray = (np.arange(count) + 1) % every == 0
    return are


def _path_note(path: TableSource | str) -> str:
    """A corpus path as recorded in the store's notes."""
    if isinstance(path, MemoryTable):
        return repr(path)
    return str(path) if str(path).startswith(HUB_PREFIX) else str(as_path(path).absolute())


def _open_store(text: Text, corpus: Corpus, tokenizer: Tokenizer) -> tuple[TokenStore, dict[str, Any]]:
    skipped: Counter[str] = Counter()
    paths = [*map(_path_note, corpus.paths)]
    folder = text.token_store or cache.cache_directory() / "stores"
    built = open_or_build(
        folder,
        corpus.fingerprint(),
        lambda: corpus.documents(skipped),
        tokenizer,
        language=text.language,
        processes=text.processes,
        drop_duplicates=text.drop_duplicates,
        notes=lambda: {"skipped": dict(skipped), "corpus": paths},
    )
    if not built.reused and text.token_store is None:
        size = sum(kept.size for kept in cache.cached_stores(folder))
        if size > cache.LARGE_BYTES:
            logger.info(f"the token stores in {folder} take {size / 1e9:.1f} GB; bothways cache lists and deletes them")
    left_out = Counter(built.notes["skipped"])
    if left_out:
        logger.info(skipped_summary(left_out))
    if built.duplicates:
        logger.info(f"left out {format_count(built.duplicates, 'duplicate document')}")
    facts = {"fingerprint": built.store.fingerprint, "skipped": left_out.total(), "duplicates": built.duplicates}
    return built.store, facts


def prepare_tokenizer(text: Text, vocabulary: Vocabulary, directory: Path, processes: Processes) -> Tokenizer:
    """The tokenizer of the settings, or a new one: learned or extended, and saved in the run directory."""
    tokenizer, workers = vocabulary.tokenizer, text.processes or num_cores()
    if tokenizer and not vocabulary.extend_by:
        return tokenizer

    def make() -> tuple[Tokenizer, str]:
        if tokenizer:
            longer = extend_vocabulary(tokenizer, _training_texts(text), vocabulary.extend_by, workers)
            new = longer.tokens[len(tokenizer) :]
            added = f"added {format_count(len(new), 'entry', 'entries')}: {', '.join(new[:5])}, ..."
            return longer, added if new else "found no word to add"
        texts, size, accents = _training_texts(text), vocabulary.size, vocabulary.strip_accents
        learned = Tokenizer.learn(texts, size, vocabulary.lowercase, workers, strip_accents=accents)
        return learned, f"learned a vocabulary of {len(learned):,} entries"

    return save_tokenizer_once(directory / "tokenizer", make, processes)


def save_tokenizer_once(target: Path, make: Callable[[], tuple[Tokenizer, str]], processes: Processes) -> Tokenizer:
    """The tokenizer saved in `target`; the main process makes it, and logs a message, if it is not there yet."""
    if processes.is_main_process and not (target / "tokenizer_config.json").exists():
        tokenizer, message = make()
        remove_leftovers(target)
        with atomic_directory(target, marker="tokenizer_config.json") as directory:
            tokenizer.save(directory)
        logger.info(message)
    return processes.broadcast(Tokenizer.load(target) if processes.is_main_process else None)


def count_training_words(text: Text, tokenizer: Tokenizer) -> Counter[str]:
    """Count of each word of the training text, as a WordPiece tokenizer splits and normalizes it."""
    assert isinstance(tokenizer.backend, BertBackend)
    return count_words(_training_texts(text), tokenizer.backend.splitter, text.processes or num_cores())


def extend_vocabulary(tokenizer: Tokenizer, texts: Iterable[str], count: int, processes: int = 1) -> Tokenizer:
    """Add at most `count` entries: the most frequent words that the tokenizer splits into pieces."""
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"extend_vocab ({count}): only WordPiece vocabularies can be extended; leave it 0")
    broken = [
        (-occurrences, word)
        for word, occurrences in count_words(texts, tokenizer.backend.splitter, processes).items()
        if occurrences >= MIN_COUNT and word not in tokenizer.vocab and tokenizer.unknown_id not in tokenizer.ids(word)
    ]
    more = [word for _, word in sorted(broken)[:count]]
    return Tokenizer(
        {**tokenizer.vocab, **{word: index for index, word in enumerate(more, len(tokenizer))}},
        **tokenizer.backend.rules,
    )


def _training_texts(text: Text) -> Iterator[str]:
    texts: Iterable[str] = DocumentReader(text.training.documents(), text.drop_duplicates, quiet=True)
    if text.heldout:
        return iter(texts)
    return (document for document, is_held_out in mark_held_out(texts, HELD_OUT_EVERY) if not is_held_out)
