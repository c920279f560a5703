"""The verbs of search, index, search, extract and mcp: settings in, results out."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from bothways.base.errors import MissingFile, flag
from bothways.base.log import logger
from bothways.base.paths import as_path
from bothways.base.terminal import print_json_line
from bothways.pretrained import locate
from bothways.search.database import is_store
from bothways.search.hits import SearchResult, SourcedAnswer
from bothways.search.index_cache import index_directory
from bothways.search.indexing import Indexed, index
from bothways.search.reranking import search_reranked
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, Store
from bothways.search.writing import writer_lock
from bothways.settings.search import Extract, Index, Mcp, Search
from bothways.tasks import TASKS

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor
    from bothways.search.extraction import Extracted
    from bothways.search.reindexing import Reindexed


def run_index(settings: Index) -> "Indexed | Reindexed":
    """Bring an index up to date with folders, or give it the vectors of another model."""
    if settings.reindex:
        from bothways.search.reindexing import reindex

        return reindex(
            settings.out,
            model_name(settings.model),
            sample=settings.map,
            queries=settings.queries,
            device=settings.device,
            dtype=settings.dtype,
        )

    check_folders(settings.folders)
    return index(
        settings.folders,
        settings.out,
        static_model=model_name(settings.static),
        encoder=model_name(settings.model) if settings.encoder else None,
        language=settings.language,
        globs=settings.glob,
        remove=[as_path(root) for root in settings.remove],
        device=settings.device,
        dtype=settings.dtype,
    )


def check_folders(folders: Sequence[Path]) -> None:
    """InputError if one does not exist."""
    for folder in folders:
        if not folder.exists():
            raise MissingFile(f"{folder}: no such file or folder; check the path")


def model_name(path: Path) -> str:
    """A model as the index keeps it: the name of one in the package or on the hub, or an absolute path."""
    if path.exists() and locate(path) is None:
        return str(path.resolve())
    return str(path)


def run_search(settings: Search) -> SearchResult:
    """Search an index, or a folder, whose index is brought up to date before."""
    store = open_store(settings)
    mapped_from = store.mapped_from
    if mapped_from is not None and settings.how != "words":
        logger.info(
            f"{store.directory}: its vectors are mapped from {mapped_from}; {flag('reindex', True)} computes them"
        )

    reranker = load_model(settings, settings.rerank) if settings.rerank else None
    hits = search_reranked(
        store,
        settings.query,
        reranker,
        top=settings.top,
        vectors=partial(open_vectors, device=settings.device, dtype=settings.dtype),
        how=settings.how,
        fast=settings.fast,
        globs=settings.glob,
        condition=settings.filter,
        min_score=settings.min_score,
    )

    around = []
    if settings.context:
        around = [store.neighbours(hit, settings.context) for hit in hits]

    answers = None
    if settings.answer:
        # Without a passage there is nothing to read, so the model is not loaded.
        answers = find_answers(settings.query, hits, load_model(settings, settings.answer)) if hits else []
    return SearchResult(
        store=store,
        query=settings.query,
        hits=hits,
        around=around,
        answers=answers,
        only_files=settings.files_with_matches and not settings.json,
    )


def open_store(settings: Search) -> Store:
    """The index of the settings, or the index of a folder, which is brought up to date before."""
    if is_store(settings.path):
        return Store(settings.path)
    return Store(updated_index(settings))


def updated_index(settings: Search) -> Path:
    """The directory of a folder's index, in the cache, which has been brought up to date."""
    check_folders([settings.path])
    folder = settings.path.resolve()
    static = model_name(settings.static)
    encoder = model_name(settings.model) if settings.model else ""
    # Another model or language makes another index.
    key = (str(folder), static, encoder, settings.language)
    name = blake2b(repr(key).encode(errors="surrogatepass"), digest_size=8).hexdigest()
    directory = index_directory() / name

    # The lock is only tried: `index` takes it itself.
    with writer_lock(directory) as is_free:
        pass
    if not is_free and is_store(directory):
        logger.info(f"{settings.path}: another process is indexing it; searching what it has done so far")
        return directory

    result = index(
        [folder],
        directory,
        static_model=static,
        encoder=encoder or None,
        language=settings.language,
        device=settings.device,
        dtype=settings.dtype,
    )
    if result.new or result.changed or result.deleted:
        logger.info(result.summary)
    return directory


def load_model(settings: Search | Mcp, path: Path) -> "Predictor":
    from bothways.inference.load import load

    return load(model_name(path), dtype=settings.dtype, device=settings.device)


def find_answers(question: str, hits: Sequence[Hit], model: "Predictor") -> list[SourcedAnswer]:
    """The best answer in each passage that has one, by the product of both scores, best first."""
    results = model.answer([question] * len(hits), [hit.text for hit in hits])
    answers = []
    for (answer, *_), hit in zip(results, hits, strict=True):
        if not answer.text:
            continue
        relevance = min(max(hit.score, 0.0), 1.0)  # the score of a reranker may be any number
        answers.append(
            SourcedAnswer(
                text=answer.text,
                start=answer.start,
                end=answer.end,
                score=answer.score * relevance,
                hit=hit,
            )
        )
    return sorted(answers, key=lambda answer: -answer.score)


def extract(settings: Extract) -> "Extracted":
    """Write a table of facts."""
    from bothways.search import extraction

    check_folders(settings.folders)

    # The options that are named like a task are the models.
    paths = []
    for option in fields(settings):
        path = getattr(settings, option.name)
        if option.name in TASKS and path:
            paths.append((option.name, path))
    models = extraction.Models(
        tuple(paths),
        question=settings.question,
        device=settings.device,
        dtype=settings.dtype,
        min_score=settings.min_score,
        options=settings.options,
    )

    return extraction.extract(
        models,
        settings.folders,
        settings.glob,
        settings.out,
        resume=settings.resume,
        workers=settings.workers,
    )


def mcp(settings: Mcp) -> None:
    """Answer messages of the Model Context Protocol until standard input ends."""
    from bothways.search.mcp import answer_messages

    with Store(settings.store) as store:
        vectors = partial(open_vectors, device=settings.device, dtype=settings.dtype)
        reranker = load_model(settings, settings.rerank) if settings.rerank else None
        for answer in answer_messages(sys.stdin.buffer, store, vectors, reranker):
            print_json_line(answer)
