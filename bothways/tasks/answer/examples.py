"""Questions with their passages as training examples: windows, with the tokens of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bothways.base.errors import InputError
from bothways.tasks.answer.decoding import answer_rows, encode_pairs
from bothways.tasks.windows import WindowPolicy
from bothways.text.batch import Batch
from bothways.text.data.squad import Question
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class AnswerWindows:
    """Windows of questions and passages, each an example of its own, with the first and last row of its answer."""

    windows: list[Encoding]
    rows: list[tuple[int, int]]

    @cached_property
    def sizes(self) -> list[int]:
        return [*map(len, self.windows)]

    def batch(self, rows: Sequence[int]) -> Batch:
        """labels [N, 2]: rows of the first and last token, within each window."""
        import torch

        return replace(
            Batch.from_encodings([self.windows[row] for row in rows]),
            labels=torch.tensor([self.rows[row] for row in rows]),
        )


def read_windows(questions: Sequence[Question], tokenizer: Tokenizer, policy: WindowPolicy) -> list[list[Encoding]]:
    """The windows of each question with its passage."""
    encodings = encode_pairs(
        tokenizer, [question.question for question in questions], [question.context for question in questions]
    )
    names = [question.where for question in questions]
    return policy.split(encodings, names)


def target_rows(windows: Sequence[Encoding], question: Question) -> list[tuple[int, int]]:
    """First and last row of the first answer in each window. InputError if the answer has no token."""
    if not question.answers:
        return answer_rows(windows, None)
    text, start = question.answers[0]
    try:
        return answer_rows(windows, (start, start + len(text)))
    except InputError as error:
        raise InputError(f"{question.where}: {error}") from None
