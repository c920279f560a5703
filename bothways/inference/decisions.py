"""Scores of the questions that `decide` answers: of options that a model has learned by its head, of all others by
their statements.

Letters: N texts, K statements, C options that were learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bothways.inference.backends.statement_scores import need_head, statement_scores
from bothways.inference.reading import ReadOptions, Rows
from bothways.tasks.decide.option_set import NONE_SHARE, UNKNOWN, OptionSet, learned_scores
from bothways.tasks.decide.questions import AskedQuestion
from bothways.tasks.novelty import share_as_far

if TYPE_CHECKING:
    from bothways.inference.backends.tokens import TokenBackend


def scores_of_questions(
    backend: TokenBackend, texts: Sequence[str], questions: Sequence[AskedQuestion], options: ReadOptions
) -> Rows:
    """The score of each statement of each question for each text, float32 [N, K]: the log-odds that it holds.

    InputError for a model that does not decide, and for a statement that is too long."""
    own = backend.asked
    statements = [statement for question in questions for statement in question.statements]
    places = [own.places(question) if own else [UNKNOWN] * len(question.statements) for question in questions]
    of_statements = [column for column, place in enumerate(chain.from_iterable(places)) if place == UNKNOWN]

    scores_NK = np.zeros((len(texts), len(statements)), np.float32)
    if of_statements:
        asked = [statements[column] for column in of_statements]
        scores_NK[:, of_statements] = statement_scores(backend, texts, asked, options)
        is_choice = [question.is_choice for question in questions for _ in question.statements]
        scores_NK += np.float32(need_head(backend).choice_shift) * np.array(is_choice, np.float32)
    if own and len(of_statements) < len(statements):
        fill_learned(scores_NK, places, *learned(backend, texts, own, options))
    return scores_NK


def learned(
    backend: TokenBackend, texts: Sequence[str], own: OptionSet, options: ReadOptions
) -> tuple[Rows, NDArray[np.float64]]:
    """The scores of all options that were learned, [N, C], and the probability that none of them fits, [N]."""
    parts = [*backend.scored_vectors("classes", texts, None, options)]
    scores_NC = np.concatenate([scores_nC for scores_nC, _ in parts])
    scope = backend.description.scope
    if scope is None:
        return scores_NC, np.zeros(len(scores_NC))
    as_far_N = np.concatenate([share_as_far(scope, vectors_nH) for _, vectors_nH in parts])
    return scores_NC, NONE_SHARE / (NONE_SHARE + as_far_N)


def fill_learned(
    scores_NK: Rows, places: Sequence[Sequence[int]], scores_NC: Rows, none_N: NDArray[np.float64]
) -> None:
    """Write the scores of the statements of learned options into their columns. places: for each question."""
    start = 0
    for of_question in places:
        columns = start + np.flatnonzero(np.array(of_question) != UNKNOWN)
        if len(columns):
            for row, (scores_C, none) in enumerate(zip(scores_NC, none_N.tolist(), strict=True)):
                scores_K = learned_scores(scores_C, none, [*of_question])
                scores_NK[row, columns] = scores_K[columns - start]
        start += len(of_question)
