"""Scores of statements about texts, and of options, by a model that reads tokens.

Letters: N texts, W windows of them, K statements, C options, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bothways.base.errors import InputError, format_count, shorten
from bothways.inference.reading import ReadOptions, Rows, expanded, run_options, showing
from bothways.model.config import EncoderConfig
from bothways.model.statement_head import STATEMENT_TOKENS, StatementHead
from bothways.tasks.decide.option_set import OptionSet
from bothways.text.statements import StatementBatch
from bothways.text.token_windows import Integers, TokenWindows, distinct

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description
    from bothways.text.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = 2048  # of texts and statements together


class StatementReader(Protocol):
    """What is asked of a model here: a TokenBackend is one."""

    config: EncoderConfig

    @property
    def description(self) -> Description: ...
    @property
    def tokenizer(self) -> Tokenizer: ...

    def token_windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> tuple[TokenWindows, Integers]: ...
    def read_statements(self, batch: StatementBatch, head: StatementHead) -> Rows: ...


def option_scores(reader: StatementReader, texts: Sequence[str], asked: OptionSet, options: ReadOptions) -> Rows:
    """The score of each option for each text, float32 [N, C]. InputError as `statement_scores`."""
    return asked.option_scores(statement_scores(reader, texts, asked.statements, options))


def statement_scores(
    reader: StatementReader, texts: Sequence[str], statements: Sequence[str], options: ReadOptions
) -> Rows:
    """The log-odds that each statement holds for each text, float32 [N, K]; of a long text, the largest of its windows.

    InputError for a model without the head, and for a statement that is too long.
    """
    head = need_head(reader)
    different, places = distinct(statements)
    tokens = statement_tokens(reader, different)

    windows, rows = reader.token_windows(texts, None, options)
    scores_WK = np.zeros((len(windows.ranges), len(different)), np.float32)
    limits = run_options(options)
    with showing(limits["progress"], len(scores_WK)) as show:
        for numbers in batches(windows, sum(map(len, tokens)), limits["batch_tokens"] or BATCH_TOKENS):
            scores_WK[numbers] = scores_of_windows(reader, head, windows, numbers, tokens)
            show(numbers[-1] + 1, len(scores_WK))

    scores_NK = np.maximum.reduceat(scores_WK, windows.bounds[:-1]) if len(windows) else scores_WK
    return expanded(scores_NK, rows)[:, places]


def need_head(reader: StatementReader) -> StatementHead:
    """The head of a model. InputError if it has none."""
    head = reader.description.statements
    if head is None:
        raise InputError(
            "the model does not decide among options that are named when one asks; use bothways-en, or fine-tune a "
            "classifier for these options: bothways finetune classify"
        )
    return head


def statement_tokens(reader: StatementReader, statements: Sequence[str]) -> list[list[int]]:
    """The ids of each statement, special tokens included. InputError for one that is too long."""
    most = min(STATEMENT_TOKENS, reader.config.max_position_embeddings)
    tokens = []
    for statement, encoding in zip(statements, reader.tokenizer.encode_many(statements), strict=True):
        ids = encoding.ids
        if len(ids) > most:
            raise InputError(
                f"{shorten(repr(statement))}: an option and its question have {format_count(len(ids), 'token')}; at "
                f"most {most} can be read"
            )
        tokens.append(ids)
    return tokens


def batches(windows: TokenWindows, statement_tokens: int, limit: int) -> Iterator[list[int]]:
    """Numbers of windows whose tokens, with the statements behind each, are about `limit` together."""
    batch: list[int] = []
    size = 0
    for number, length in enumerate(windows.lengths.tolist()):
        if batch and size + length + statement_tokens > limit:
            yield batch
            batch = []
            size = 0
        batch.append(number)
        size += length + statement_tokens
    if batch:
        yield batch


def scores_of_windows(
    reader: StatementReader,
    head: StatementHead,
    windows: TokenWindows,
    numbers: Sequence[int],
    statements: Sequence[Sequence[int]],
) -> Rows:
    """The score of each statement for each of these windows, [n, K]."""
    ids_T, lengths_n, _ = windows.gather(numbers)
    texts = [ids.tolist() for ids in np.split(ids_T, lengths_n.cumsum()[:-1])]
    batch = StatementBatch.of(texts, [statements] * len(texts))

    states_TH = reader.read_statements(batch, head)
    sums_PH: Rows = np.add.reduceat(states_TH, batch.starts[:-1])
    means_PH: Rows = np.divide(sums_PH, batch.lengths_P[:, None], dtype=np.float32)
    vectors = means_PH.reshape(len(texts), 1 + len(statements), -1)
    return np.stack([head.scores(parts_H[0], parts_H[1:]) for parts_H in vectors])
