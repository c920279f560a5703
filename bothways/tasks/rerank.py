"""Reranking: a cross-encoder that reads a query and a passage together and gives one score (Nogueira and Cho 2019).

It learns the order of the passages that a search has found, so its baseline is that order: no reranking. An example is
a query, whose passages are scored together. A step reads some of them, drawn anew in each epoch; inference reads all.

Letters: N passages of L queries.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from bothways.base.errors import InputError, flag, format_count
from bothways.base.rng import Purpose, generator
from bothways.measure import metrics
from bothways.model.linear.tfidf import MAX_TERMS, Tfidf
from bothways.settings.finetune import Rerank
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import training_task
from bothways.tasks.arrays import Floats
from bothways.tasks.regress import RegressTask
from bothways.tasks.rerank_decoding import WEIGHTS, Reranking
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import LabelledRows
from bothways.tasks.text_examples import MAX_PAIR_TOKENS, TRAIN_WINDOWS, TextExamples
from bothways.tasks.text_rows import TextEvaluator
from bothways.tasks.windows import WindowPolicy
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.data.model_inputs import ModelInput, resolve_columns
from bothways.text.data.rankings import RankedPassages, ranks_by_score, read_rankings
from bothways.text.data.split_tables import divide_rows
from bothways.text.data.splits import overlap_warnings
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.task import LoadedModel

TOP = 10  # places of a ranking that are scored
NDCG = f"ndcg@{TOP}"
MRR = f"mrr@{TOP}"
NO_RERANKING = "no reranking"
BY_TFIDF = "order by TF-IDF"
STEP_QUERIES = 8  # of a step, at least
MICRO_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class RankBatch(Batch):
    """The windows of the passages of L queries, each read together with its query. labels [N]: of the passages, nan
    for those without; list_sizes [L]: how many passages each query has, which follow each other."""

    list_sizes: Tensor | None = None


@dataclass(frozen=True)
class RankExamples:
    """texts: each query with one of its passages, as a pair. lists: the rows of each query among them."""

    texts: TextExamples
    lists: list[list[int]]

    @staticmethod
    def encode(table: RankedPassages, tokenizer: Tokenizer, policy: WindowPolicy) -> RankExamples:
        """policy: how long passages are split."""
        labels = np.array([np.nan if label is None else label for label in table.labels], np.float32)
        pairs = Table(
            texts=table.queries,
            pairs=table.passages,
            labels=None,
            where=table.where,
            groups=table.units,
        )
        return RankExamples(TextExamples.encode(pairs, labels, tokenizer, policy), table.lists)

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each query with all its passages."""
        return [sum(self.texts.sizes[row] for row in rows) for rows in self.lists]

    @property
    def num_passages(self) -> list[int]:
        return [len(rows) for rows in self.lists]

    def batch(self, rows: Sequence[int]) -> RankBatch:
        """All windows of the passages of these queries, sorted by length."""
        import torch

        lists = [self.lists[row] for row in rows]
        batch = self.texts.batch([row for passages in lists for row in passages])
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        return RankBatch(**values, list_sizes=torch.tensor([len(passages) for passages in lists]))

    def learnable(self) -> RankExamples:
        """Only the queries that have a relevant passage and one that is not."""
        labels_N = self.texts.targets
        kept = [rows for rows in self.lists if (labels_N[rows] > 0).any() and (labels_N[rows] == 0).any()]
        return replace(self, lists=kept)

    def sample(self, size: int, *, seed: int, epoch: int) -> RankExamples:
        """The same queries with at most `size` judged passages each: relevant ones in up to half of the places (more,
        if there are few others), and a random window of each long passage."""
        sampled = []
        for number, rows in enumerate(self.lists):
            draw = generator(seed, Purpose.NEGATIVES, epoch, number)
            order = [rows[place] for place in draw.permutation(len(rows)).tolist()]
            relevant = [row for row in order if self.texts.targets[row] > 0]
            others = [row for row in order if self.texts.targets[row] == 0]
            num_relevant = max(1, size // 2, size - len(others))
            chosen = relevant[:num_relevant]
            sampled.append([*chosen, *others[: size - len(chosen)]])
        return RankExamples(self.texts.sample_windows(TRAIN_WINDOWS, seed=seed, epoch=epoch), sampled)

    def describe(self) -> str:
        labels_N = self.texts.targets
        num_relevant = sum(int((labels_N[rows] > 0).sum()) for rows in self.lists)
        num_long = int((self.texts.windows.num_windows > 1).sum())
        lengths = training_task.describe_lengths(self.texts.lengths, "tokens with the query")
        return (
            f"{len(self.lists):,} queries with {len(labels_N):,} passages, {num_relevant:,} of them relevant, "
            f"{lengths}; {num_long:,} read in windows"
        )


@dataclass(frozen=True)
class ListObjective(training_task.LabelObjective):
    """The ranking of the passages of each query, among each other."""

    target = "queries"

    def num_targets(self, batch: Batch) -> int:
        return len(_list_sizes(batch))

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """The score of each passage, [N]."""
        from bothways.tasks.forward import pool_over_windows, window_vectors

        x_WH = window_vectors(module, batch, MAX_PAIR_TOKENS)
        scores_N1: Tensor = module.text_scores("classes", pool_over_windows(x_WH, batch))
        return scores_N1[:, 0]

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import list_loss

        assert batch.labels is not None
        return list_loss(outputs, batch.labels, _list_sizes(batch))

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import list_distance

        assert batch.soft_labels is not None
        return list_distance(outputs, batch.soft_labels, _list_sizes(batch))


def _list_sizes(batch: Batch) -> list[int]:
    assert isinstance(batch, RankBatch) and batch.list_sizes is not None
    sizes: list[int] = batch.list_sizes.tolist()
    return sizes


@dataclass(frozen=True)
class ListScoring(training_task.Scoring):
    """The scores of the passages of each query, [L][n]. The order that is scored is the combined one."""

    trivial_baseline: ClassVar[str] = NO_RERANKING
    task: RerankTraining

    @property
    def metric(self) -> str:
        return NDCG

    def forward(self, model: Model, batch: Batch) -> Sequence[Tensor]:
        return self.task.objective.forward(model, batch).split(_list_sizes(batch))

    def outputs(self, model: Model, split: str) -> Sequence[Floats]:
        """The scores of the passages of each query. Those of a model that was scored last are known: every passage of
        dev and test takes longer than a step, and the last evaluation, the scores and the report need the same."""
        from bothways.model.parameters import fingerprint_weights

        if self.task.settings.quantize:
            return super().outputs(model, split)
        weights = fingerprint_weights(model)
        if self.task.scored.get(split, ("", ()))[0] != weights:
            self.task.scored[split] = weights, super().outputs(model, split)
        return self.task.scored[split][1]

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """On dev, the weight of the model's scores is chosen."""
        if split == "dev":
            values = {weight: self.mean_ndcg(split, outputs, weight) for weight in self.weights}
            self.task.choice["weight"] = max(self.weights, key=values.__getitem__)
        scores = self.query_scores(split, self.combined(split, outputs, self.task.reranking.weight))
        return {
            "loss": self.loss(split, outputs),
            NDCG: fmean(values[NDCG] for values in scores.values()),
            MRR: fmean(values[MRR] for values in scores.values()),
            "weight": self.task.reranking.weight,
            "baseline": fmean(values[NDCG] for values in self.query_scores(split, self.found(split)).values()),
        }

    @property
    def weights(self) -> Sequence[float]:
        """Those that dev chooses from: only the model's own order, if no search has ranked the rows."""
        return WEIGHTS if self.task.rows["dev"].has_ranks else WEIGHTS[:1]

    def mean_ndcg(self, split: str, outputs: Sequence[Floats], weight: float) -> float:
        scores = self.query_scores(split, self.combined(split, outputs, weight))
        return fmean(values[NDCG] for values in scores.values())

    def loss(self, split: str, outputs: Sequence[Floats]) -> float:
        import torch

        from bothways.tasks.losses import list_loss

        scores_N = torch.from_numpy(np.concatenate(outputs))
        labels_N = torch.from_numpy(self.task.data[split].texts.targets)
        total, _ = list_loss(scores_N, labels_N, self.task.data[split].num_passages)
        return float(total) / len(outputs)

    def combined(self, split: str, outputs: Sequence[Floats], weight: float) -> list[float | None]:
        """The number that orders each passage, [N]; None for one that the search did not find."""
        reranking = Reranking(weight)
        ranks = self.task.ranks(split)
        scores = np.concatenate(outputs).tolist()
        return [
            None if rank is None else reranking.combined(score, rank) for score, rank in zip(scores, ranks, strict=True)
        ]

    def found(self, split: str) -> list[float | None]:
        """The number that orders each passage without reranking, [N]; None for one that the search did not find."""
        return [None if rank is None else -float(rank) for rank in self.task.ranks(split)]

    def query_scores(self, split: str, values: Sequence[float | None]) -> dict[str, dict[str, float]]:
        rows = self.task.rows[split]
        return ranked_scores(rows.labels, values, rows.units)

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        return self.scored(split, self.combined(split, outputs, self.task.reranking.weight))

    def scored(self, split: str, values: Sequence[float | None]) -> Predictions:
        """The scores of each query, whose passages are ordered by these values."""
        scores = self.query_scores(split, values)
        where = [*scores]
        return Predictions(
            where=where,
            gold=[None] * len(where),
            predicted=[*scores.values()],
            groups=where,
            details=[None] * len(where),
        )

    def score_predictions(self, predictions: Predictions) -> Scores:
        return scores_of_queries(predictions.predicted)


@dataclass(frozen=True)
class RankSummary(training_task.Summary):
    task: RerankTraining

    def num_rows(self, split: str) -> int:
        """The number of queries that have a relevant passage."""
        rows = self.task.rows[split]
        return len({unit for unit, label in zip(rows.units, rows.labels, strict=True) if label})

    def lengths(self, split: str) -> Sequence[int]:
        return self.task.data[split].texts.lengths

    def lines(self) -> Iterator[str]:
        yield from (f"{split}: {examples.describe()}" for split, examples in self.task.data.items())
        untrained = []
        for split in self.task.data:
            if split != "train":
                scores = self.task.scoring.scored(split, self.task.scoring.found(split))
                untrained.append(f"{split} {NDCG} {self.task.scoring.score_predictions(scores)[NDCG]:.4f}")
        yield f"{NO_RERANKING}: {', '.join(untrained)}"

    @property
    def warnings(self) -> list[str]:
        tables = self.task.rows
        warnings = [*dict.fromkeys(note for table in tables.values() for note in table.notes)]
        warnings += overlap_warnings({split: [*dict.fromkeys(table.keys)] for split, table in tables.items()})
        if not tables["train"].has_ranks:
            warnings.append(
                f"no column has the rank or the score of a search; {NO_RERANKING!r} is the {BY_TFIDF} of the passages"
            )
        unused = len(tables["train"].lists) - len(self.task.data["train"].lists)
        if unused:
            warnings.append(
                f"{format_count(unused, 'query', 'queries')} of train are left out: they have no relevant passage, or "
                "no other one"
            )
        return warnings


@dataclass(frozen=True)
class RerankTraining(training_task.TrainingTask):
    """Queries with their passages.

    choice: what dev chooses, by name: the weight of the model's score. scored: by split, the fingerprint of the model
    that was scored last, and its scores.
    """

    name: ClassVar[str] = "rerank"
    max_micro_batch_tokens: ClassVar[float] = MICRO_BATCH_TOKENS
    min_step_examples: ClassVar[int] = STEP_QUERIES
    min_steps: ClassVar[int] = 150
    initial_model: ClassVar[str] = ""
    keeps_start: ClassVar[str] = NO_RERANKING
    settings: Rerank
    pretrained: Checkpoint
    rows: Mapping[str, RankedPassages]
    data: Mapping[str, RankExamples]
    choice: dict[str, float] = field(default_factory=dict)
    scored: dict[str, tuple[str, Sequence[Floats]]] = field(default_factory=dict)

    @staticmethod
    def build(settings: Rerank, pretrained: Checkpoint, rows: Mapping[str, RankedPassages]) -> RerankTraining:
        reader = training_task.text_reader(settings.windows, pretrained)
        data = {split: RankExamples.encode(table, *reader) for split, table in rows.items()}
        data["train"] = data["train"].learnable()
        if not data["train"].lists:
            raise InputError(
                f"{settings.train}: no query has both a relevant passage (label above 0) and another one (label 0); "
                f"add rows, or give {flag('pairs')} and {flag('negatives_from')}"
            )
        return RerankTraining(settings=settings, pretrained=pretrained, rows=rows, data=data)

    @property
    def reranking(self) -> Reranking:
        """How the model reranks, with the weight that dev chose last."""
        if not self.rows["dev"].has_ranks:
            return Reranking()
        deepest = max((rank for rank in self.rows["dev"].ranks if rank is not None), default=None)
        return Reranking(self.choice.get("weight", 1.0), deepest)

    def ranks(self, split: str) -> list[int | None]:
        """The place of each passage in the search; without a search, in the order by TF-IDF."""
        table = self.rows[split]
        return table.ranks if table.has_ranks else ranks_by_score(table, self.cosines[split])

    @cached_property
    def cosines(self) -> dict[str, list[float]]:
        """The cosines of the TF-IDF vectors of query and passage, by split but train."""
        train = self.rows["train"]
        tfidf, _ = Tfidf.learn([*dict.fromkeys([*train.queries, *train.passages])], MAX_TERMS)
        cosines = {}
        for split, table in self.rows.items():
            if split != "train":
                queries = tfidf(table.queries).to_scipy()
                passages = tfidf(table.passages).to_scipy()
                cosines[split] = np.asarray(queries.multiply(passages).sum(1)).ravel().tolist()
        return cosines

    def training_examples(self, seed: int, epoch: int) -> RankExamples:
        return self.data["train"].sample(self.settings.negatives + 1, seed=seed, epoch=epoch)

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        from bothways.model.checkpoint.changes.new_head import with_head

        return with_head(
            self.pretrained,
            "classes",
            (),
            seed=seed,
            num_outputs=1,
            dropout=self.settings.dropout,
            pooling=self.settings.pooling,
            near_identity=True,
        )

    @property
    def objective(self) -> ListObjective:
        return ListObjective()

    def read_by(self, teacher: Checkpoint) -> RerankTraining:
        raise InputError(f"teacher ({self.settings.teacher}): a reranker has none yet; leave it out")

    def with_unlabelled(self) -> RerankTraining:
        raise InputError(f"unlabelled ({self.settings.unlabelled[0]}): a reranker has no use for it; leave it out")

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        """The order of the search, and that by TF-IDF."""
        scoring = self.scoring
        yield training_task.Baseline(NO_RERANKING, scoring.scored(split, scoring.found(split)))
        if self.rows[split].has_ranks:
            ranks = self.rows[split].ranks
            cosines = [
                None if rank is None else cosine for cosine, rank in zip(self.cosines[split], ranks, strict=True)
            ]
            yield training_task.Baseline(BY_TFIDF, scoring.scored(split, cosines))

    def metadata(self, metrics_by_split: Mapping[str, training_task.Metrics]) -> dict[str, Any]:
        weight = metrics_by_split["dev"].get("weight", 1.0)
        return {"reads_pairs": True, **replace(self.reranking, weight=weight).to_json()}

    scoring = cached_property(ListScoring)
    summary = cached_property(RankSummary)


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


# --- scores -----------------------------------------------------------------------------------------------------------


def ranked_scores(
    labels: Sequence[float | None], values: Sequence[float | None], units: Sequence[Hashable]
) -> dict[str, dict[str, float]]:
    """{query: {NDCG: .., MRR: ..}} of each query that has a relevant passage.

    labels: of each passage; None counts as 0. values: what orders it, greater first, equal ones in the order of the
    rows; None: it is in no ranking. units: its query.
    """
    grades: dict[str, dict[str, float]] = {}
    ordered: dict[str, list[tuple[float, str]]] = {}
    for row, (label, value, unit) in enumerate(zip(labels, values, units, strict=True)):
        query = str(unit)
        grades.setdefault(query, {})[str(row)] = label or 0.0
        ranking = ordered.setdefault(query, [])
        if value is not None:
            ranking.append((-value, str(row)))
    # Python's sort is stable, so that equal values stay in the order of the rows.
    rankings = {query: [row for _, row in sorted(found, key=lambda one: one[0])] for query, found in ordered.items()}
    scores = metrics.query_scores(grades, rankings, k=TOP)
    return {query: {name: values[name] for name in (NDCG, MRR)} for query, values in scores.items()}


def scores_of_queries(scores: Sequence[Mapping[str, float]]) -> Scores:
    """The means over queries, with their 95 % intervals."""
    columns = {name: [values[name] for values in scores] for name in (NDCG, MRR)}
    intervals = metrics.mean_intervals(columns, range(len(scores)))
    means = {name: fmean(values) for name, values in columns.items()}
    return Scores.with_intervals(NDCG, means, intervals, counts={"queries": len(scores)}, secondary=MRR)


# --- with a model -----------------------------------------------------------------------------------------------------


class RankedRow(NamedTuple):
    """A query with a passage. label: None without labels. unit: the query. rank: in the search, if it is known."""

    text: str
    pair: str
    label: float | None
    unit: str
    rank: int | None


@dataclass(frozen=True)
class RankEvaluator(TextEvaluator[float]):
    """Reranking: nDCG and MRR of the passages of each query, in the order that the model gives them."""

    agreement: ClassVar[str] = "spearman"
    primary = NDCG
    secondary = MRR

    def predict(self, model: LoadedModel, rows: Sequence[RankedRow]) -> list[float]:  # type: ignore[override]
        scores = model.rerank([row.text for row in rows], [row.pair for row in rows]).tolist()
        reranking = Reranking.of(model.description.metadata)
        return [reranking.combined(score, row.rank) for score, row in zip(scores, rows, strict=True)]

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        scores = [*ranked_scores(gold, predictions, units).values()]
        measured = scores_of_queries(scores)
        return measured if intervals else Scores(NDCG, {name: measured[name] for name in (NDCG, MRR)}, secondary=MRR)

    def agree(self, predictions: Sequence[float], reference: Sequence[float] | None) -> Scores:
        assert reference is not None
        values = metrics.regression(reference, predictions)
        return Scores("spearman", {"spearman": values["spearman"]}, {"texts": len(reference)})


class RerankTask(RegressTask):
    """A score for each query with a passage, by which passages are ordered."""

    name = "rerank"

    def train(self, settings: Rerank, pretrained: Checkpoint, fold: int | None) -> RerankTraining:  # type: ignore[override]
        return RerankTraining.build(settings, pretrained, read_ranking_tables(settings, fold))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Queries with their passages, with the ranks of the search if the table has them."""
        rows = list[RankedRow]()
        for file in files:
            names = resolve_columns(file, columns, model.description.settings, ("text", "pair", "label"))
            named = replace(columns, **{f"{use}_column": name for use, name in names.items()})
            table = read_rankings(file, named)
            rows += map(RankedRow, table.queries, table.passages, table.labels, table.units, table.ranks)
        return LabelledRows(RankEvaluator(), rows, labelled=True)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        texts = [row[0] for row in rows]
        pairs = [row[1] or "" for row in rows]
        return [{"score": score} for score in model.rerank(texts, pairs, **options).tolist()]


RERANK = RerankTask()
