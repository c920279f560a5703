"""Functions of the commands vocab, predict, fill, export, merge, pack, unpack, info and cache."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.base.terminal import print_lines
from bothways.settings.deploy import Export, Merge, Pack, Unpack
from bothways.settings.predict import Fill, Predict
from bothways.settings.tools import Cache, Info, Vocab

if TYPE_CHECKING:
    from bothways.inference.jobs.estimate import Estimate
    from bothways.inference.jobs.journal import Journal
    from bothways.tasks.fill import Guess
    from bothways.text.corpus.cache import CachedStore
    from bothways.training.results import RunComparison


def vocab(settings: Vocab) -> int:
    """Learn a vocabulary and save its tokenizer. Returns the number of entries."""
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
    return len(tokenizer)


def predict(settings: Predict) -> "Journal | Estimate | Iterator[list[dict[str, Any]]]":
    """Write predictions, or rows to label, to a file; without an output file, yield rows block by block."""
    from bothways.inference.jobs import jobs, rows_to_label, verbs

    if settings.label_next is not None:
        return rows_to_label.write_rows_to_label(settings)
    if settings.out is None:
        return jobs.predict_blocks(settings)
    return verbs.predict(settings)


def fill(settings: Fill) -> "list[list[Guess]]":
    """The most probable tokens for each mask."""
    from bothways.inference.load import load

    model = load(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
    )
    return model.fill(settings.text, top=settings.top)


def export(settings: Export) -> dict[str, Any]:
    """Export a model. Prints the table of differences while it runs, unless --json is given."""
    from bothways.shrink.export import export

    return export.run(settings, logger.debug if settings.json else print_lines)


def merge(settings: Merge) -> dict[str, Any]:
    """Write the model that an adapter belongs to with the adapter merged into its weights. Returns its directory and
    size in bytes."""
    from bothways.base.io import check_target
    from bothways.model.adapters.attach import with_merged
    from bothways.model.checkpoint import checkpoint

    check_target(settings.out, holds="bothways.json")
    base = checkpoint.load(settings.base) if settings.base else None
    checkpoint.save(with_merged(base, settings.adapter), settings.out)
    return sizes(settings.out)


def pack(settings: Pack) -> dict[str, Any]:
    """Write a packed copy of a checkpoint. Returns its directory and size in bytes."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.changes.pack import save_packed

    save_packed(checkpoint.load(settings.model), settings.out)
    return sizes(settings.out)


def unpack(settings: Unpack) -> dict[str, Any]:
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
        return sizes(settings.out)

    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    checkpoint.save(loaded, settings.out)
    return sizes(settings.out)


def sizes(directory: Path) -> dict[str, Any]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {"out": str(directory), "bytes": sum(file.stat().st_size for file in files)}


@dataclass(frozen=True)
class CacheContents:
    """Token stores, copies and weights of models, and search indexes: the deleted ones, and the ones that remain."""

    directory: Path
    deleted: "list[CachedStore]"
    stores: "list[CachedStore]"
    deleted_indexes: list[Any]
    indexes: list[Any]


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
    )


def info(settings: Info) -> "dict[str, Any] | RunComparison":
    from bothways.cli.info import describe

    if len(settings.path) == 1:
        return describe(settings.path[0])
    from bothways.training.finetuning.deliver import open_run

    first, second = map(open_run, settings.path)
    return first.compare(second)
