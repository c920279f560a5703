"""Mining before a training (`finetune rerank --pairs`, `finetune embed --negatives-from`): the search writes rows into
the run directory, which the training then reads. Neither knows the other."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bothways.base.errors import InputError, MissingFile, flag
from bothways.base.progress import working
from bothways.model.checkpoint.description import METADATA_FILE
from bothways.pretrained import DEFAULT
from bothways.search.commands import open_store
from bothways.search.negatives import (
    Find,
    MiningOptions,
    Relevant,
    find_in_documents,
    find_in_store,
    is_mined,
    write_negatives,
    write_triplets,
)
from bothways.settings.finetune import Rerank, TrainEmbed
from bothways.settings.search import Search
from bothways.text.data.beir import BeirDataset, is_beir_dataset
from bothways.text.data.rankings import read_relevant

PASSAGES = 20  # of a search, in which the negative of a pair is found
TRAIN = "train"  # the split of a BEIR directory that is learned from


def mine_ranking(settings: Rerank) -> Rerank:
    """Write the rows of the settings' pairs. Returns the settings of a training on these rows."""
    assert settings.pairs is not None
    options = MiningOptions(settings.passages, settings.first_rank, settings.max_share)
    facts = {
        "pairs": str(settings.pairs),
        "negatives_from": str(settings.negatives_from or settings.pairs),
    }
    mine(
        settings,
        options,
        facts,
        opened=partial(open_pairs, settings, settings.pairs),
        write=write_negatives,
    )
    return replace(settings, train=settings.mined_rows)


def mine_triplets(settings: TrainEmbed) -> TrainEmbed:
    """Write a negative for each pair. Returns the settings of a training on these rows."""
    facts = {
        "pairs": str(settings.train),
        "negatives_from": str(settings.negatives_from),
    }
    mine(
        settings,
        MiningOptions(PASSAGES),
        facts,
        opened=partial(open_embed_pairs, settings),
        write=write_triplets,
    )
    return replace(settings, train=settings.mined_rows)


def mine(
    settings: Rerank | TrainEmbed,
    options: MiningOptions,
    facts: Mapping[str, str],
    *,
    opened: Callable[[], tuple[Relevant, Find]],
    write: Callable[..., None],
) -> None:
    """Write the rows of the settings, unless they are written already.

    settings: where they are written.
    options: which passages are negatives.
    facts: where pairs and passages are from.
    opened: returns the relevant passages, and the search for others.
    write: `write_negatives` or `write_triplets`.
    """
    from bothways.training.distributed import check_single_process  # needs torch

    file = settings.mined_rows
    if not settings.resume and (settings.out / METADATA_FILE).exists():
        raise InputError(
            f"{settings.out}: already contains a run; choose another directory, delete it, or add "
            f"{flag('resume', True)}"
        )
    if settings.resume and is_mined(file, options, facts):
        return

    check_single_process(f"a search for negatives ({flag('negatives_from')})")
    with working("mining negatives"):
        relevant, find = opened()
        file.parent.mkdir(parents=True, exist_ok=True)
        write(relevant, find, options, file, facts)


def open_pairs(settings: Rerank, pairs: Path) -> tuple[Relevant, Find]:
    """The relevant passages of each query, and the search for others."""
    if not pairs.exists():
        raise MissingFile(f"{pairs}: no such file; name rows of query and passage, or a BEIR directory")

    documents = None
    if is_beir_dataset(pairs):
        dataset = BeirDataset.read(pairs, TRAIN)
        documents = dataset.documents
        relevant: Relevant = dataset.relevant_texts()
    else:
        relevant = read_relevant(pairs, settings, settings.on_error)

    if settings.negatives_from is not None:
        return relevant, find_near(settings, next(iter(relevant)), settings.negatives_from)
    if documents is None:
        raise InputError(
            f"pairs ({pairs}) has no passages beside the relevant ones; name the index or folder that is searched with "
            f"{flag('negatives_from')}"
        )
    find = find_in_documents(documents, [*relevant], DEFAULT, device=settings.device, dtype=settings.dtype)
    return relevant, find


def open_embed_pairs(settings: TrainEmbed) -> tuple[Relevant, Find]:
    """The pairs of the settings, by the first text, and the search for others."""
    assert settings.negatives_from is not None
    relevant = read_relevant(settings.train, settings, settings.on_error)
    return relevant, find_near(settings, next(iter(relevant)), settings.negatives_from)


def find_near(settings: Rerank | TrainEmbed, query: str, path: Path) -> Find:
    """The search of an index or a folder. query: any, as the settings of a search need one."""
    search = Search(query=query, path=path, device=settings.device, dtype=settings.dtype)
    return find_in_store(open_store(search), device=settings.device, dtype=settings.dtype)
