"""Functions of the commands vocab, predict, embed, fill, decide, export, merge, pack, unpack, info and cache."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, format_count
from bothways.base.log import logger
from bothways.base.results import Facts, Result
from bothways.base.terminal import print_lines
from bothways.settings.deploy import Export, Merge, Pack, Unpack
from bothways.settings.predict import Decide, Embed, Fill, Predict
from bothways.settings.tools import Cache, Info, Vocab

if TYPE_CHECKING:
    from bothways.inference.jobs.journal import Journal, WrittenFile
    from bothways.tasks.decide.decoding import Decision
    from bothways.tasks.fill.decoding import Guesses
    from bothways.text.corpus.cache import CachedStore


class VocabularyFacts(Facts):
    """The number of entries of a vocabulary, and its directory."""

    def lines(self) -> Iterator[str]:
        yield f"{self['entries']:,} entries in {self['directory']}"


def vocab(settings: Vocab) -> VocabularyFacts:
    """Learn a vocabulary and save its tokenizer."""
    from bothways.base.io import check_target
    from bothways.text.corpus.documents import Corpus, skipped_summary
    from bothways.text.tokenizer.tokenizer import Tokenizer

    check_target(settings.out, holds="tokenizer.json")
    if (settings.out / "tokenizer.json").exists():
        raise InputError(f"{settings.out}: already contains a tokenizer; name a new directory, or delete that one")

    corpus = Corpus(settings.corpus, settings.documents, settings.text_column, settings.on_error, settings.encoding)
    skipped: Counter[str] = Counter()
    tokenizer = Tokenizer.learn(
        corpus.documents(skipped),
        settings.size,
        settings.lowercase,
        settings.processes,
        settings.alphabet,
        strip_accents=settings.strip_accents,
    )

    left_out = corpus.left_out()
    if left_out:
        logger.info(left_out)
    if skipped:
        logger.info(skipped_summary(skipped))
    tokenizer.save(settings.out)
    return VocabularyFacts(entries=len(tokenizer), directory=str(settings.out))


def predict(settings: Predict) -> Result | Iterator[list[dict[str, Any]]]:
    """Write predictions, or rows to label, to a file; without an output file, yield rows block by block."""
    from bothways.inference.jobs import rows_to_label, verbs
    from bothways.inference.jobs.estimate import Estimate

    if settings.label_next is not None:
        journal = rows_to_label.write_rows_to_label(settings)
        text = f"{format_count(settings.label_next, 'row')} to label"
        return _written(settings, journal, text, to_label=settings.label_next)
    if settings.out is None:
        return verbs.predict_blocks(settings)

    result = verbs.predict(settings)
    if isinstance(result, Estimate):
        return result
    return _written(settings, result, f"{result.results:,} predictions", predictions=result.results)


def embed(settings: Embed) -> Result:
    """Write a vector per row to a file."""
    from bothways.inference.jobs import verbs
    from bothways.inference.jobs.estimate import Estimate

    result = verbs.embed(settings)
    if isinstance(result, Estimate):
        return result
    journal, size = result
    text = f"{journal.results:,} vectors of size {size}"
    return _written(settings, journal, text, vectors=journal.results, size=size)


def _written(settings: Predict | Embed, journal: "Journal", text: str, **facts: int) -> "WrittenFile":
    """The result of a job. text, facts: number and kind of its results, for people and for JSON."""
    from bothways.inference.jobs.journal import WrittenFile, side_file

    assert settings.out is not None
    return WrittenFile(
        out=settings.out,
        text=text,
        facts=facts,
        skipped=journal.set_aside,
        skipped_file=settings.out / "_skipped" if settings.writes_parts else side_file(settings.out),
    )


def fill(settings: Fill) -> "Guesses":
    """The most probable tokens for each mask."""
    from bothways.inference.load import load
    from bothways.tasks.fill.decoding import Guesses

    model = load(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
    )
    return Guesses(model.fill(settings.text, top=settings.top))


def decide(settings: Decide) -> "Decision":
    """Which of the options fits the text."""
    from bothways.inference.load import load
    from bothways.tasks.decide.questions import named_options

    model = load(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
    )
    return model.decide(
        settings.text,
        None if settings.options is None else named_options(settings.options),
        question=settings.question,
        none=settings.none,
    )


def export(settings: Export) -> Facts:
    """Export a model. Prints the table of differences while it runs, unless --json is given."""
    from bothways.shrink.export import export

    metadata = export.run(settings, logger.debug if settings.json else print_lines)
    return Facts({"directory": str(settings.out), **metadata})


class ModelSize(Facts):
    """The directory of a model that was written, and its size in bytes."""

    def lines(self) -> Iterator[str]:
        yield f"{self['out']}: {self['bytes'] / 1e6:.1f} MB"


def merge(settings: Merge) -> ModelSize:
    """Write the model that an adapter belongs to with the adapter merged into its weights."""
    from bothways.base.io import check_target
    from bothways.model.adapters.attach import with_merged
    from bothways.model.checkpoint import checkpoint
    from bothways.training.finetuning.card import card_of

    check_target(settings.out, holds="bothways.json")
    base = checkpoint.load(settings.base) if settings.base else None
    merged = with_merged(base, settings.adapter)
    checkpoint.save(merged, settings.out, card=card_of(merged))
    return size_of(settings.out)


def pack(settings: Pack) -> ModelSize:
    """Write a packed copy of a checkpoint."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.changes.pack import save_packed

    save_packed(checkpoint.load(settings.model), settings.out)
    return size_of(settings.out)


def unpack(settings: Unpack) -> ModelSize:
    """Write a checkpoint, packed or not, in the Hugging Face layout with float32 weights; static vectors in the layout
    of model2vec."""
    from bothways.base.io import check_target
    from bothways.model.checkpoint import checkpoint, hub
    from bothways.model.checkpoint.contents import check_plain
    from bothways.model.linear.static_vectors import is_static, read_static, write_static

    path = hub.locate(settings.model)
    if is_static(path):
        check_target(settings.out, holds="config.json")
        write_static(read_static(path), settings.out)
        return size_of(settings.out)

    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    checkpoint.save(loaded, settings.out)
    return size_of(settings.out)


def size_of(directory: Path) -> ModelSize:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return ModelSize(out=str(directory), bytes=sum(file.stat().st_size for file in files))


@dataclass(frozen=True)
class CacheContents:
    """Token stores, copies and weights of models, and search indexes: the deleted ones, and the ones that remain."""

    directory: Path
    deleted: "list[CachedStore]"
    stores: "list[CachedStore]"
    deleted_indexes: list[Any]
    indexes: list[Any]
    is_cleared: bool

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"directory": str(self.directory)}
        for name in ("deleted", "stores", "deleted_indexes", "indexes"):
            facts[name] = [{**vars(entry), "path": str(entry.path)} for entry in getattr(self, name)]
        return facts

    def lines(self) -> Iterator[str]:
        for store in self.deleted or self.stores:
            kind = "float32 weights" if _has_weights(store) else "copy"
            text = f"{kind} of {', '.join(store.corpus)}" if store.corpus else "damaged or unfinished"
            if store.statistics:
                text = f"{store.statistics['tokens']:,} tokens of {', '.join(store.corpus)}"
            yield f"{store.path.name}  {store.modified}  {store.size / 1e6:9,.1f} MB  {text}"

        for index in self.deleted_indexes or self.indexes:
            text = f"{index.passages:,} passages of {', '.join(index.folders)}" if index.folders else "damaged"
            yield f"{index.path.name}  {index.size / 1e6:9,.1f} MB  {text}"

        if self.is_cleared:
            freed = sum(entry.size for entry in (*self.deleted, *self.deleted_indexes))
            kept = f"; kept {self._left()}, in use by a run" if self.stores else ""
            yield f"deleted {freed / 1e6:,.1f} MB{kept}"
        else:
            hint = "; bothways cache --clear deletes them" if self.stores or self.indexes else ""
            yield f"{self._left()}{hint}"

    def _left(self) -> str:
        """The size, number and directory of the stores that remain."""
        size = sum(store.size for store in self.stores) / 1e6
        weights = sum(map(_has_weights, self.stores))
        others = len(self.stores) - weights
        kinds = []
        if others or not weights:
            kinds.append(format_count(others, "token store"))
        if weights:
            kinds.append(format_count(weights, "file of weights", "files of weights"))
        directory = self.directory.parent if weights else self.directory
        return f"{size:,.1f} MB in {' and '.join(kinds)} in {directory}"


def _has_weights(store: "CachedStore") -> bool:
    """Whether an entry of the cache is the weights of a packed model in float32."""
    return store.path.suffix == ".safetensors"


def cache(settings: Cache) -> CacheContents:
    from bothways.cli.verbs import application_module
    from bothways.text.corpus import cache

    search = None if settings.token_store else application_module("search.index_cache")

    directory = settings.token_store or cache.cache_directory() / "stores"
    directories = [directory]
    if not settings.token_store:
        directories = [directory.with_name(name) for name in cache.DIRECTORIES]

    deleted: list[CachedStore] = []
    stores: list[CachedStore] = []
    if settings.clear:
        for path in directories:
            deleted_stores, stores_in_use = cache.clear_cache(path)
            deleted += deleted_stores
            stores += stores_in_use
        if not settings.token_store:
            deleted += cache.clear_weights()
        deleted_indexes, indexes = search.clear_indexes() if search else ([], [])
    else:
        for path in directories:
            stores += cache.cached_stores(path)
        if not settings.token_store:
            stores += cache.cached_weights()
        deleted_indexes = []
        indexes = search.cached_indexes() if search else []

    return CacheContents(
        directory=directory,
        deleted=deleted,
        stores=stores,
        deleted_indexes=deleted_indexes,
        indexes=indexes,
        is_cleared=settings.clear,
    )


def info(settings: Info) -> Result:
    from bothways.cli.info import describe

    if len(settings.path) == 1:
        return describe(settings.path[0])
    from bothways.training.finetuning.deliver import open_run

    first, second = map(open_run, settings.path)
    return first.compare(second)
