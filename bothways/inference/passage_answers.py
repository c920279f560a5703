"""Predictor.answer: find answers in a passage (extractive question answering, SQuAD)."""

from typing import Unpack, overload

from bothways.errors import InputError
from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Texts
from bothways.tasks import answer_decoding
from bothways.tasks.answer_decoding import MAX_ANSWER_TOKENS, NUM_CANDIDATES, Answer, Candidates
from bothways.tasks.arguments import read_one_or_many, whole_number


class PassageAnswers(PredictorBase):
    @overload
    def answer(  # type: ignore[overload-overlap]
        self,
        questions: str,
        passages: str,
        *,
        top: int = 1,
        max_answer_tokens: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[Answer]: ...
    @overload
    def answer(
        self,
        questions: Texts,
        passages: Texts,
        *,
        top: int = 1,
        max_answer_tokens: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[list[Answer]]: ...
    def answer(
        self,
        questions: Texts,
        passages: Texts,
        *,
        top: int = 1,
        max_answer_tokens: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[Answer] | list[list[Answer]]:
        """The `top` best answers to a question about a passage, best first; for several questions, a list of such
        lists.

        answer.text == passage[answer.start : answer.end] always holds. The text is "" (start = end = 0) if the passage
        is empty, or if the model predicts "no answer", for which it must have been trained with unanswerable questions.
        max_answer_tokens: maximum length of an answer; the default is that of fine-tuning, else 30.
        """
        is_single = isinstance(questions, str) and isinstance(passages, str)
        num_candidates = max(whole_number("top", top, 1), NUM_CANDIDATES)
        candidates = self.answer_candidates(
            questions, passages, num_candidates=num_candidates, max_answer_tokens=max_answer_tokens, **options
        )
        threshold = self.description.metadata.get("no_answer_threshold")
        answers = [one.answers(top, threshold) for one in candidates]
        return answers[0] if is_single else answers

    def answer_candidates(
        self,
        questions: Texts,
        passages: Texts,
        *,
        num_candidates: int = NUM_CANDIDATES,
        max_answer_tokens: int | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[Candidates]:
        """The best spans for each question and the score of "no answer", before a threshold decides between them."""
        self._need_head("spans", "answers", "fine-tune one: bothways finetune answer")
        questions, texts, _ = read_one_or_many(questions, passages, names=("questions", "passages"))
        if texts is None:
            raise InputError("passages is None; give one passage per question")
        pairs = answer_decoding.encode_pairs(self.tokenizer, questions, texts)
        names = [f"questions[{row}]" for row in range(len(pairs))]
        windows = self.split(pairs, options, names)
        rows = self.encoder.token_scores("spans", windows, options)
        if max_answer_tokens is None:
            length: int = self.description.settings.get("max_answer_tokens") or MAX_ANSWER_TOKENS
        else:
            length = whole_number("max_answer_tokens", max_answer_tokens, 1)
        return [
            answer_decoding.find_candidates(parts, part_rows, max_answer_tokens=length, num_candidates=num_candidates)
            for parts, part_rows in zip(windows, rows, strict=True)
        ]
