"""The verbs `finetune rerank` and `finetune embed`: before the training, a search may mine its rows. Neither knows the
other."""

from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, flag
from bothways.cli.verbs import application_module
from bothways.settings.finetune import Rerank, TrainEmbed

if TYPE_CHECKING:
    from bothways.training.callbacks import Callbacks
    from bothways.training.finetuning.deliver import FineTuneResult


def run(settings: Rerank, *, callbacks: "Callbacks" = ()) -> "FineTuneResult":
    """Fine-tune a reranker; before that, mine its rows if the settings have pairs. With --resume, a finished file of
    rows is used again."""
    from bothways.training.finetuning import finetune  # needs torch

    if settings.pairs is not None:
        settings = search_mining("pairs").mine_ranking(settings)
    return finetune.run(settings, callbacks=callbacks)


def run_embed(settings: TrainEmbed, *, callbacks: "Callbacks" = ()) -> "FineTuneResult":
    """Fine-tune an embedding model; before that, mine a negative for each pair if the settings name where."""
    from bothways.training.finetuning import finetune  # needs torch

    if settings.negatives_from is not None:
        settings = search_mining("negatives_from").mine_triplets(settings)
    return finetune.run(settings, callbacks=callbacks)


def search_mining(option: str) -> Any:
    """The module of search that mines. InputError if search is not there."""
    module = application_module("search.mining")
    if module is None:
        raise InputError(f"{flag(option)} needs bothways.search, which is not installed; name rows with --train")
    return module
