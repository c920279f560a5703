"""Tables of queries with ranked passages, for training."""

from __future__ import annotations

from bothways.settings.finetune import Rerank
from bothways.text.data.rankings import RankedPassages, read_rankings
from bothways.text.data.split_tables import divide_rows


def read_ranking_tables(settings: Rerank, fold: int | None = None) -> dict[str, RankedPassages]:
    """The rows by split: train, dev and possibly test.

    Without a dev file, a quarter of the queries becomes dev, which decides whether the model is delivered; without dev
    and test files, a fifth, and a tenth becomes test. Near duplicates of a query stay together. fold: the test fold in
    cross-validation.
    """
    tables = {name: read_rankings(source, settings, settings.on_error) for name, source in settings.sources.items()}
    if settings.dev:
        return tables
    train = tables["train"]
    parts = {"train": 3, "dev": 1} if "test" in tables else {"train": 7, "dev": 2, "test": 1}
    rows = divide_rows(settings, train.keys, parts, fold, of="queries")
    return {**tables, **{name: train.take(split_rows) for name, split_rows in rows.items()}}
