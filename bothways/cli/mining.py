"""`bothways finetune rerank --pairs`: the search mines rows into the run directory, then the training reads them.

Neither knows the other."""

from dataclasses import replace
from pathlib import Path

from bothways.errors import InputError, MissingFile, flag
from bothways.log import working
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
)
from bothways.settings.finetune import Rerank
from bothways.settings.search import Search
from bothways.text.data.beir import BeirDataset, is_beir_dataset
from bothways.text.data.rankings import read_relevant
from bothways.training.callbacks import Callbacks
from bothways.training.distributed import check_single_process
from bothways.training.finetuning import finetune
from bothways.training.finetuning.deliver import FineTuneResult

TRAIN = "train"  # the split of a BEIR directory that is learned from


def run(settings: Rerank, *, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a reranker; before that, mine its rows if the settings have pairs. With --resume, a finished file of
    rows is used again."""
    if settings.pairs is not None:
        mine(settings, settings.pairs)
        settings = replace(settings, train=settings.mined_rows)
    return finetune.run(settings, callbacks=callbacks)


def mine(settings: Rerank, pairs: Path) -> None:
    """Write the rows of the pairs, unless they are written already."""
    file = settings.mined_rows
    if not settings.resume and (settings.out / METADATA_FILE).exists():
        raise InputError(
            f"{settings.out}: already contains a run; choose another directory, delete it, or add "
            f"{flag('resume', True)}"
        )
    options = MiningOptions(settings.passages, settings.first_rank, settings.max_share)
    facts = {"pairs": str(pairs), "negatives_from": str(settings.negatives_from or pairs)}
    if settings.resume and is_mined(file, options, facts):
        return
    check_single_process(f"finetune rerank {flag('pairs')}")
    with working("mining negatives"):
        relevant, find = open_pairs(settings, pairs)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_negatives(relevant, find, options, file, facts)


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

    device, dtype = settings.device, settings.dtype
    if settings.negatives_from is not None:
        query = next(iter(relevant))
        store = open_store(Search(query=query, path=settings.negatives_from, device=device, dtype=dtype))
        return relevant, find_in_store(store, device=device, dtype=dtype)
    if documents is None:
        raise InputError(
            f"pairs ({pairs}) has no passages beside the relevant ones; name the index or folder that is searched with "
            f"{flag('negatives_from')}"
        )
    return relevant, find_in_documents(documents, [*relevant], DEFAULT, device=device, dtype=dtype)
