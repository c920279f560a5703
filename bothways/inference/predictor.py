"""Predictor: a loaded model that classifies, tags, answers, fills masks and embeds texts.

Letters: N texts, S tokens of a text, H hidden size, C outputs of the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack, overload

import numpy as np

from bothways.base.errors import InputError, format_count
from bothways.inference.base_predictor import BasePredictor
from bothways.inference.reading import (
    AnswerOptions,
    ClassifyOptions,
    ExplainOptions,
    ReadOptions,
    Rows,
    TagOptions,
    Texts,
)
from bothways.tasks import TASKS, arrays
from bothways.tasks.answer.decoding import (
    MAX_ANSWER_TOKENS,
    NUM_CANDIDATES,
    Answer,
    Candidates,
    encode_pairs,
    find_candidates,
    probable_answers,
)
from bothways.tasks.class_decoding import ClassDecoding, Prediction, check_min_score
from bothways.tasks.novelty import farthest, stored_scope
from bothways.tasks.pooling import Pooling
from bothways.tasks.tag.decoding import Entity, decode_entities, decode_word_tags
from bothways.tasks.windows import merge_rows, read_one_or_many, read_words, whole_number
from bothways.text.data.tags import join_words
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from bothways.inference.active_learning import UnlabelledTexts
    from bothways.inference.explanation import Explanation
    from bothways.measure.report.attention_map import AttentionWeights
    from bothways.tasks.decide.decoding import Decision
    from bothways.tasks.decide.questions import AskedQuestion, Options
    from bothways.tasks.fill.decoding import Guess


class Predictor(BasePredictor):
    """A loaded model. `task` is the name of the method for its head; `stream` applies a method to endless input.

    Every method takes one text and returns one result, or takes many texts (a list, an iterator, a NumPy array, a
    pandas or Arrow column) and returns a result for each. All options are keywords (see ReadOptions).

    The result for a text does not depend on the order, the batch or the other texts. What the core computes
    (`backend.library` is "core") is the same bit for bit, and in heads to within 1e-6. What torch computes is the same
    to within 1e-5 in float32; in bfloat16 on a CPU with AVX512-BF16 bit for bit for vectors and to within
    1e-6 for probabilities, measured on all families. Other CPUs and GPUs may sum products in a different order for a
    different batch; in bfloat16 and float16 this can change a component of a unit vector by about 0.002 and a
    probability by about 0.05. Equal texts of one call always have equal results, since they are computed once.

    Threads may share a Predictor. It can be pickled and sent to processes that are started by spawn or forkserver; a
    model of the core to processors with the same instruction set. A forked process may use a model of the core. It may
    use one of torch that was loaded before the fork, unless torch has already computed with several threads (any method
    below does): then it hangs, as always with torch. Load the model after the fork, or use spawn.
    """

    @overload
    def hidden_states(self, texts: str, **options: Unpack[ReadOptions]) -> Rows: ...  # type: ignore[overload-overlap]
    @overload
    def hidden_states(self, texts: Texts, **options: Unpack[ReadOptions]) -> list[Rows]: ...
    def hidden_states(self, texts: Texts, **options: Unpack[ReadOptions]) -> Rows | list[Rows]:
        """The last hidden states of each text, float32 [S, H]: one row per token of tokenizer.encode(text), special
        tokens included, without tokens that were truncated.

        Each token of a long text is taken from the window in which it is furthest from a cut.
        """
        texts, _, is_single = read_one_or_many(texts)
        windows = self.encoder.encode(texts, None, options)
        rows = self.encoder.hidden_rows(windows, options)
        states = [merge_rows(parts, part_rows) for parts, part_rows in zip(windows, rows, strict=True)]
        return states[0] if is_single else states

    @overload
    def attention(self, texts: str, pairs: str | None = None) -> AttentionWeights: ...  # type: ignore[overload-overlap]
    @overload
    def attention(self, texts: Texts, pairs: Texts | None = None) -> list[AttentionWeights]: ...
    def attention(self, texts: Texts, pairs: Texts | None = None) -> AttentionWeights | list[AttentionWeights]:
        """How much each token of a text (or pair) reads from each other token, in every layer and head.

            model.attention("The bank of the river was wet.").plot("attention.svg", layer=0, head=4)

        InputError if a text has more than 512 tokens, or if the model's attention is sparse (Longformer, BigBird).
        """
        from bothways.measure.report.attention_map import AttentionWeights

        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        encodings = self.tokenizer.encode_many(firsts, seconds)
        weights = [
            AttentionWeights(encoding.tokens, self.encoder.attention_weights(encoding)) for encoding in encodings
        ]
        return weights[0] if is_single else weights

    def embed(
        self,
        texts: Texts,
        *,
        pooling: Pooling = "auto",
        normalize: bool = True,
        **options: Unpack[ReadOptions],
    ) -> Rows:
        """A vector per text, float32 [N, H]; [H] for a single text.

        pooling: "mean", "cls" or "max"; "auto" is the checkpoint's own pooling, else the mean. mean and max are over
        the text's tokens, each counted once even if several windows contain it; cls is averaged over the windows.
        normalize: scale to length 1.
        """
        texts, _, is_single = read_one_or_many(texts)
        vectors_NH = self.backend.text_vectors(texts, pooling, options)
        if normalize:
            arrays.normalize(vectors_NH, out=vectors_NH)
        return vectors_NH[0] if is_single else vectors_NH

    @overload
    def classify(self, texts: str, pairs: str | None = None, **options: Unpack[ClassifyOptions]) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def classify(
        self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ClassifyOptions]
    ) -> list[Prediction]: ...
    def classify(
        self,
        texts: Texts,
        pairs: Texts | None = None,
        *,
        top: int | None = None,
        coverage: float | None = None,
        min_score: float | None = None,
        in_scope: float | None = None,
        **options: Unpack[ReadOptions],
    ) -> Prediction | list[Prediction]:
        """The most probable label of each text (or pair); with a threshold perhaps None, "none of these".

        A long text is classified by the mean of its windows' vectors, or by their maximum if the model was fine-tuned
        that way.

        top: number of labels in `scores`, the most probable first; by default all, which take about 60 bytes per label
        and text.
        coverage: for a calibrated single-label model, `labels` is the set that holds the right label of this fraction
        of texts like the ones of fine-tuning, the most probable first; it may be empty.
        min_score: `label` is None if its probability is below this number; a multi-label model has the labels from it
        on, instead of those above the thresholds of its fine-tuning.
        in_scope: `is_like_training` says whether a text is as near to the training texts as this share of texts held
        out from training; the label of other texts is None.

            model.classify(texts, in_scope=0.95)
        """
        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        self._need_head("classify", "text classes")
        if not self.labels:
            raise InputError("the model has one output, for regression; use regress")

        described = self.description
        decoding = ClassDecoding(top=top, coverage=coverage, min_score=min_score)
        predictions: list[Prediction] = []
        if in_scope is None:
            for scores_nC in self.backend.text_scores("classes", firsts, seconds, options):
                predictions += decoding.predictions(scores_nC, described)
        else:
            scope = stored_scope(described)
            limit = farthest(scope, in_scope)
            for scores_nC, vectors_nH in self.backend.scored_vectors("classes", firsts, seconds, options):
                is_like_training_n = (scope.distances(vectors_nH) <= limit).tolist()
                predictions += decoding.predictions(scores_nC, described, is_like_training_n)
        return predictions[0] if is_single else predictions

    def asking(self, options: Options, *, question: str = "", none: bool = True) -> Self:
        """The same model with these options of `decide` as its labels, so that `predict`, `evaluate` and a server ask
        for them. The weights are shared."""
        from bothways.inference.backends.statement_scores import need_head
        from bothways.tasks.decide.option_set import OptionSet

        need_head(self.encoder)
        return type(self)(self.encoder.asking(OptionSet.of(options, question, none=none)))

    @overload
    def decide(  # type: ignore[overload-overlap]
        self,
        texts: str,
        options: Options | None = None,
        *,
        question: str | None = None,
        none: bool | None = None,
        **reading: Unpack[ReadOptions],
    ) -> Decision: ...
    @overload
    def decide(
        self,
        texts: Texts,
        options: Options | None = None,
        *,
        question: str | None = None,
        none: bool | None = None,
        **reading: Unpack[ReadOptions],
    ) -> list[Decision]: ...
    def decide(
        self,
        texts: Texts,
        options: Options | None = None,
        *,
        question: str | None = None,
        none: bool | None = None,
        **reading: Unpack[ReadOptions],
    ) -> Decision | list[Decision]:
        """Which of these options fits each text: text and option are read together. No training is needed; a model of
        `finetune decide` knows some options better, and decides among them by default.

        options: their names; or names with a description, or with several of which one holds.
        question: read before each option, such as "What is this message about?".
        none: whether no option may fit, for which the label is None; without it, one is always chosen. Default: yes.

        The same options in another order, other options, other texts: the log-odds of an option are the same bits.

            model.decide("My parcel never came.", ["delivery", "billing", "returns"]).label
            model.decide(texts, {"refund": "asks for money back", "praise": "is happy"}, none=False)
        """
        from bothways.tasks.decide.questions import OneOf

        texts, _, is_single = read_one_or_many(texts)
        own = self.encoder.asked
        if options is None and own is None:
            raise InputError('options are missing; name them, such as ["delivery", "billing"]')
        if question is None:
            question = own.text if own else ""
        if none is None:
            none = own.none if own else True
        choice = OneOf(own.options, question, none) if options is None and own else OneOf.of(options or (), question)
        choice = replace(choice, none=none)
        decisions = [answers[0] for answers in self.decide_each(texts, [choice], **reading)]
        return decisions[0] if is_single else decisions

    def decide_each(
        self, texts: Texts, questions: Sequence[AskedQuestion], **reading: Unpack[ReadOptions]
    ) -> list[list[Decision]]:
        """The answers to several questions about each text, which is read once for all of them.

        questions: OneOf, YesNo or Levels (bothways.tasks.decide.questions).
        """
        from bothways.inference.decisions import scores_of_questions
        from bothways.tasks.decide.questions import answers_of

        texts, _, _ = read_one_or_many(texts)
        scores_NK = scores_of_questions(self.encoder, texts, questions, reading)
        return [answers_of(questions, scores_K) for scores_K in scores_NK]

    @overload
    def regress(self, texts: str, pairs: str | None = None, **options: Unpack[ReadOptions]) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def regress(self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> Rows: ...
    def regress(self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> float | Rows:
        """The number that a regression model predicts for each text (or pair), float32 [N]."""
        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        self._need_head("regress", "a number")
        if self.backend.heads["classes"] != 1:
            raise InputError(f"the model has {format_count(len(self.labels), 'class', 'classes')}; use classify")

        parts = [*self.backend.text_scores("classes", firsts, seconds, options)]
        numbers_N: Rows = np.concatenate(parts)[:, 0]
        return float(numbers_N[0]) if is_single else numbers_N

    @overload
    def rerank(self, queries: str, passages: str, **options: Unpack[ReadOptions]) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def rerank(self, queries: Texts, passages: Texts, **options: Unpack[ReadOptions]) -> Rows: ...
    def rerank(self, queries: Texts, passages: Texts, **options: Unpack[ReadOptions]) -> float | Rows:
        """The score of each passage for its query, float32 [N]: greater is more relevant, in no unit. Scores of one
        query are compared."""
        return self.regress(queries, passages, **options)

    @overload
    def is_next(self, first: str, second: str, **options: Unpack[ReadOptions]) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def is_next(self, first: Texts, second: Texts, **options: Unpack[ReadOptions]) -> Rows: ...
    def is_next(self, first: Texts, second: Texts, **options: Unpack[ReadOptions]) -> float | Rows:
        """The probability that the second text follows the first, float32 [N].

        This is a softmax over the two scores of the next-sentence head (Devlin 2018, section 3.1). The first score
        means "follows", or "in the original order" for ALBERT's sentence-order head.
        """
        self._need_head("is_next", "next sentences", "use a model pre-trained with next-sentence prediction")
        firsts, seconds, is_single = read_one_or_many(first, second, names=("first", "second"))
        if seconds is None:
            raise InputError("second is None; give the text that may follow")

        parts = [*self.backend.text_scores("next_sentence", firsts, seconds, options)]
        probabilities_N: Rows = arrays.softmax(np.concatenate(parts))[:, 0]
        return float(probabilities_N[0]) if is_single else np.ascontiguousarray(probabilities_N)

    @overload
    def explain(self, texts: str, pairs: str | None = None, **options: Unpack[ExplainOptions]) -> Explanation: ...  # type: ignore[overload-overlap]
    @overload
    def explain(
        self, texts: Texts, pairs: Texts | None = None, **options: Unpack[ExplainOptions]
    ) -> list[Explanation]: ...
    def explain(
        self, texts: Texts, pairs: Texts | None = None, *, label: str | None = None, **options: Unpack[ReadOptions]
    ) -> Explanation | list[Explanation]:
        """Why the model predicts what it predicts: what the score of the prediction loses without each word.

            model.explain("A quiet, generous film.").top(3)

        A text of n words is read n + 1 times. Words are split at white space and punctuation; a punctuation mark is a
        word. The score is the probability of the label of a classifier, the number of a regression model, the mean
        score of the entities of a tagger (`entities` has one explanation for each), the score of the best answer, whose
        passage is in `pairs` and whose words are the words of the passage, and for any other model the cosine of two
        texts.

        label: the label to be explained, by default the most probable one; of a tagger, the label of the entities.

        InputError for a text without words, for an unknown label, and for a single text of a model without a head.
        """
        from bothways.inference.explain import explanations

        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        found = [*explanations(self, firsts, seconds, label, options)]
        for row, explanation in enumerate(found):
            if not explanation.words:
                name = "the text" if is_single else f"texts[{row}]"
                raise InputError(f"{name} ({firsts[row]!r:.60}) has no words to leave out; give at least one word")
        return found[0] if is_single else found

    def label_next(self, texts: Texts, n: int, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> list[int]:
        """The indices of the n texts (or pairs) to label next: the classifier is uncertain of them, and they differ.

        The most uncertain text comes first. Empty texts are left out, and of texts that differ only in case, spaces or
        punctuation one is kept. The choice depends on nothing but texts, order and model. InputError if there are fewer
        than n different texts, or if the model is not a classifier.
        """
        from bothways.inference.active_learning import CandidatePool

        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        if is_single:
            raise InputError("texts is a single string; give a list of texts to choose from")

        pool = CandidatePool(whole_number("n", n, 1))
        pool.add(self.label_candidates(firsts, seconds, **options))
        return pool.choose(f"{format_count(len(firsts), 'text')} given")

    def label_candidates(
        self, texts: list[str], pairs: list[str] | None, **options: Unpack[ReadOptions]
    ) -> UnlabelledTexts:
        """The candidates of `label_next`: each text (or pair) with its uncertainty and vector. InputError if the model
        is not a classifier."""
        from bothways.inference.active_learning import UnlabelledTexts

        if TASKS[self.task].head != "classes" or not self.labels:
            raise InputError(f"label_next is for classifiers; the task of this model is {self.task}")
        parts = self.backend.scored_vectors("classes", texts, pairs, options)
        return UnlabelledTexts.of(texts, pairs, parts, multi_label=self.description.multi_label)

    @overload
    def fill(self, texts: str, *, top: int = 5, **options: Unpack[ReadOptions]) -> list[list[Guess]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, texts: Texts, *, top: int = 5, **options: Unpack[ReadOptions]) -> list[list[list[Guess]]]: ...
    def fill(
        self, texts: Texts, *, top: int = 5, **options: Unpack[ReadOptions]
    ) -> list[list[Guess]] | list[list[list[Guess]]]:
        """The `top` most probable tokens for each [MASK] of a text, best first; for many texts, a list of such lists.

        The model's own mask token (`<mask>` in RoBERTa) works as well. A mask in a long text is filled in the window in
        which it is most central. InputError if a text has no mask, or the model has no head for masked words.
        """
        from bothways.tasks.fill.decoding import fill_masks, find_masks

        texts, _, is_single = read_one_or_many(texts)
        self._need_head("fill", "masked words", "use a model pre-trained with them")
        if self.encoder.config.direction != "both":
            raise InputError("a one-directional model cannot fill masks; use one that reads both directions")
        top = whole_number("top", top, 1)
        self.warn_of_lost_decoder()

        masked = find_masks(texts, self.tokenizer)
        windows = self.split([masked_text.encoding for masked_text in masked], options)
        guess = partial(self.encoder.masked_words, top=top, options=options)
        fills = fill_masks(masked, windows, guess, self.tokenizer)
        return fills[0] if is_single else fills

    @overload
    def tag(self, texts: str, **options: Unpack[TagOptions]) -> list[Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Texts, **options: Unpack[TagOptions]) -> list[list[Entity]]: ...
    def tag(
        self, texts: Texts, *, min_score: float | None = None, **options: Unpack[ReadOptions]
    ) -> list[Entity] | list[list[Entity]]:
        """The entities of each text, in order; entity.text == text[entity.start : entity.end] always holds.

        A model with one label per word (part of speech) returns an entity for each word, split at punctuation.
        min_score: leave out entities whose score is lower.
        """
        check_min_score(min_score)
        texts, _, is_single = read_one_or_many(texts)
        windows, scores = self._tag_scores(texts, options)

        tagset = self.tagset
        results: list[list[Entity]] = []
        for parts, scores_SC in zip(windows, scores, strict=True):
            entities = decode_entities(parts, scores_SC, tagset)
            if min_score is not None:
                entities = [entity for entity in entities if entity.score >= min_score]
            results.append(entities)
        return results[0] if is_single else results

    @overload
    def tag_words(self, words: Sequence[str], **options: Unpack[ReadOptions]) -> list[str]: ...  # type: ignore[overload-overlap]
    @overload
    def tag_words(self, words: Iterable[Sequence[str]], **options: Unpack[ReadOptions]) -> list[list[str]]: ...
    def tag_words(
        self, words: Sequence[str] | Iterable[Sequence[str]], **options: Unpack[ReadOptions]
    ) -> list[str] | list[list[str]]:
        """One tag (IOB2 or plain) for each word of a text that is already split, or of several such texts."""
        lists, is_single = read_words(words)
        windows, scores = self._tag_scores([*map(join_words, lists)], options)

        tagset = self.tagset
        tags: list[list[str]] = []
        for word_list, parts, scores_SC in zip(lists, windows, scores, strict=True):
            tags.append(decode_word_tags(parts, scores_SC, word_list, tagset))
        return tags[0] if is_single else tags

    def _tag_scores(self, texts: Sequence[str], options: ReadOptions) -> tuple[list[list[Encoding]], list[Rows]]:
        """Each text's windows and its scores, one row per token, [S, C]."""
        self._need_head("tag", "tags")
        windows = self.encoder.encode(texts, None, options)
        rows = self.encoder.token_scores("tokens", windows, options)
        return windows, [merge_rows(parts, part_rows) for parts, part_rows in zip(windows, rows, strict=True)]

    @overload
    def answer(self, questions: str, passages: str, **options: Unpack[AnswerOptions]) -> list[Answer]: ...  # type: ignore[overload-overlap]
    @overload
    def answer(self, questions: Texts, passages: Texts, **options: Unpack[AnswerOptions]) -> list[list[Answer]]: ...
    def answer(
        self,
        questions: Texts,
        passages: Texts,
        *,
        top: int = 1,
        max_answer_tokens: int | None = None,
        min_score: float | None = None,
        **options: Unpack[ReadOptions],
    ) -> list[Answer] | list[list[Answer]]:
        """The `top` best answers to a question about a passage, best first; for several questions, a list of such
        lists.

        answer.text == passage[answer.start : answer.end] always holds. The text is "" (start = end = 0) if the passage
        is empty, or if the model predicts "no answer", for which it must have been trained with unanswerable questions.

        top: number of answers to a question.
        max_answer_tokens: maximum length of an answer; the default is the length of fine-tuning, else 30.
        min_score: leave out answers whose score is lower; if none is left, the text is "", with the score of the best
        one.
        """
        check_min_score(min_score)
        is_single = isinstance(questions, str) and isinstance(passages, str)
        candidates = self.answer_candidates(
            questions,
            passages,
            num_candidates=max(whole_number("top", top, 1), NUM_CANDIDATES),
            max_answer_tokens=max_answer_tokens,
            **options,
        )

        threshold = self.description.metadata.get("no_answer_threshold")
        answers = [spans.answers(top, threshold) for spans in candidates]
        if min_score is not None:
            answers = [probable_answers(best, min_score) for best in answers]
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
        self._need_head("answer", "answers")
        questions, texts, _ = read_one_or_many(questions, passages, names=("questions", "passages"))
        if texts is None:
            raise InputError("passages is None; give one passage per question")

        pairs = encode_pairs(self.tokenizer, questions, texts)
        names = [f"questions[{row}]" for row in range(len(pairs))]
        windows = self.split(pairs, options, names)
        rows = self.encoder.token_scores("spans", windows, options)

        if max_answer_tokens is None:
            length: int = self.description.settings.get("max_answer_tokens") or MAX_ANSWER_TOKENS
        else:
            length = whole_number("max_answer_tokens", max_answer_tokens, 1)
        return [
            find_candidates(parts, part_rows, max_answer_tokens=length, num_candidates=num_candidates)
            for parts, part_rows in zip(windows, rows, strict=True)
        ]
