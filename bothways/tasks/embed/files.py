"""Files of pairs, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bothways.base.errors import InputError, flag
from bothways.settings.base import TextColumns
from bothways.settings.finetune import TrainEmbed
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.text.data.model_inputs import first_columns, resolve_columns
from bothways.text.data.near_duplicates import text_key
from bothways.text.data.pairs import NO_NEGATIVES, TextPairs, read_pair_file, usual_negatives
from bothways.text.data.split_tables import divide_rows
from bothways.text.data.splits import parts_for


def read_pairs(settings: TrainEmbed, fold: int | None = None) -> dict[str, TextPairs]:
    """The pairs by split: train, dev and possibly test.

    Without a dev file, a tenth of the training table becomes dev; without dev and test files, another tenth becomes
    test. Pairs with the same or a near-duplicate first text stay together. fold: the test fold in cross-validation.
    """
    if settings.objective == "scores" and settings.negative_column is not None:
        raise InputError(
            f"negative_column ({settings.negative_column}) is for pairs; leave it out, or use "
            f"{flag('objective', 'pairs')}"
        )

    objective = settings.objective
    pairs_by_split = dict[str, TextPairs]()
    for name, path in settings.sources.items():  # train is the first
        pairs = read_pair_file(path, settings, objective, settings.negative_column, settings.on_error)
        if name == "train" and pairs.scores is None and len(set(pairs.texts[1])) < 2:
            raise InputError(f"{path}: a single pair has no negatives; add pairs")
        objective = "pairs" if pairs.scores is None else "scores"
        pairs_by_split[name] = pairs

    if "dev" in pairs_by_split:
        return pairs_by_split

    train = pairs_by_split["train"]
    rows = divide_rows(settings, [*map(text_key, train.texts[0])], parts_for(pairs_by_split), fold)
    return {**pairs_by_split, **{name: train.take(split_rows) for name, split_rows in rows.items()}}


def read_trained_pairs(file: TableSource, settings: Evaluate, trained: Mapping[str, Any]) -> TextPairs:
    """Read pairs by the named columns, else by the columns of the model's own settings (`trained`).

    Scores are ignored if the model was trained on pairs without scores, unless a column of scores is named. Negatives
    are read as in training, if the file has any, since a search of the pairs is among them, too.
    """
    unscored = trained.get("objective") == "pairs" or trained.get("negative_column") is not None
    names = resolve_columns(file, settings, trained, ("text", "pair", "label", "negative"))
    negative = names.pop("negative") or usual_negatives(first_columns(file, settings.encoding))
    columns = TextColumns(**{f"{use}_column": name for use, name in names.items()}, encoding=settings.encoding)
    unscored = unscored and settings.label_column is None
    pairs = read_pair_file(file, columns, "pairs" if unscored else "auto", NO_NEGATIVES)
    if pairs.scores is None and negative is not None:
        return read_pair_file(file, columns, "pairs", negative)
    return pairs
