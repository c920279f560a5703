"""Tagging in a report: numbers and warnings about the sentences, mistakes, and likely label errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.base.terminal import escape_line
from bothways.measure import report
from bothways.measure.metrics.entities import entity_scores
from bothways.measure.metrics.label_errors import label_errors
from bothways.tasks import training_task
from bothways.tasks.scores import Predictions
from bothways.tasks.tag.examples import sentence_key
from bothways.text.data.splits import overlap_warnings
from bothways.text.data.tags import Sentence, join_words, plain_remark, tags_to_spans, word_starts

if TYPE_CHECKING:
    from bothways.tasks.tag.training import Tagging


@dataclass(frozen=True)
class TagReport(training_task.TaskReport):
    label_issue_criterion: ClassVar[str] = report.CONFIDENT_LEARNING
    label_issue_parts: ClassVar[tuple[str, ...]] = ("span",)
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
