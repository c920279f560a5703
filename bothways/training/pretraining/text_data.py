"""Tokenizer and token store of a pre-training run: training and held-out documents."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from bothways.text.rows.datasets import HUB_PREFIX
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.learn import count_words
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes

HELD_OUT_EVERY = 20  # documents
FEW_FILES = 20  # fewer files are not held out whole
FEW_DOCUMENTS = 400  # fewer documents can be of very unequal sizes
LEAST = 0.01  # fraction of the text that is held out as whole files
WANTED = 0.05
MOST = 0.1
SAME_SOURCES = ", from the same sources as the training text; other text scores worse"
MAX_UNKNOWN = 0.01  # fraction of [UNK] tokens from which a warning is logged
MIN_COUNT = 3  # occurrences of a word to become an entry
COUNTED_IDS = 1 << 24  # ids that are counted at once
HELD_OUT_IDS = 1 << 22  # held-out ids that are counted at once


@dataclass(frozen=True)
class PretrainingData:
    """Token stores with the indices of training and held-out documents.

    tokenizer: whose ids the stores have.
    store: the training text.
    training: indices of its training documents.
    unseen: the held-out text; may be the same store.
    heldout: indices of its held-out documents.
    facts: a record for bothways.json.
    """

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
        if self.unseen is not self.store:
            return counts_V

        # The whole store is read in one go; the held-out documents in it are few, and their counts are taken off.
        bounds = self.store.sentences[self.store.documents]
        starts = bounds[self.heldout]
        ends = bounds[self.heldout + 1]
        for part in token_batches(range(len(starts)), ends - starts, HELD_OUT_IDS):
            rows = ranges(starts[part], ends[part])
            counts_V -= _count_ids(self.store.ids[rows], len(self.tokenizer))
        return counts_V

    def sampler(self, length: int, pairs: PairTask, *, seed: int, batch_tokens: int) -> StepSampler:
        """Steps of training examples.

        length: most tokens of an example.
        pairs: the task of sentence pairs, if any.
        seed: of the order of the examples.
        batch_tokens: about as many tokens are in a step.
        """
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
    # In parts, since a store may not fit in memory.
    for start in range(0, len(ids), COUNTED_IDS):
        counts_V += np.bincount(ids[start : start + COUNTED_IDS], minlength=vocab_size)
    return counts_V


@dataclass(frozen=True)
class Text:
    """The text of a run, and how it becomes a token store.

    training: the corpus of the run.
    heldout: None holds out every HELD_OUT_EVERY-th training document.
    token_store: its folder; None: in the user's cache.
    language: for the division into sentences.
    processes: that encode the text; None: one per core.
    drop_duplicates: whether equal documents are read once.
    held_out: the held-out text in words; "" for every HELD_OUT_EVERY-th document.
    is_named: whether the user named the held-out text.
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
    """The vocabulary of a run: learned from its text, or the vocabulary of a tokenizer.

    tokenizer: None: a vocabulary is learned.
    size: most entries of a learned vocabulary; None goes by the amount of text.
    lowercase: of a learned vocabulary.
    strip_accents: of a learned vocabulary; None goes by the text.
    extend_by: words that are added to the vocabulary of a tokenizer.
    """

    tokenizer: Tokenizer | None
    size: int | None
    lowercase: bool
    strip_accents: bool | None
    extend_by: int


def hold_out(text: Text) -> Text:
    """The text, of which a part is held out if no other text is named.

    Held out are whole files; of fewer than 20 files, every 20th document (`heldout` is None); or if that were more than
    a tenth of the text, the end of each document.

    InputError if text that is named as held out is also training text.
    """
    by_key = text.training.sources()
    if text.heldout:
        both = [source for key, source in text.heldout.sources().items() if key in by_key]
        if both:
            raise InputError(f"{both[0]}: is also training text; use other text for {flag('heldout')}")
        return text

    files = [source for source in by_key.values() if isinstance(source, Path)]
    chosen = _choose_files(files) if len(files) == len(by_key) else []
    if chosen:
        names = ", ".join(file.name for file in chosen[:3])
        if len(chosen) > 3:
            names += ", ..."
        return _divided(text, f"{len(chosen)} of {len(files)} files ({names})", chosen)

    # Few documents, such as books, can be so unequal that one in twenty is most of the text.
    documents = DocumentReader(text.training.documents(), text.drop_duplicates, quiet=True)
    sizes = np.array([len(document) for document in islice(documents, FEW_DOCUMENTS)])
    is_uneven = 1 < len(sizes) < FEW_DOCUMENTS and sizes[_are_held_out(len(sizes))].sum() > MOST * sizes.sum()
    if is_uneven and sizes[sizes >= SHORT].sum() * TAIL >= SHORT:
        return _divided(text, f"the last {TAIL:.0%} of each document{SAME_SOURCES}")
    return replace(text, held_out="", is_named=False)


def _divided(text: Text, held_out: str, chosen: Sequence[Path] = ()) -> Text:
    """The text with both of its parts. held_out: in words; chosen: the held-out files."""
    return replace(
        text,
        training=replace(text.training, part="training", held_out=tuple(chosen)),
        heldout=replace(text.training, part="heldout", held_out=tuple(chosen)),
        held_out=held_out,
        is_named=False,
    )


def _choose_files(files: Sequence[Path]) -> list[Path]:
    """Random files, the same ones each time, of about 5 % of all bytes, at most 10 %; [] if there are too few."""
    if len(files) < FEW_FILES:
        return []

    sizes = [file.stat().st_size for file in files]
    total = sum(sizes)
    chosen: list[int] = []
    chosen_bytes = 0
    for index in generator(0, Purpose.HELD_OUT, 3).permutation(len(files)).tolist():
        if 0 < sizes[index] <= MOST * total - chosen_bytes:
            chosen.append(index)
            chosen_bytes += sizes[index]
        if chosen_bytes >= WANTED * total:
            break

    if chosen_bytes < LEAST * total:
        return []
    return [files[index] for index in sorted(chosen)]


def prepare_tokenizer(text: Text, vocabulary: Vocabulary, directory: Path, processes: Processes) -> Tokenizer:
    """The tokenizer of the settings, or a new one: learned or extended, and saved in the run directory.

    text: of which the training part alone is read.
    vocabulary: the tokenizer, or how one is learned.
    directory: of the run.
    processes: of which only the main process learns.
    """
    tokenizer = vocabulary.tokenizer
    if tokenizer and not vocabulary.extend_by:
        return tokenizer

    make = partial(_learn, text, vocabulary) if tokenizer is None else partial(_extend, text, vocabulary, tokenizer)
    return save_tokenizer_once(directory / "tokenizer", make, processes)


def _learn(text: Text, vocabulary: Vocabulary) -> tuple[Tokenizer, str]:
    """A new tokenizer, and a message about it."""
    learned = Tokenizer.learn(
        _training_texts(text),
        vocabulary.size,
        vocabulary.lowercase,
        processes=text.processes or num_cores(),
        strip_accents=vocabulary.strip_accents,
    )
    return learned, f"learned a vocabulary of {len(learned):,} entries"


def _extend(text: Text, vocabulary: Vocabulary, tokenizer: Tokenizer) -> tuple[Tokenizer, str]:
    """The tokenizer with more words, and a message about them."""
    workers = text.processes or num_cores()
    longer = extend_vocabulary(tokenizer, _training_texts(text), vocabulary.extend_by, workers)
    new = longer.tokens[len(tokenizer) :]
    if not new:
        return longer, "found no word to add"
    return longer, f"added {format_count(len(new), 'entry', 'entries')}: {', '.join(new[:5])}, ..."


def save_tokenizer_once(target: Path, make: Callable[[], tuple[Tokenizer, str]], processes: Processes) -> Tokenizer:
    """The tokenizer saved in `target`, in all processes.

    target: directory of the tokenizer.
    make: makes it, and a message to be logged, if it is not there yet.
    processes: of which the main process makes it.
    """
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
    """The tokenizer with further entries: the most frequent words that it splits into pieces.

    tokenizer: a WordPiece tokenizer; InputError for others.
    texts: whose words are counted.
    count: most entries to add.
    processes: that count.
    """
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"extend_vocab ({count}): only WordPiece vocabularies can be extended; leave it 0")

    broken: list[tuple[int, str]] = []
    for word, occurrences in count_words(texts, tokenizer.backend.splitter, processes).items():
        if occurrences < MIN_COUNT or word in tokenizer.vocab:
            continue
        # A new row starts at the mean of its pieces; [UNK] says nothing of the word.
        if tokenizer.unknown_id not in tokenizer.ids(word):
            broken.append((-occurrences, word))

    vocab = dict(tokenizer.vocab)
    for index, (_, word) in enumerate(sorted(broken)[:count], len(tokenizer)):
        vocab[word] = index
    return Tokenizer(vocab, **tokenizer.backend.rules)


def _training_texts(text: Text) -> Iterator[str]:
    texts: Iterable[str] = DocumentReader(text.training.documents(), text.drop_duplicates, quiet=True)
    if text.heldout:
        return iter(texts)
    return (document for document, is_held_out in mark_held_out(texts, HELD_OUT_EVERY) if not is_held_out)


def read_data(text: Text, tokenizer: Tokenizer, *, new_vocabulary: bool = True) -> PretrainingData:
    """The corpus as token ids, from the token store if nothing has changed.

    text: training and held-out text, and how they become token stores.
    tokenizer: whose ids the stores have.
    new_vocabulary: whether another vocabulary could be learned, which a warning about unknown words then advises.
    """
    store, facts = _open_store(text, text.training, tokenizer)
    training = np.arange(store.num_documents)
    if text.heldout is None:
        unseen = store
        unseen_facts = facts
        are_held_out = _are_held_out(store.num_documents)
        heldout = training[are_held_out]
        training = training[~are_held_out]
    else:
        unseen, unseen_facts = _open_store(text, text.heldout, tokenizer)
        heldout = np.arange(unseen.num_documents)
    _log_left_out(text)

    tokens = _tokens(store, training)
    unseen_tokens = _tokens(unseen, heldout)
    measured_on = _describe_held_out(text, store, tokens, unseen_tokens)
    logger.info(
        f"training text: {tokens:,} tokens in {format_count(len(training), 'document')}; held out: "
        f"{unseen_tokens:,} in {len(heldout):,} ({measured_on})"
    )

    heldout_facts = {
        **unseen_facts,
        "documents": len(heldout),
        "tokens": unseen_tokens,
        "measured_on": measured_on,
    }
    training_facts = {**facts, "documents": len(training), "tokens": tokens}
    data = PretrainingData(
        tokenizer=tokenizer,
        store=store,
        training=training,
        unseen=unseen,
        heldout=heldout,
        facts={"data": {"train": training_facts, "heldout": heldout_facts}},
    )
    copies = warn_of_copies(data)
    if copies:
        heldout_facts["copies"] = copies
    if data.unknown_fraction > MAX_UNKNOWN:
        advice = "; learn one with more characters: bothways vocab --alphabet" if new_vocabulary else ""
        logger.warning(f"{data.unknown_fraction:.1%} of the training text are unknown words ([UNK]){advice}")
    return data


def _log_left_out(text: Text) -> None:
    """Log what a corpus that the user named leaves out."""
    corpora = [text.training]
    if text.heldout and text.is_named:
        corpora.append(text.heldout)
    for corpus in corpora:
        left_out = corpus.left_out()
        if left_out:
            logger.info(left_out)


def _describe_held_out(text: Text, store: TokenStore, tokens: int, unseen_tokens: int) -> str:
    """The held-out text in words, with its share if it was divided off."""
    every = f"every {HELD_OUT_EVERY}th" if store.num_documents >= HELD_OUT_EVERY else "the last"
    described = text.held_out or f"{every} document{SAME_SOURCES}"
    if text.is_named:
        return described
    return f"{unseen_tokens / max(1, tokens + unseen_tokens):.1%} of the text, {described}"


def _open_store(text: Text, corpus: Corpus, tokenizer: Tokenizer) -> tuple[TokenStore, dict[str, Any]]:
    """The token store of a corpus, built if it is missing, and facts about it."""
    skipped: Counter[str] = Counter()
    paths = [_path_note(path) for path in corpus.paths]
    folder = text.token_store or cache.cache_directory() / "stores"
    built = open_or_build(
        folder,
        corpus.fingerprint(),
        lambda: corpus.documents(skipped),
        tokenizer=tokenizer,
        language=text.language,
        processes=text.processes,
        drop_duplicates=text.drop_duplicates,
        notes=lambda: {"skipped": dict(skipped), "corpus": paths},
    )

    # Nobody looks after the user's cache, so its size is said when it grows.
    if not built.reused and text.token_store is None:
        size = sum(stored.size for stored in cache.cached_stores(folder))
        if size > cache.LARGE_BYTES:
            logger.info(f"the token stores in {folder} take {size / 1e9:.1f} GB; bothways cache lists and deletes them")

    left_out = Counter(built.notes["skipped"])
    if left_out:
        logger.info(skipped_summary(left_out))
    if built.duplicates:
        logger.info(f"left out {format_count(built.duplicates, 'duplicate document')}")
    facts = {
        "fingerprint": built.store.fingerprint,
        "skipped": left_out.total(),
        "duplicates": built.duplicates,
    }
    return built.store, facts


def _path_note(path: TableSource | str) -> str:
    """A corpus path as recorded in the store's notes."""
    if isinstance(path, MemoryTable):
        return repr(path)
    return str(path) if str(path).startswith(HUB_PREFIX) else str(as_path(path).absolute())


def _are_held_out(count: int) -> np.ndarray:
    """Every 20th document, or the last one if there are fewer; the same choice as `mark_held_out` while streaming."""
    if count == 1:
        raise InputError(f"the corpus is one document, so none can be held out; split it or add {flag('heldout')}")
    every = min(HELD_OUT_EVERY, count)
    are: np.ndarray = (np.arange(count) + 1) % every == 0
    return are


def warn_of_copies(data: PretrainingData) -> int:
    """The number of held-out documents that are also training text, of which a warning is logged."""
    documents = sample_documents(data.unseen, data.heldout)
    copied = copied_documents(data.store, data.training, data.unseen, documents, len(data.tokenizer))
    count = len(copied)
    if not count:
        return 0

    if data.unseen is data.store:
        advice = f"drop duplicates ({flag('drop_duplicates', True)}), or give {flag('heldout')}"
    else:
        advice = f"give other text with {flag('heldout')}"
    logger.warning(
        f"{count:,} of {len(data.heldout):,} held-out documents are also in the training text, at least half of "
        f"each, so the held-out perplexity is too low; {advice}"
    )
    return count


def _tokens(store: TokenStore, documents: np.ndarray) -> int:
    return int(np.diff(store.sentences[store.documents])[documents].sum())
