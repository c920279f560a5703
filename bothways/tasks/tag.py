"""Word tagging, such as named entity recognition (NER; Devlin 2018, section 5.3).

The label of a word is predicted at its first piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bothways.base.errors import InputError, RowError, flag, format_count, join_names
from bothways.base.io import is_same_file
from bothways.base.log import logger, muted
from bothways.base.terminal import escape_line
from bothways.measure import metrics, report
from bothways.measure.metrics.entities import entity_scores
from bothways.measure.metrics.label_errors import label_errors
from bothways.settings.finetune import Tag
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats
from bothways.tasks.linear_baselines import most_frequent_tags
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.tag_decoding import Tagset, decode_word_tags, word_probabilities
from bothways.tasks.tag_examples import (
    TaggedTexts,
    TaggedWindows,
    all_words,
    documents_of,
    group_sentences,
    read_sentences,
    read_tagset,
    sentence_key,
    to_iob2,
    transfer_scores,
)
from bothways.tasks.task import (
    LIST,
    Evaluator,
    Item,
    LabelledRows,
    Route,
    Task,
    fact,
    file_given_twice,
    firsts,
)
from bothways.tasks.windows import merge_rows
from bothways.text.batch import Batch
from bothways.text.data.conll import looks_tagged, num_columns
from bothways.text.data.examples import has_tag_columns, read_table, read_tagged
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.split_tables import divide_rows, read_unlabelled
from bothways.text.data.splits import overlap_warnings, parts_for
from bothways.text.data.tags import (
    OUTSIDE,
    Scheme,
    Sentence,
    detect_scheme,
    find_illegal_tag,
    join_words,
    plain_remark,
    tags_to_spans,
    word_starts,
)
from bothways.text.data.word_rows import WORD_NAMES, has_word_columns, names_words
from bothways.text.rows.annotation_files import is_annotation_file
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import file_type, read_lines
from bothways.text.tokenizer.tokenizer import Encoding

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.linear import linear_head
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.task import LoadedModel

MIN_TAGGED_TEXTS = 64  # made of sentences, if there are that many sentences
COLUMNS_OF_BOTH = 3  # words, gold tags and predicted tags, if one CoNLL file has both
ENTITY_METRICS = ("precision", "recall", "f1", "f1_macro", "accuracy")


def target_rows(batch: Batch) -> Tensor:
    """The tokens that have a tag, or one from a teacher, [M]."""
    assert batch.labels is not None
    is_target_T = batch.labels != NO_LABEL
    if batch.soft_labels is not None:
        is_target_T = is_target_T | ~batch.soft_labels[:, 0].isnan()
    return is_target_T.nonzero()[:, 0]


@dataclass(frozen=True)
class TagObjective(training_task.LabelObjective):
    """Cross-entropy of the tags, at the first piece of each word."""

    target = "tags"

    def num_targets(self, batch: Batch) -> int:
        return len(target_rows(batch))

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """Scores of the first pieces, [M, C]."""
        scores_MC: Tensor = module.token_scores("tokens", module(batch)[target_rows(batch)])
        return scores_MC

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.model.losses import classification_loss

        assert batch.labels is not None
        return classification_loss(outputs, batch.labels[target_rows(batch)])

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.model.losses import logits_loss

        assert batch.soft_labels is not None
        soft_labels = batch.soft_labels[target_rows(batch)]
        is_read_M = ~soft_labels[:, 0].isnan()
        return logits_loss(outputs[is_read_M], soft_labels[is_read_M], training_task.TEACHER_TEMPERATURE)


@dataclass(frozen=True)
class TagEvaluator(Evaluator[list[Sentence], list[list[str]]]):
    """Tags of words: F1 of exact entities (NER), or for plain tags accuracy. Rows are sentences that are read together.

    scheme: tag scheme of the gold tags. plain: whether gold or predicted tags are plain, one label per word.
    """

    scheme: Scheme
    plain: bool

    def predict(self, model: LoadedModel, rows: Sequence[list[Sentence]]) -> list[list[list[str]]]:
        """The tags of each sentence of each row."""
        predictions = []
        for row, tags in zip(rows, model.tag_words([all_words(row) for row in rows]), strict=True):
            rest = iter(tags)
            predictions.append([[*islice(rest, len(sentence.words))] for sentence in row])
        return predictions

    def columns(self, rows: Sequence[list[Sentence]], predictions: Sequence[list[list[str]]]) -> tuple[Any, Any, Any]:
        sentences = [*chain.from_iterable(rows)]
        gold = [sentence.tags if self.plain else to_iob2(sentence, self.scheme).tags for sentence in sentences]
        return gold, [*chain.from_iterable(predictions)], documents_of(sentences)

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """gold, predictions: the tags of each sentence, plain or IOB2. units: the document of each sentence."""
        if not self.plain:
            return tag_scores(gold, predictions, "iob2", units, intervals=intervals)
        scores = tag_scores(gold, predictions, "plain", units, intervals=intervals)
        by_name = {name: value for name, value in scores.by_name.items() if name in ("accuracy", "accuracy_interval")}
        counts = {**scores.counts, "words": sum(map(len, gold))}
        return replace(scores, primary="accuracy", by_name=by_name, counts=counts, secondary=None)


@dataclass(frozen=True)
class TagScoring(training_task.Scoring):
    """Scores of all tokens of each window, [S, C]."""

    trivial_baseline: ClassVar[str] = "most frequent tag"
    ragged_outputs: ClassVar[bool] = True
    has_row_losses: ClassVar[bool] = True
    task: Tagging

    @property
    def metric(self) -> str:
        return "accuracy" if self.task.tagset.plain else "f1"

    def forward(self, model: Model, batch: Batch) -> Iterable[Tensor]:
        """Scores of all tokens of each window, [S, C]."""
        return model.token_scores("tokens", model(batch)).split(batch.lengths.tolist())

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """For IOB2 tags precision, recall and F1 of exact entities; for plain tags their accuracy."""
        import torch

        loss = float(torch.cat(self.word_losses(split, outputs)).mean())
        gold = self.gold_tags(split)
        baseline = 0.0
        scores = self.evaluator.compare(gold, self.decode(split, outputs), intervals=False)
        if self.task.tagset.plain:
            tags = [*chain.from_iterable(gold)]
            most_frequent = Counter(chain.from_iterable(self.gold_tags("train"))).most_common(1)[0][0]
            baseline = tags.count(most_frequent) / len(tags)
        return {"loss": loss, **{name: scores[name] for name in ENTITY_METRICS if name in scores}, "baseline": baseline}

    def word_losses(self, split: str, outputs: Sequence[Floats]) -> list[Tensor]:
        """The cross-entropy of each word of each window."""
        import torch
        import torch.nn.functional as F

        return [
            F.cross_entropy(torch.from_numpy(scores_SC[window.rows]), torch.from_numpy(window.labels), reduction="none")
            for window, scores_SC in zip(self.task.data[split].windows, outputs, strict=True)
        ]

    def row_losses(self, split: str, outputs: Sequence[Floats]) -> Tensor:
        """The mean of each window."""
        import torch

        return torch.stack([losses_M.mean() for losses_M in self.word_losses(split, outputs) if len(losses_M)])

    def gold_tags(self, split: str) -> list[list[str]]:
        return [[*sentence.tags] for sentence in self.task.texts[split].sentences]

    def decode(self, split: str, outputs: Sequence[Floats]) -> list[list[str]]:
        """The predicted tags of each sentence."""
        predicted = []
        for text, windows, scores_SC in self.merge_windows(split, outputs):
            tags = iter(decode_word_tags(windows, scores_SC, all_words(text), self.task.tagset))
            predicted += [[next(tags) for _ in sentence.words] for sentence in text]
        return predicted

    def merge_windows(
        self, split: str, outputs: Sequence[Floats]
    ) -> Iterator[tuple[list[Sentence], list[Encoding], Floats]]:
        """Each text, its windows, and the scores of its tokens, [S, C]."""
        rows = iter(outputs)
        for text, windows in zip(self.task.texts[split].texts, self.task.texts[split].encodings, strict=True):
            yield text, windows, merge_rows(windows, [next(rows) for _ in windows])

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        """details: for each word the probability of its tag, the most probable tag, and its probability."""
        details: list[list[Any]] = []
        for text, windows, scores_SC in self.merge_windows(split, outputs):
            probabilities = iter(word_probabilities(windows, scores_SC, all_words(text)).tolist())
            details += [[self.word_details(tag, next(probabilities)) for tag in sentence.tags] for sentence in text]
        return replace(self.build_predictions(split, self.decode(split, outputs)), details=details)

    def word_details(self, tag: str, probabilities: Sequence[float]) -> tuple[float, str, float]:
        names = self.task.tagset.names
        best = max(range(len(names)), key=probabilities.__getitem__)
        return probabilities[names.index(tag)] if tag in names else 0.0, names[best], probabilities[best]

    def build_predictions(self, split: str, predicted: list[list[str]]) -> Predictions:
        """Predicted and gold tags, without details."""
        sentences = self.task.texts[split].sentences
        where = (sentence.where for sentence in sentences)
        groups = documents_of(sentences)
        return Predictions(
            where=[*where],
            gold=self.gold_tags(split),
            predicted=predicted,
            groups=groups,
            details=[None] * len(sentences),
        )

    @property
    def evaluator(self) -> TagEvaluator:
        return TagEvaluator(self.task.tagset.scheme, self.task.tagset.plain)


@dataclass(frozen=True)
class TagView(training_task.ReportView):
    label_issue_criterion: ClassVar[str] = report.CONFIDENT_LEARNING
    label_issue_parts: ClassVar[tuple[str, ...]] = ("span",)
    task: Tagging

    def texts(self, where: Sequence[str]) -> Mapping[str, list[Any]]:
        """The words of a sentence, separated by spaces."""
        return {"text": [" ".join(self.sentence_by_location[one].words) for one in where]}

    def shown(self, labels: list[Any]) -> list[Any]:
        return [*map(" ".join, labels)]

    def sections(self, predictions: Predictions) -> list[report.Section]:
        if self.task.tagset.plain:
            # Tags that are missing from train have a row too.
            gold_tags = [*chain.from_iterable(predictions.gold)]
            predicted_tags = [*chain.from_iterable(predictions.predicted)]
            names = sorted({*gold_tags, *predicted_tags})
            confusion = report.ConfusionMatrix.from_names(names, gold_tags, predicted_tags)
            return [confusion, report.LabelScores(confusion.scores)]

        by_type = entity_scores(predictions.gold, predictions.predicted, "iob2")["by_type"]
        label_scores = [
            report.LabelScore(
                label=label,
                precision=values["precision"],
                recall=values["recall"],
                f1=values["f1"],
                support=int(values["support"]),
            )
            for label, values in by_type.items()
        ]

        mistakes = []
        for where, gold, predicted in zip(predictions.where, predictions.gold, predictions.predicted, strict=True):
            if gold != predicted:
                words = self.sentence_by_location[where].words
                mistakes.append(
                    report.TagMistake(
                        text=join_words(words),
                        gold=entity_spans(words, gold),
                        predicted=entity_spans(words, predicted),
                        where=where,
                    )
                )

        return [report.LabelScores(label_scores), report.TagMistakes(mistakes, len(predictions.where))]

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        """Likely label errors, word by word."""
        known = {*self.task.tagset.names}
        words = [
            (row, index, tag)
            for row, tags in enumerate(predictions.gold)
            for index, tag in enumerate(tags)
            if tag in known
        ]

        probabilities = []
        for row, index, tag in words:
            tag_probability, best, best_probability = predictions.details[row][index]
            probabilities.append({best: best_probability, tag: tag_probability})

        issues = []
        for error in label_errors([tag for _, _, tag in words], probabilities):
            row, index, _ = words[error.row]
            sentence = self.sentence_by_location[predictions.where[row]]
            text = join_words(sentence.words)
            span = word_span(sentence.words, index)
            issues.append(training_task.label_issue(error, sentence.where, text, span=span))

        return issues

    @cached_property
    def sentence_by_location(self) -> dict[str, Sentence]:
        """Sentences by location."""
        return {sentence.where: sentence for texts in self.task.texts.values() for sentence in texts.sentences}


@dataclass(frozen=True)
class TagSummary(training_task.Summary):
    task: Tagging

    def num_rows(self, split: str) -> int:
        return len(self.task.texts[split].sentences)

    def lengths(self, split: str) -> Sequence[int]:
        return self.task.texts[split].lengths

    def lines(self) -> Iterator[str]:
        for split, tagged in self.task.texts.items():
            num_words = sum(len(sentence.words) for sentence in tagged.sentences)
            spans = (tags_to_spans(sentence.tags, self.task.tagset.scheme) for sentence in tagged.sentences)
            counts = Counter(span.label for span in chain.from_iterable(spans))
            labels = ", ".join(f"{escape_line(label)} {count:,}" for label, count in sorted(counts.items()))
            yield (
                f"{split}: {len(tagged.sentences):,} sentences of {num_words:,} words, read as "
                f"{len(tagged.texts):,} texts, {training_task.describe_lengths(tagged.lengths)}; "
                f"{tagged.num_long:,} read in windows\n  {labels}"
            )

    @property
    def warnings(self) -> list[str]:
        sentences = {split: tagged.sentences for split, tagged in self.task.texts.items()}
        keys = {split: [*map(sentence_key, rows)] for split, rows in sentences.items()}
        warnings = [*self.task.notes, *overlap_warnings(keys)]
        if self.task.tagset.plain and self.task.settings.scheme == "auto":
            warnings.append(plain_remark(sentence.tags for sentence in sentences["train"]))

        for split, rows in sentences.items():
            if unknown := Counter(tag for row in rows for tag in row.tags if tag not in self.task.tagset.names):
                examples = ", ".join([*unknown][:9])
                warnings.append(
                    f"{split}: {unknown.total():,} words have tags that are not in train ({examples}), so none of them "
                    "can be predicted"
                )

        for split, illegal in self.task.illegal.items():
            if illegal:
                warnings.append(
                    f"{split}: {len(illegal):,} of {len(sentences[split]):,} sentences have tags that the scheme does "
                    f"not allow, the first at {illegal[0].where}; they are read as in conlleval"
                )

        return warnings


@dataclass(frozen=True)
class Tagging(training_task.TrainingTask):
    """Sentences with a tag for each word: IOB2 for entities, or plain.

    illegal: sentences of dev and test with tags that the scheme does not allow. notes: rows that were skipped.
    """

    name: ClassVar[str] = "tag"
    min_step_tokens: ClassVar[int] = 512
    settings: Tag
    pretrained: Checkpoint
    tagset: Tagset
    texts: Mapping[str, TaggedTexts]
    data: Mapping[str, TaggedWindows]
    illegal: Mapping[str, list[Sentence]]
    notes: Sequence[str] = ()
    hint: str = ""
    # Heads by the fingerprint of the model below them: the baseline and all seeds share one.
    fitted_heads: dict[str, linear_head.LinearHead] = field(default_factory=dict)

    @staticmethod
    def build(
        settings: Tag, pretrained: Checkpoint, sentences: Mapping[str, list[Sentence]], notes: Sequence[str] = ()
    ) -> Tagging:
        scheme, tagset, converted = read_tagset(sentences, settings.scheme, settings.train, folds=bool(settings.folds))
        tokenizer, policy = training_task.text_reader(settings.windows, pretrained)
        texts = {}
        for split, rows in converted.items():
            grouped = group_sentences(rows, tokenizer, policy.size if settings.context else 0)
            texts[split] = TaggedTexts.read([*grouped], tokenizer, policy, tagset, strict=split == "train")

        data = {split: tagged.examples for split, tagged in texts.items()}
        illegal = {
            split: [sentence for sentence in rows if find_illegal_tag(sentence.tags, scheme)]
            for split, rows in sentences.items()
        }

        hint = f"; read sentences one by one ({flag('context', False)}), or add more" if settings.context else ""
        return Tagging(
            settings=settings,
            pretrained=pretrained,
            tagset=tagset,
            texts=texts,
            data=data,
            illegal=illegal,
            notes=notes,
            hint=hint,
        )

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        from bothways.model.checkpoint.changes import new_head

        return new_head.with_head(
            self.pretrained,
            "tokens",
            self.tagset.names,
            seed=seed,
            dropout=self.settings.dropout,
            is_fitted=self.settings.linear_start,
        )

    def fit_head(self, model: Model, splits: Sequence[str] = ("train",)) -> None:
        """Fit the head to labelled tokens of train, which are always enough without the other splits."""
        from bothways.model.parameters import fingerprint_weights
        from bothways.tasks.forward import last_layer, without_last_layer
        from bothways.tasks.linear_start import fit_linear_head

        features = without_last_layer(self.inference_copy(model), "tokens")
        key = fingerprint_weights(features)
        if key not in self.fitted_heads:
            self.fitted_heads[key] = fit_linear_head(
                features,
                self.data,
                self.texts["train"].documents,
                len(self.tagset.names),
            )
        self.fitted_heads[key].write_to(last_layer(model, "tokens"))

    def metadata(self, metrics_by_split: Mapping[str, training_task.Metrics]) -> dict[str, str]:
        return {"scheme": self.tagset.scheme}

    @property
    def objective(self) -> TagObjective:
        return TagObjective()

    def read_by(self, teacher: Checkpoint) -> Tagging:
        from bothways.tasks.forward import with_labels

        training_task.check_task(teacher, self.name, self.settings.teacher)
        teacher = with_labels(teacher, "tokens", self.tagset.names, self.settings.teacher)
        texts = {
            split: TaggedTexts.read(
                tagged.texts,
                *training_task.text_reader(self.settings.windows, teacher),
                self.tagset,
                strict=False,
            )
            for split, tagged in self.texts.items()
        }
        data = {split: tagged.examples for split, tagged in texts.items()}
        return replace(self, pretrained=teacher, texts=texts, data=data)

    def soft_labels(self, reader: training_task.TrainingTask, outputs: Sequence[Floats]) -> list[Tensor]:
        """The teacher's scores for each window, [S, C]; NaN for tokens that the teacher gives no tag."""
        import torch

        assert isinstance(reader, Tagging)
        soft_labels = []
        merged = reader.scoring.merge_windows("train", outputs)
        for student_windows, (text, windows, scores_SC) in zip(
            self.texts["train"].windows_by_text, merged, strict=True
        ):
            soft_labels += [
                *map(torch.from_numpy, transfer_scores(windows, scores_SC, student_windows, all_words(text)))
            ]
        return soft_labels

    def with_unlabelled(self) -> Tagging:
        table = read_unlabelled(self.settings, pairs=False)
        reader = training_task.text_reader(self.settings.windows, self.pretrained)
        added = TaggedTexts.unlabelled(table, *reader, self.tagset, context=self.settings.context)
        train = self.texts["train"]
        texts = {
            **self.texts,
            "train": TaggedTexts(train.texts + added.texts, train.windows_by_text + added.windows_by_text),
        }
        return replace(self, texts=texts, data={**self.data, "train": texts["train"].examples})

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        train = self.texts["train"].sentences
        sentences = self.texts[split].sentences
        predicted = most_frequent_tags(train, sentences, plain=self.tagset.plain)
        yield training_task.Baseline("most frequent tag per word", self.scoring.build_predictions(split, predicted))
        with muted():
            model = self.initial_checkpoint(self.settings.seed).model
        self.fit_head(model)
        outputs = self.scoring.outputs(self.inference_copy(model), split)
        yield training_task.Baseline("frozen states + logistic regression", self.scoring.predictions(split, outputs))

    scoring = cached_property(TagScoring)
    view = cached_property(TagView)
    summary = cached_property(TagSummary)


def read_splits(settings: Tag, errors: RowErrors | None = None, fold: int | None = None) -> dict[str, list[Sentence]]:
    """Sentences by split. A file is split by whole documents, or by groups of near-duplicate sentences if documents are
    not marked or have one sentence each.

    errors: collects rows that cannot be read; InputError if there are any and they must not be skipped. fold: the test
    fold in cross-validation.
    """
    columns = {"words": settings.words_column, "tags": settings.tags_column, "encoding": settings.encoding}
    scheme: Scheme = "iob2" if settings.scheme == "auto" else settings.scheme
    errors = errors or RowErrors(settings.on_error)

    splits = {
        split: read_tagged(source, **columns, scheme=scheme, errors=errors)
        for split, source in settings.sources.items()
    }
    errors.notes(len(splits["train"]))

    if "dev" in splits:
        return splits

    sentences = splits["train"]
    documents = [sentence.document for sentence in sentences]
    are_single = None in documents or len(set(documents)) == len(documents)
    groups = [*map(sentence_key, sentences)] if are_single else documents
    rows_by_split = divide_rows(settings, groups, parts_for(splits), fold, of="documents")
    return {**splits, **{split: [sentences[row] for row in rows] for split, rows in rows_by_split.items()}}


def entity_spans(words: Sequence[str], tags: Sequence[str]) -> list[report.Highlight]:
    """Entities as characters of join_words(words)."""
    starts = word_starts(words)
    return [
        report.Highlight(starts[span.first], starts[span.last - 1] + len(words[span.last - 1]), span.label)
        for span in tags_to_spans(tags, "iob2")
    ]


def word_span(words: Sequence[str], index: int) -> report.Highlight:
    """A word as characters of join_words(words)."""
    start = word_starts(words)[index]
    return report.Highlight(start, start + len(words[index]))


# --- with a model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntityEvaluator(Evaluator[str, list[tuple[str, int, int]]]):
    """Named entities in texts without labels: the percentage of texts with the same entities as the reference."""

    agreement = "same entities"

    def predict(self, model: LoadedModel, rows: Sequence[str]) -> list[list[tuple[str, int, int]]]:
        entities = model.tag(rows)
        return [[(entity.label, entity.start, entity.end) for entity in text] for text in entities]


def tag_scores(
    gold: Sequence[Sequence[str]],
    predictions: Sequence[Sequence[str]],
    scheme: Scheme,
    documents: Sequence[str],
    *,
    intervals: bool = True,
) -> Scores:
    """Precision, recall and F1 of exact entities, and the accuracy of tags."""
    bounds = metrics.entity_intervals(gold, predictions, scheme, documents) if intervals else None
    scores = metrics.entity_scores(gold, predictions, scheme)
    return Scores.with_intervals("f1", scores, bounds, counts={"sentences": len(gold)}, secondary="accuracy")


def tag_items(
    model: LoadedModel, items: Sequence[Item], reading: Mapping[str, Any], *, min_score: float | None = None
) -> Sequence[Any]:
    """The entities of each text as JSON. min_score: leave out entities of a lower score."""
    found = model.tag(firsts(items), min_score=min_score, **reading)
    return [[entity.to_json() for entity in entities] for entities in found]


class TagTask(Task):
    """The entities of each text, or a label for each word."""

    name = "tag"
    gold = "tags"
    inputs = "single texts"
    options = frozenset({"min_score"})
    route = "/tag"
    routes = (
        Route(
            path="/tag",
            summary="Entities of a text",
            answer=LIST,
            reads="texts",
            compute=tag_items,
            shares=("min_score",),
        ),
    )

    def train(self, settings: Tag, pretrained: Checkpoint, fold: int | None) -> Tagging:
        errors = RowErrors(settings.on_error)
        sentences = read_splits(settings, errors, fold)
        return Tagging.build(settings, pretrained, sentences, errors.notes(len(sentences["train"])))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Sentences are read with their neighbours if the model was fine-tuned that way."""
        if need_labels:
            return read_tagged_rows(model, files, columns, columns.scheme)
        (file,) = files
        if not is_tagged(file, model.labels, columns.encoding):
            table = read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding)
            return LabelledRows(EntityEvaluator(), table.texts, labelled=False)
        names = SimpleNamespace(words_column=None, tags_column=columns.label_column, encoding=columns.encoding)
        return read_tagged_rows(model, [file], names, min_rows=MIN_TAGGED_TEXTS)

    def predict_rows(
        self, model: LoadedModel, rows: Sequence[ModelInput], *, min_score: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """The entities of each text; with `min_score` those whose score is not lower."""
        found = tag_items(model, [(row.text, None) for row in rows], options, min_score=min_score)
        return [{"entities": entities} for entities in found]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        return {"entities": [{"label": str, "text": str, "start": int, "end": int, "score": float}]}

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        return [
            [fact("entity", one.label, one.text, start=one.start, end=one.end, score=one.score) for one in entities]
            for entities in model.tag(texts, min_score=min_score)
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Tags of the same words, in the last column. If both files are the same CoNLL file, the gold tags are in the
        second-to-last column."""
        tags_column = columns.tags_column
        is_same = is_same_file(predictions, gold)
        is_table = has_tag_columns(gold, None, tags_column, columns.encoding) or file_type(gold) == ".json"

        if is_same and is_table:
            raise file_given_twice(gold, "a table has one column of tags")
        if is_same and tags_column is not None:
            raise InputError(
                f"{gold}: {flag('tags_column')} ({tags_column}) is the same for gold and predictions; leave it out: "
                "gold tags are read from the second-to-last column, predictions from the last"
            )
        if is_same and (number := num_columns(gold, columns.encoding)) < COLUMNS_OF_BOTH:
            found = format_count(number, "column")
            raise file_given_twice(gold, f"it has {found}, and needs three: words, gold tags and predicted tags")

        gold_column = "-2" if is_same else tags_column
        scheme = None if columns.scheme == "auto" else columns.scheme
        named: dict[str, Any] = {
            "words": columns.words_column,
            "scheme": scheme or "iob2",
            "encoding": columns.encoding,
        }

        read = (read_tagged(gold, tags=gold_column, **named), read_tagged(predictions, tags=tags_column, **named))
        return compare_tags(gold, predictions, *read, scheme)


def compare_tags(
    gold_path: Path, path: Path, gold: Sequence[Sentence], predicted: Sequence[Sentence], scheme: Scheme | None
) -> Scores:
    """Entity scores, and how many sentences of gold and predictions break the rules of their scheme."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{path}: {format_count(len(predicted), 'sentence')}, but {gold_path} has {len(gold)}; give the same "
            "words, in order"
        )

    for one, other in zip(gold, predicted, strict=True):
        if one.words != other.words:
            words = f"{beginning(other)} is not {beginning(one)} of {one.where}"
            raise InputError(f"{other.where}: {words}; give the same words, in order")

    if scheme is None:
        scheme = detect_scheme([sentence.tags for sentence in gold])
        if scheme == "plain":
            logger.warning(f"{gold_path}: {plain_remark(sentence.tags for sentence in gold)}")

    for sentence in (*gold, *predicted):
        check_spans(sentence, scheme)
    predicted_scheme = scheme if scheme == "plain" else detect_scheme([sentence.tags for sentence in predicted])

    gold_tags = [sentence.tags for sentence in gold]
    predicted_tags = [sentence.tags for sentence in predicted]
    scores = tag_scores(gold_tags, predicted_tags, scheme, documents_of(gold))

    details = {
        "scheme": scheme,
        "illegal_gold": sum(find_illegal_tag(tags, scheme) is not None for tags in gold_tags),
        "illegal_predicted": sum(find_illegal_tag(tags, predicted_scheme) is not None for tags in predicted_tags),
    }
    return replace(scores, counts={**scores.counts, **details})


def beginning(sentence: Sentence, limit: int = 5) -> str:
    words = " ".join(sentence.words[:limit])
    return f"{words!r}{' ...' if len(sentence) > limit else ''} ({format_count(len(sentence), 'word')})"


def check_spans(sentence: Sentence, scheme: Scheme) -> None:
    try:
        tags_to_spans(sentence.tags, scheme)
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def read_tagged_rows(
    model: LoadedModel,
    files: Iterable[TableSource],
    columns: object,
    requested: Scheme | Literal["auto"] = "auto",
    *,
    min_rows: int = 0,
) -> LabelledRows:
    """The tagged sentences of files. Neighbours are read together if the model was fine-tuned that way.

    columns: has words_column, tags_column and encoding. min_rows: read fewer neighbours together if there would be
    fewer rows. InputError for tags of another kind than the model's.
    """
    trained = model.description.settings
    is_plain = model.description.metadata.get("scheme") == "plain"
    written: Scheme = "plain" if is_plain else "iob2" if requested == "auto" else requested

    by_file = [read_sentences(file, columns, trained, written) for file in files]
    sentences = [*chain.from_iterable(by_file)]
    scheme = detect_scheme([sentence.tags for sentence in sentences]) if requested == "auto" else requested
    if not is_plain:
        check_entity_tags(sentences, scheme, model.labels)

    evaluator = TagEvaluator(scheme, plain=is_plain or scheme == "plain")
    counts = {}
    if not evaluator.plain:
        counts["illegal_gold"] = sum(find_illegal_tag(sentence.tags, scheme) is not None for sentence in sentences)

    window = model.window_policy.size if trained.get("context") else 0
    while True:
        rows = [row for file in by_file for row in group_sentences(file, model.tokenizer, window)]
        if len(rows) >= min(min_rows, len(sentences)):
            return LabelledRows(evaluator=evaluator, rows=rows, labelled=True, counts=counts)
        window //= 2


def check_entity_tags(sentences: Sequence[Sentence], scheme: Scheme, labels: Sequence[str]) -> None:
    """InputError for tags without a prefix that are not the model's, or if the model has none of the entity types.

    Single unknown types are allowed: the model misses their entities.
    """
    is_plain = scheme == "plain"
    known = {*labels} if is_plain else {entity_type(label) for label in labels}
    tagged = [(sentence.where, tag) for sentence in sentences for tag in sentence.tags if tag != OUTSIDE]
    unknown = [(where, tag) for where, tag in tagged if (tag if is_plain else entity_type(tag)) not in known]
    if unknown and (is_plain or len(unknown) == len(tagged)):
        where, tag = unknown[0]
        way_out = "write it with B- and I-" if is_plain else "fix the tags"
        if all(tag.isdecimal() for _, tag in tagged):
            way_out = "tags are numbers without names, so write their names"
        raise RowError(
            where,
            f"tag {tag!r} is not an entity tag of the model, which was trained on {join_names(labels)}; {way_out}",
        )


def entity_type(tag: str) -> str:
    """A tag without the prefix of its scheme."""
    return tag[2:] if tag[1:2] == "-" else tag


def is_tagged(file: TableSource, labels: Sequence[str], encoding: str | None) -> bool:
    """Whether a file has tags: in named columns a list of words, else lines that end in one of the model's tags."""
    if is_annotation_file(file):
        return True
    rows = open_rows(file, encoding)
    if rows.form.has_names:
        _, values = next(rows.read(), (None, {}))
        return has_word_columns([*values]) or any(isinstance(value, list) for value in values.values())
    assert isinstance(file, Path)
    if names_words(file, encoding, WORD_NAMES) or looks_tagged(file, encoding):
        return True
    fields = next((line.split() for _, line in read_lines(file, encoding) if line.strip()), [])
    return len(fields) > 1 and (fields[-1] in (*labels, OUTSIDE) or fields[0] == "-DOCSTART-")


TAG = TagTask()
