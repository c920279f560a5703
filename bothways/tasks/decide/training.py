"""Training of decisions: a linear head on frozen vectors, and the statements of the options beside the texts.

The encoder stays as it is, so that the head of statements goes on reading it: options without rows are decided by
their statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError, RowError, flag, join_names
from bothways.settings.finetune import TrainDecide
from bothways.tasks.arrays import Floats
from bothways.tasks.classify.training import Classification
from bothways.tasks.decide.option_set import OptionSet
from bothways.tasks.decide.questions import named_options, read_options
from bothways.tasks.texts import HeadInput
from bothways.text.data.columns import Table
from bothways.text.data.split_tables import other_columns

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint


@dataclass(frozen=True)
class Deciding(Classification):
    """Texts with the option that fits each."""

    name: ClassVar[str] = "decide"
    is_frozen: ClassVar[bool] = True
    settings: TrainDecide

    @classmethod
    def build(cls, settings: TrainDecide, pretrained: Checkpoint, tables: Mapping[str, Table]) -> Deciding:
        """InputError for an encoder that does not read statements, and for pairs."""
        if pretrained.statements is None:
            raise InputError(
                f"{settings.model}: the model does not read options; start from bothways-en, or use finetune classify"
            )
        if tables["train"].pairs is not None:
            raise InputError(f"{settings.train}: pairs of texts; decisions are about single texts")
        return super().build(settings, pretrained, tables)

    @classmethod
    def read_names(cls, settings: TrainDecide, tables: Sequence[Table]) -> tuple[str, ...]:
        """All labels in the rows, and the options that are named beside them, sorted."""
        labels = {label for table in tables for label in table.labels or []}
        names = (*sorted(labels | {*described(settings)}),)
        if len(names) < 2:
            raise InputError(f"{settings.train}: only one option ({join_names(names)}); a decision needs two")
        return names

    @cached_property
    def option_set(self) -> OptionSet:
        """All options, with their descriptions."""
        known = described(self.settings)
        options = {name: known.get(name, (name,)) for name in self.names}
        return OptionSet(options, self.settings.question.strip(), has_head=True, pair_scale=0.0)

    @property
    def head_inputs(self) -> list[HeadInput]:
        """The mean of all layers: the head of statements reads these."""
        return [HeadInput("mean")]

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        return replace(super().initial_checkpoint(seed), statements=self.pretrained.statements)

    @cached_property
    def soft_targets(self) -> Floats | None:
        """Of `probabilities_column`, rows that add up to 1. InputError for a cell that is no object of
        probabilities."""
        column = self.settings.probabilities_column
        if column is None:
            return None
        table = self.tables["train"]
        cells = other_columns([self.settings.train], table.where, {}, self.settings.encoding).get(column)
        if cells is None:
            raise InputError(
                f"{self.settings.train}: no column {column!r}; name another as {flag('probabilities_column')}"
            )
        rows = [read_probabilities(where, cell, self.names) for where, cell in zip(table.where, cells, strict=True)]
        return np.array(rows, np.float32)


def described(settings: TrainDecide) -> dict[str, tuple[str, ...]]:
    """The options of the settings with their descriptions; none if they name none."""
    return {} if settings.options is None else read_options(named_options(settings.options))


def read_probabilities(where: str, cell: Any, names: Sequence[str]) -> list[float]:
    """The probability of each option in a cell; 0 for those that are missing. InputError for other content."""
    try:
        content = json.loads(cell) if isinstance(cell, str) else cell
        values = {str(name): float(value) for name, value in content.items() if value is not None}
    except (AttributeError, TypeError, ValueError):
        raise RowError(where, f'{cell!r:.60} is no object of probabilities, such as {{"a": 0.9, "b": 0.1}}') from None
    if unknown := sorted(values.keys() - {*names}):
        raise RowError(where, f"{unknown[0]!r} is no option ({join_names(names)}); name it with {flag('options')}")
    total = sum(values.values())
    if total <= 0 or min(values.values()) < 0:
        raise RowError(where, f"{cell!r:.60}: probabilities are at least 0, and one of them is above 0")
    return [values.get(name, 0.0) / total for name in names]
