"""Few rows: linear models over a frozen encoder and over TF-IDF, chosen and scored out-of-fold. Decisions also have the
scores of the options' statements, which need no rows.

With ten texts a class, a tenth of the rows is too small to choose a model by, or to judge one. So each row is predicted
by models that were fitted to the other folds (Stone 1974), the candidates are compared on all rows, and the chosen one
is fitted to all of them.

Letters: N rows, S strengths, F features, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch

from bothways.base.errors import InputError
from bothways.base.log import muted
from bothways.inference.backends.encoder import EncoderBackend
from bothways.inference.backends.statement_scores import option_scores
from bothways.model.checkpoint.description import DECIDE
from bothways.model.linear import linear_head, tfidf
from bothways.model.linear.tfidf import Gram, TfidfModel
from bothways.tasks.arrays import Floats
from bothways.tasks.class_decoding import fit_temperature
from bothways.tasks.forward import last_layer
from bothways.tasks.linear_baselines import MAX_OUTPUTS, METHODS
from bothways.tasks.scores import Predictions
from bothways.tasks.texts import HeadInput, TextTask
from bothways.text.data.split_tables import strata
from bothways.text.data.splits import fold_groups

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

FOLDS = 10  # for choosing among candidates
FEWER_FOLDS = 3  # if there are many targets
FEWEST_FOLDS = 4  # of classes with fewer rows
SCORE_FOLDS = 30  # for the score of the chosen one, whose models are then fitted to nearly all rows
MAX_TARGETS = 1_000_000  # rows times outputs; with more there are FEWER_FOLDS
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)  # of the penalty of standardized features, falling
USUAL_STRENGTH = 0.1  # for rows that are too few for folds
WORD_SHARE = 1 / 3  # weight of TF-IDF beside the encoder (docs/LOG.md, "The first labels")
PAIR_SHARES = (1 / 3, 2 / 3)  # weights of the scores of statements beside linear models
MAX_PAIRS = 50_000  # of a row and an option; with more, statements are left out: they would take minutes
FROZEN_FOLDS = 3  # of an encoder that is never trained, if there are many rows
MANY_ROWS = 2500  # from which on there are so few
MAX_WORD_ROWS = 2500  # with more, TF-IDF is left out: its products of all pairs of rows would take minutes
CERTAIN = 1.96  # standard errors of a 95 % interval
LIKELY = 1.0  # standard errors: about five to one


@dataclass(frozen=True)
class LinearPart:
    """A linear model. scores_NC: of each row by models of the other folds, divided by the temperature that suits them.
    strength: of the penalty, the one with the best metric."""

    strength: float
    temperature: float
    scores_NC: Floats


@dataclass(frozen=True)
class LinearCandidate:
    """A model for few rows. reads: what its head on the encoder reads; None: it is TF-IDF alone. word_share: the weight
    of TF-IDF. pair_share: the weight of the scores of statements. scores_NC: of each row, out-of-fold."""

    name: str
    reads: HeadInput | None
    word_share: float
    scores_NC: Floats
    pair_share: float = 0.0

    @property
    def head_share(self) -> float:
        """The weight of the head."""
        return 1 - self.word_share - self.pair_share

    @property
    def parts(self) -> str:
        """The inputs that it reads, in words."""
        if self.reads is None:
            return "TF-IDF"
        words = ["TF-IDF"] if self.word_share else []
        statements = ["statements"] if self.pair_share else []
        parts = ["frozen vectors", *words, *statements] if self.pair_share < 1 else statements
        return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


@dataclass(frozen=True)
class FewRows:
    """The rows of a task, all in train, and what linear models make of them.

    num_folds: None: as many as suit.
    is_tfidf: whether the only candidate is TF-IDF.
    initial_checkpoints, head_scores: by what the head reads, as far as they are made.
    """

    task: TextTask
    num_folds: int | None = None
    is_tfidf: bool = False
    initial_checkpoints: dict[HeadInput, Checkpoint] = field(default_factory=dict, init=False)
    head_scores: dict[HeadInput, Floats] = field(default_factory=dict, init=False)  # of these folds: not for others

    @cached_property
    def folds(self) -> list[list[int]]:
        """The rows of each fold, stratified, with groups and near duplicates together; empty if rows are too few."""
        if len(self.task.tables["train"]) < self.task.min_folded_rows:
            return []
        return self.divide(FOLDS)

    @cached_property
    def score_folds(self) -> list[list[int]]:
        """Those of the score: more of them."""
        return self.divide(SCORE_FOLDS) if self.folds else []

    def divide(self, number: int) -> list[list[int]]:
        """So many folds, or as many as there are groups; fewer of very many rows; none, if a fold would be empty.

        Not more than there are rows of a class: then each class lacks a row in each fold. With more folds only the
        classes that are scored lack one, which makes the others more probable (docs/LOG.md, "The first labels").
        """
        table = self.task.tables["train"]
        settings = self.task.settings
        groups = table.groups or table.keys
        usual = number if len(table) * self.task.num_outputs <= MAX_TARGETS else FEWER_FOLDS
        if self.task.is_frozen and len(table) > MANY_ROWS:
            usual = FROZEN_FOLDS
        if not self.has_numbers and self.targets.ndim == 1:
            usual = min(usual, max(FEWEST_FOLDS, len(table) // self.task.num_outputs))
        folds = self.num_folds or min(usual, len({*groups}))
        labels = strata(settings, table)
        try:
            return fold_groups(len(table), labels, groups, seed=settings.seed, folds=folds, source=settings.train)
        except InputError:
            if self.num_folds:
                raise
            return []

    @cached_property
    def targets(self) -> torch.Tensor:
        return torch.from_numpy(self.task.data["train"].targets)

    @property
    def fitted_targets(self) -> torch.Tensor:
        """What linear models are fitted to: the targets, or a probability of each class, [N, C]."""
        soft_NC = self.task.soft_targets
        return self.targets if soft_NC is None else torch.from_numpy(soft_NC)

    @property
    def has_numbers(self) -> bool:
        """Whether the targets are numbers, and not classes or labels."""
        return self.targets.is_floating_point()

    # --- parts --------------------------------------------------------------------------------------------------------

    def reading(self, reads: HeadInput) -> TextTask:
        """The task whose head reads this."""
        return self.tasks_by_input[reads]

    @cached_property
    def tasks_by_input(self) -> dict[HeadInput, TextTask]:
        task = self.task
        targets = {split: examples.targets for split, examples in task.data.items()}
        tasks = {}
        for reads in task.head_inputs:
            read = replace(task, reads=reads)  # type: ignore[type-var]
            is_encoded_alike = (read.pair_features is None) == (task.pair_features is None)
            tasks[reads] = read if is_encoded_alike else read.with_targets(targets)
        return tasks

    def initial_checkpoint(self, reads: HeadInput) -> Checkpoint:
        """The encoder with a new head that reads this."""
        if reads not in self.initial_checkpoints:
            task = self.reading(reads)
            self.initial_checkpoints[reads] = task.initial_checkpoint(task.settings.seed)
        return self.initial_checkpoints[reads]

    def features(self, reads: HeadInput, split: str = "train") -> torch.Tensor:
        """The features that the last layer of the head reads, for each row: [N, F]."""
        task = self.reading(reads)
        with muted(), torch.no_grad():
            pooler = self.initial_checkpoint(reads).model.eval().pooler
            assert pooler is not None
            vectors_NF: torch.Tensor = pooler(task.frozen[split]["head"])
        return vectors_NF

    @cached_property
    def gram(self) -> Gram | None:
        """The rows as TF-IDF has them; None if they or the outputs are too many."""
        table = self.task.tables["train"]
        if len(table) > MAX_WORD_ROWS or self.task.num_outputs > MAX_OUTPUTS:
            return None
        return tfidf.gram(table.texts, table.pairs, self.task.num_outputs)

    def word_strengths(self) -> list[float]:
        """Of the penalty, from scikit-learn's C."""
        cs = tfidf.NUMBER_STRENGTHS if self.has_numbers else tfidf.CLASS_STRENGTHS
        return [1 / (c * len(self.targets)) for c in cs]

    def fit_part(self, x_NF: torch.Tensor, strengths: Sequence[float], *, standardize: bool) -> LinearPart:
        """The model of the strength with the best metric; ties go to the lower loss."""
        rows = (x_NF, self.fitted_targets)
        scores_SNC = linear_head.out_of_fold(
            rows,
            self.task.row_loss,
            self.task.num_outputs,
            self.folds,
            strengths,
            standardize=standardize,
        ).numpy()

        values = [self.metric(scores_NC) for scores_NC in scores_SNC]
        tied = [index for index, value in enumerate(values) if value == max(values)]
        best = min(tied, key=lambda index: float(self.losses(scores_SNC[index]).mean()))
        temperature = self.temperature(scores_SNC[best])
        return LinearPart(strengths[best], temperature, scores_SNC[best] / temperature)

    def metric(self, scores_NC: Floats) -> float:
        """The metric of scores of the rows."""
        values = self.task.scoring.compute_metrics("train", self.task.outputs_of(scores_NC))
        metric: float = values[self.task.metric]
        return metric

    def temperature(self, scores_NC: Floats) -> float:
        """By which scores of classes are divided for the lowest loss; 1 for numbers."""
        if self.has_numbers:
            return 1.0
        return fit_temperature(scores_NC, self.targets.numpy(), multi_label=self.targets.ndim == 2)

    def losses(self, scores_NC: Floats) -> np.ndarray:
        """The loss of each row, at the best temperature, [N]."""
        losses_N: np.ndarray = self.task.scoring.row_losses("train", self.task.outputs_of(scores_NC)).numpy()
        return losses_N

    @cached_property
    def heads(self) -> dict[HeadInput, LinearPart]:
        """A head on each input."""
        return {
            reads: self.fit_part(self.features(reads), STRENGTHS, standardize=True) for reads in self.task.head_inputs
        }

    @cached_property
    def words(self) -> LinearPart | None:
        if self.gram is None:
            return None
        strengths = self.word_strengths()
        if not self.folds:
            usual = strengths[len(strengths) // 2]
            return LinearPart(usual, temperature=1.0, scores_NC=np.zeros((0, self.task.num_outputs)))
        return self.fit_part(self.gram.features_NR, strengths, standardize=False)

    # --- candidates ---------------------------------------------------------------------------------------------------

    @cached_property
    def candidates(self) -> list[LinearCandidate]:
        """In the order in which they are preferred without evidence: the encoder with TF-IDF, the encoder, TF-IDF."""
        words = self.words_alone
        if self.is_tfidf:
            assert words is not None
            return [words]
        both = [self.stacked(candidate, words) for candidate in self.heads_alone] if words else []
        linear = [*both, *self.heads_alone]
        if self.pairs_alone:
            with_pairs = [self.with_pairs(candidate, share) for share in PAIR_SHARES for candidate in linear]
            return [*linear, *with_pairs, self.pairs_alone]
        # TF-IDF alone knows nothing of options without rows.
        return [*linear, *filter(None, [words])] if self.task.option_set is None else linear

    @cached_property
    def heads_alone(self) -> list[LinearCandidate]:
        """The heads on the encoder, without TF-IDF."""
        return [
            LinearCandidate(
                name=f"{reads.describe()} + {self.method}",
                reads=reads,
                word_share=0.0,
                scores_NC=head.scores_NC,
            )
            for reads, head in self.heads.items()
        ]

    @cached_property
    def words_alone(self) -> LinearCandidate | None:
        """TF-IDF, without the encoder; None if the rows or the outputs are too many."""
        if self.words is None:
            return None
        return LinearCandidate(
            name=f"TF-IDF + {self.method}",
            reads=None,
            word_share=1.0,
            scores_NC=self.words.scores_NC,
        )

    @property
    def method(self) -> str:
        return METHODS["number" if self.has_numbers else "classes"]

    def stacked(self, head: LinearCandidate, words: LinearCandidate) -> LinearCandidate:
        """Both together: the weighted mean of their scores (Wolpert 1992, with a fixed weight)."""
        assert head.reads is not None
        scores_NC = (1 - WORD_SHARE) * head.scores_NC + WORD_SHARE * words.scores_NC
        return LinearCandidate(
            name=f"{head.reads.describe()} and TF-IDF + {self.method}",
            reads=head.reads,
            word_share=WORD_SHARE,
            scores_NC=scores_NC,
        )

    # --- statements ---------------------------------------------------------------------------------------------------

    @cached_property
    def pairs(self) -> LinearPart | None:
        """The scores of the options' statements, which are not fitted to the rows; None for a task without statements,
        and if there are too many rows."""
        if self.task.option_set is None or len(self.targets) * self.task.num_outputs > MAX_PAIRS:
            return None
        scores_NC = self.pair_scores("train")
        temperature = self.temperature(scores_NC)
        return LinearPart(strength=0.0, temperature=temperature, scores_NC=scores_NC / temperature)

    def pair_scores(self, split: str) -> Floats:
        """The score of each option for each row of a split, by its statements, [N, C]."""
        assert self.task.option_set is not None
        with muted():
            reader = EncoderBackend(self.task.pretrained, device=self.task.settings.device, dtype="float32")
        return option_scores(reader, self.task.tables[split].texts, self.task.option_set, {})

    @cached_property
    def pairs_alone(self) -> LinearCandidate | None:
        """Statements without a linear model. Its head has no weight."""
        if self.pairs is None:
            return None
        return LinearCandidate(
            name="statements, no training",
            reads=self.task.head_inputs[0],
            word_share=0.0,
            scores_NC=self.pairs.scores_NC,
            pair_share=1.0,
        )

    def with_pairs(self, linear: LinearCandidate, share: float) -> LinearCandidate:
        """A linear model with statements: the weighted mean of their scores."""
        assert self.pairs is not None
        return LinearCandidate(
            name=f"{linear.name}, and statements ({share:.0%})",
            reads=linear.reads,
            word_share=(1 - share) * linear.word_share,
            scores_NC=(1 - share) * linear.scores_NC + share * self.pairs.scores_NC,
            pair_share=share,
        )

    # --- the choice ---------------------------------------------------------------------------------------------------

    @cached_property
    def losses_by_name(self) -> dict[str, np.ndarray]:
        """The loss of each row by candidate, [N]."""
        candidates = [*self.heads_alone, *self.candidates]
        return {candidate.name: self.losses(candidate.scores_NC) for candidate in candidates}

    @cached_property
    def chosen(self) -> LinearCandidate:
        """The first candidate, unless another one is better beyond the 95 % interval of the paired difference of their
        losses."""
        if self.is_tfidf:
            assert self.words_alone is not None
            return self.words_alone
        if not self.folds:
            reads = self.task.head_inputs[0]
            return LinearCandidate(
                name=f"{reads.describe()} + {self.method}",
                reads=reads,
                word_share=0.0,
                scores_NC=np.zeros((0, self.task.num_outputs)),
            )
        best = self.candidates[0]
        for candidate in self.candidates[1:]:
            gain_N = self.losses_by_name[best.name] - self.losses_by_name[candidate.name]
            # Statements are known to help where rows are few, which few rows cannot show beyond an interval.
            errors = LIKELY if candidate.pair_share else CERTAIN
            if gain_N.mean() > errors * gain_N.std() / sqrt(len(gain_N)):
                best = candidate
        return best

    @property
    def best_head(self) -> LinearCandidate:
        """The head on the encoder alone with the lowest loss."""
        return min(self.heads_alone, key=lambda candidate: float(self.losses_by_name[candidate.name].mean()))

    @property
    def others(self) -> list[LinearCandidate]:
        """For comparison with the chosen one: TF-IDF, and the best head on the encoder alone; none without folds."""
        if not self.folds:
            return []
        words = [self.words_alone] if self.words_alone else []
        pairs = [self.pairs_alone] if self.pairs_alone else []
        return [*words, *pairs, self.best_head]

    @property
    def mean_output(self) -> float:
        """The mean of the numbers, from which scores are deviations; 0 for classes."""
        if not self.has_numbers:
            return 0.0
        return float(self.task.outputs_of(np.zeros((1, 1)))[0])

    def scored(self, candidate: LinearCandidate) -> LinearCandidate:
        """The candidate with the scores of the folds of the score, by the strengths that were chosen before."""
        scores_NC = np.zeros((len(self.targets), self.task.num_outputs), np.float32)
        if candidate.reads is not None:
            scores_NC += candidate.head_share * self.score_head(candidate.reads)
        if candidate.word_share:
            scores_NC += candidate.word_share * self.word_scores
        if candidate.pair_share:
            assert self.pairs is not None
            scores_NC += candidate.pair_share * self.pairs.scores_NC
        return replace(candidate, scores_NC=scores_NC)

    def score_head(self, reads: HeadInput) -> Floats:
        """Scores of a head, by the folds of the score."""
        if reads not in self.head_scores:
            self.head_scores[reads] = self.score_part(self.features(reads), self.heads[reads], standardize=True)
        return self.head_scores[reads]

    @cached_property
    def word_scores(self) -> Floats:
        """Scores of TF-IDF, by the folds of the score."""
        assert self.gram is not None and self.words is not None
        return self.score_part(self.gram.features_NR, self.words, standardize=False)

    def score_part(self, x_NF: torch.Tensor, part: LinearPart, *, standardize: bool) -> Floats:
        rows = (x_NF, self.fitted_targets)
        scores_1NC = linear_head.out_of_fold(
            rows,
            self.task.row_loss,
            self.task.num_outputs,
            self.score_folds,
            [part.strength],
            standardize=standardize,
        )
        scores_NC: Floats = scores_1NC[0].numpy() / part.temperature
        return scores_NC

    def predictions(self, candidate: LinearCandidate) -> Predictions:
        """Of each row, out-of-fold."""
        return self.task.scoring.predictions("train", self.task.outputs_of(candidate.scores_NC))

    # --- the model of all rows ----------------------------------------------------------------------------------------

    def fit_head(self, candidate: LinearCandidate) -> tuple[TextTask, Checkpoint]:
        """The model of all rows, and the task as it reads it. With TF-IDF, its outputs are the sum of both parts."""
        assert candidate.reads is not None
        task = self.reading(candidate.reads)
        head = self.heads[candidate.reads] if self.folds else None
        strength, temperature = (head.strength, head.temperature) if head else (USUAL_STRENGTH, 1.0)
        rows = (self.features(candidate.reads), self.fitted_targets)
        fitted = linear_head.fit_strength(rows, self.task.row_loss, self.task.num_outputs, strength)
        model = deepcopy(self.initial_checkpoint(candidate.reads))
        scale = candidate.head_share / temperature
        fitted.scaled(scale).write_to(last_layer(model.model, "classes"))
        if self.task.option_set:
            options = replace(self.task.option_set, pair_scale=self.pair_scale(candidate))
            model = replace(model, metadata={DECIDE: options.to_json()})
        return task, model

    def pair_scale(self, candidate: LinearCandidate) -> float:
        """By which the scores of statements are multiplied."""
        return candidate.pair_share / self.pairs.temperature if self.pairs else 0.0

    def fit_words(self, candidate: LinearCandidate) -> TfidfModel:
        """The TF-IDF part of a candidate, fitted to all rows. Of numbers, it gives the deviation from their mean."""
        assert self.gram is not None and self.words is not None
        strength = self.words.strength
        rows = (self.gram.features_NR, self.fitted_targets)
        solution = linear_head.fit_strength(
            rows,
            self.task.row_loss,
            self.task.num_outputs,
            strength,
            standardize=False,
        )
        weights = solution.weight_CH.double().numpy(), solution.bias_C.double().numpy()
        model = self.gram.model(*weights, strength=1 / (strength * len(self.targets)))
        return model.scaled(candidate.word_share * self.task.output_scale / self.words.temperature, 0.0)

    def test_scores(self, candidate: LinearCandidate, model: Checkpoint | None, words: TfidfModel | None) -> Floats:
        """Scores of the test rows by the model of all rows, [N, C]."""
        table = self.task.tables["test"]
        scores_NC = np.zeros((len(table), self.task.num_outputs))
        if candidate.reads is not None:
            assert model is not None
            layer = last_layer(model.model, "classes")
            with torch.no_grad():
                scores_NC += layer(self.features(candidate.reads, "test")).numpy()
        if words is not None:
            scores_NC += words(table.texts, table.pairs) / self.task.output_scale
        if candidate.pair_share:
            scores_NC += self.pair_scale(candidate) * self.pair_scores("test")
        return scores_NC.astype(np.float32)
