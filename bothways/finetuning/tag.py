"""Fine-tuning a tagger (Devlin 2018, section 5.3): the label of each word is read at its first piece.

A training text is a run of sentences of one document, as many as a window holds, so that each is read with its
neighbours and no token is computed twice.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways import report
from bothways.batch import Batch
from bothways.checkpoint import checkpoint, new_head
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.conll import Sentence
from bothways.data.examples import read_tagged
from bothways.data.near_duplicates import text_key
from bothways.data.split_tables import divide_rows
from bothways.data.splits import overlap_warning, parts_for
from bothways.data.tables import RowErrors
from bothways.data.tags import OUTSIDE, Scheme, detect_scheme, find_illegal_tag, tags_to_spans
from bothways.errors import InputError
from bothways.evaluation.evaluators import TagEvaluator, document_of
from bothways.evaluation.scores import Predictions
from bothways.finetuning import linear_start
from bothways.finetuning.features import MOST_TOKENS, drawn, head_inputs, last_layer
from bothways.finetuning.finetune import Result, digest, fine_tuned
from bothways.finetuning.simple_models import commonest_tags
from bothways.finetuning.task import Baseline, Figures, Task, at_work, length_line, outputs, window_policy
from bothways.inference.tag_decoding import (
    LabelledWindow,
    Tagset,
    decode_word_tags,
    join_words,
    label_windows,
    word_probabilities,
)
from bothways.inference.tagged_texts import all_words, group_sentences, to_iob2
from bothways.inference.windows import merge_rows, whole_length
from bothways.log import escape_line, muted
from bothways.metrics.entities import entity_scores
from bothways.metrics.label_errors import label_errors
from bothways.model.model import Model
from bothways.settings import Tag
from bothways.tokenizer.tokenizer import Encoding
from bothways.training.losses import Loss, classification_loss
from bothways.training.run import MetricsCallback

NO_LABEL = -100  # on tokens at which no label counts


@dataclass(frozen=True)
class Windows:
    """Windows with labels at some of their tokens, each an example of its own."""

    labelled: list[LabelledWindow]

    @cached_property
    def sizes(self) -> list[int]:
        return [len(one.window) for one in self.labelled]

    def batch(self, rows: Sequence[int]) -> Batch:
        """labels [T]: NO_LABEL where none counts."""
        batch = Batch.from_encodings([self.labelled[row].window for row in rows])
        labels_T = torch.full((batch.num_tokens,), NO_LABEL)
        for start, row in zip(batch.first_tokens.tolist(), rows, strict=True):
            one = self.labelled[row]
            labels_T[start + torch.from_numpy(one.rows)] = torch.from_numpy(one.labels)
        return replace(batch, labels=labels_T)


@dataclass(frozen=True)
class Tagging(Task):
    """Texts of words with a tag each, IOB2 or plain."""

    name: ClassVar[str] = "tag"
    constant: ClassVar[str] = "commonest tag"
    settings: Tag
    start: Checkpoint
    tagset: Tagset
    texts: Mapping[str, list[list[Sentence]]]
    data: Mapping[str, Windows]
    windows_of_text: Mapping[str, list[int]]
    illegal: Mapping[str, list[Sentence]]  # sentences of dev and test that the scheme would not write so
    notes: Sequence[str] = ()
    heads: dict[str, linear_start.Linear] = field(default_factory=dict)  # fitted, by what names the model before it

    @staticmethod
    def of(
        settings: Tag, start: Checkpoint, sentences: Mapping[str, list[Sentence]], notes: Sequence[str] = ()
    ) -> "Tagging":
        """notes: what was left out when the sentences were read."""
        # In cross-validation each row is trained on by some fold, so that all of them know the same tags.
        learned = [*chain.from_iterable(sentences.values())] if settings.folds else sentences["train"]
        scheme = scheme_of(settings, learned)
        read = {split: [to_iob2(one, scheme) for one in found] for split, found in sentences.items()}
        tags = chain.from_iterable(to_iob2(one, scheme).tags for one in learned)
        tagset = Tagset.from_tags(tags, plain=scheme == "plain")
        if not tagset.plain and tagset.names == (OUTSIDE,):
            raise InputError(f"{settings.train}: every tag is {OUTSIDE}; there is nothing to learn")
        texts, data, numbers = {}, {}, {}
        for split, found in read.items():
            texts[split] = list(
                group_sentences(found, start.need_tokenizer(), settings.window if settings.context else 0)
            )
            strict = split == "train"
            parts = [windows_of(text, start, settings, tagset, strict) for text in texts[split]]
            data[split], numbers[split] = Windows([*chain.from_iterable(parts)]), [*map(len, parts)]
        illegal = {
            split: [one for one in found if find_illegal_tag(one.tags, scheme)] for split, found in sentences.items()
        }
        return Tagging(settings, start, tagset, texts, data, numbers, illegal, notes)

    @property
    def metric(self) -> str:
        return "accuracy" if self.tagset.plain else "f1"

    def begin(self, seed: int) -> Checkpoint:
        return new_head.with_head(self.start, "tokens", self.tagset.names, seed=seed, dropout=self.settings.dropout)

    def fit_head(self, model: Model, on: Sequence[str] = ("train",)) -> None:
        inputs = head_inputs(at_work(model, self.settings), "tokens")
        name = digest(inputs)  # the baseline's and those of all seeds are one, unless a pooler is drawn by the seed
        if name not in self.heads:
            self.heads[name] = self.best_head(inputs)
        self.heads[name].write_to(last_layer(model, "tokens"))

    def best_head(self, inputs: Model) -> linear_start.Linear:
        """The linear layer that is best on the features that a model gives."""
        rows = {}
        for split, most in (("train", MOST_TOKENS), ("dev", linear_start.MOST)):
            labelled = self.data[split].labelled
            chosen = Windows([labelled[row] for row in drawn([len(one.labels) for one in labelled], most, seed=0)])
            labels_M = torch.from_numpy(np.concatenate([one.labels for one in chosen.labelled]))
            rows[split] = torch.cat(outputs(inputs, chosen, labelled_scores)), labels_M
        return linear_start.fit(rows["train"], classification_loss, len(self.tagset.names), dev=rows["dev"])

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, str]:
        return {"scheme": "plain" if self.tagset.plain else "iob2"}

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"tags": int((batch.labels != NO_LABEL).sum())}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        assert batch.labels is not None
        places_M = (batch.labels != NO_LABEL).nonzero()[:, 0]
        scores_MC = model.token_scores("tokens", model(batch)[places_M])
        return {"tags": classification_loss(scores_MC, batch.labels[places_M])}

    def outputs(self, model: Model, split: str) -> list[Tensor]:
        """Scores of every token of each window, [S, C]."""
        return outputs(model, self.data[split], token_scores)

    def evaluate(self, split: str, outputs: Sequence[Tensor]) -> Figures:
        """Mean loss, and of the words' tags: precision, recall and F1 of exact entities, share of right tags."""
        total, number = 0.0, 0
        for one, scores_SC in zip(self.data[split].labelled, outputs, strict=True):
            loss, count = classification_loss(scores_SC[one.rows], torch.from_numpy(one.labels))
            total, number = total + float(loss), number + count
        gold, predicted = [one.tags for one in self.sentences(split)], list(self.predicted(split, outputs))
        if not self.tagset.plain:
            found = entity_scores(gold, predicted, "iob2")
            return {"loss": total / max(1, number), **{name: found[name] for name in SCORES}, "baseline": 0.0}
        tags = [*chain.from_iterable(gold)]
        right = sum(map(str.__eq__, tags, chain.from_iterable(predicted)))
        commonest = Counter(tag for text in self.texts["train"] for one in text for tag in one.tags).most_common(1)[0][
            0
        ]
        baseline = tags.count(commonest) / len(tags)
        return {"loss": total / max(1, number), "accuracy": right / len(tags), "baseline": baseline}

    def sentences(self, split: str) -> list[Sentence]:
        return [*chain.from_iterable(self.texts[split])]

    def num_rows(self, split: str) -> int:
        return len(self.sentences(split))

    def predictions(self, split: str, outputs: Sequence[Tensor]) -> Predictions:
        """details: of each word how likely its own tag is (0 where that is not known), the likeliest, how likely that
        is."""
        details: list[list[Any]] = []
        for text, windows, scores_SC in self.read(split, outputs):
            shares = iter(word_probabilities(windows, scores_SC, all_words(text)).tolist())
            details += [[self.word_details(tag, next(shares)) for tag in one.tags] for one in text]
        return replace(self.compared(split, [*self.predicted(split, outputs)]), details=details)

    def word_details(self, tag: str, shares: Sequence[float]) -> tuple[float, str, float]:
        names = self.tagset.names
        best = max(range(len(names)), key=shares.__getitem__)
        return shares[names.index(tag)] if tag in names else 0.0, names[best], shares[best]

    def baselines(self, split: str) -> Iterator[Baseline]:
        predicted = commonest_tags(self.sentences("train"), self.sentences(split), plain=self.tagset.plain)
        yield Baseline("commonest tag of each word", self.compared(split, predicted))
        with muted():
            model = self.begin(self.settings.seed).model
        self.fit_head(model)
        outputs = self.outputs(at_work(model, self.settings), split)
        yield Baseline("frozen states + logistic regression", self.predictions(split, outputs))

    def compared(self, split: str, predicted: list[list[str]]) -> Predictions:
        """Tags beside those that are right, without details."""
        own = self.sentences(split)
        gold, groups = [[*one.tags] for one in own], [*map(document_of, own)]
        return Predictions([one.where for one in own], gold, predicted, groups, [None] * len(own))

    def scores(self, found: Predictions) -> dict[str, Any]:
        return self.evaluator.compare(found.gold, found.predicted, found.groups).by_name

    @property
    def evaluator(self) -> TagEvaluator:
        return TagEvaluator("plain" if self.tagset.plain else "iob2", self.tagset.plain)

    def read(
        self, split: str, scores: Sequence[Tensor]
    ) -> Iterator[tuple[list[Sentence], list[Encoding], NDArray[np.float32]]]:
        """Each text that is read at once, its windows, and the scores of its tokens, [S, C]."""
        windows = iter(zip(self.data[split].labelled, scores, strict=True))
        for text, number in zip(self.texts[split], self.windows_of_text[split], strict=True):
            parts = [next(windows) for _ in range(number)]
            own = [one.window for one, _ in parts]
            yield text, own, merge_rows(own, [rows.numpy() for _, rows in parts])

    def predicted(self, split: str, scores: Sequence[Tensor]) -> Iterator[list[str]]:
        """A tag for each word of each sentence, from the scores of the windows."""
        for text, windows, scores_SC in self.read(split, scores):
            tags = decode_word_tags(windows, scores_SC, all_words(text), self.tagset)
            end = 0
            for sentence in text:
                begin, end = end, end + len(sentence.words)
                yield tags[begin:end]

    @cached_property
    def sentence_at(self) -> dict[str, Sentence]:
        """Each sentence by file and line."""
        return {one.where: one for split in self.texts for one in self.sentences(split)}

    def parts(self, found: Predictions) -> list[report.Section]:
        if self.tagset.plain:
            return self.confused([*chain.from_iterable(found.gold)], [*chain.from_iterable(found.predicted)])
        by_type = entity_scores(found.gold, found.predicted, "iob2")["by_type"]
        scores = [
            report.LabelScore(label, one["precision"], one["recall"], one["f1"], int(one["support"]))
            for label, one in by_type.items()
        ]
        mistakes = []
        for where, gold, predicted in zip(found.where, found.gold, found.predicted, strict=True):
            if gold != predicted:
                words = self.sentence_at[where].words
                mistakes.append(report.TagMistake(join_words(words), marked(words, gold), marked(words, predicted)))
        return [report.LabelScores(scores), report.TagMistakes(mistakes, len(found.where))]

    def doubts(self, found: Predictions) -> list[report.LabelIssue]:
        """Word by word."""
        places = [(row, word) for row, tags in enumerate(found.gold) for word in range(len(tags))]
        places = [(row, word) for row, word in places if found.gold[row][word] in self.tagset.names]
        tags = [found.gold[row][word] for row, word in places]
        shares = []
        for tag, (row, word) in zip(tags, places, strict=True):
            own, best, most = found.details[row][word]
            shares.append({best: most, tag: own})
        doubts = []
        for error in label_errors(tags, shares):
            row, word = places[error.row]
            words = self.sentence_at[found.where[row]].words
            start = len(join_words((*words[:word], "")))
            doubts.append(
                report.LabelIssue(
                    found.where[row], join_words(words), error.given, error.suggested, error.given_probability,
                    error.probability, span=report.Span(start, start + len(words[word])),
                )
            )  # fmt: skip
        return doubts

    def confused(self, gold: Sequence[str], predicted: Sequence[str]) -> list[report.Section]:
        """Which words' tags are taken for which; those that train lacks among them."""
        places = {name: place for place, name in enumerate(sorted({*gold, *predicted}))}
        confusion = report.ConfusionMatrix.from_indices(
            [*places], [places[tag] for tag in gold], [places[tag] for tag in predicted]
        )
        return [confusion, report.LabelScores(confusion.scores)]

    def lengths(self, split: str) -> Sequence[int]:
        windows = iter(self.data[split].labelled)
        texts = [[next(windows).window for _ in range(number)] for number in self.windows_of_text[split]]
        return [*map(whole_length, texts)]

    def describe(self) -> str:
        found = []
        for split, texts in self.texts.items():
            sentences = [*chain.from_iterable(texts)]
            words = sum(len(one.words) for one in sentences)
            scheme: Scheme = "plain" if self.tagset.plain else "iob2"
            counts = Counter(span.label for one in sentences for span in tags_to_spans(one.tags, scheme))
            kinds = ", ".join(f"{escape_line(label)} {number:,}" for label, number in sorted(counts.items()))
            windowed = sum(number > 1 for number in self.windows_of_text[split])
            found.append(
                f"{split}: {len(sentences):,} sentences of {words:,} words, read as {len(texts):,} texts, "
                f"{length_line(self.lengths(split))}; {windowed} read in windows\n  {kinds}"
            )
        return "\n".join([*found, *self.warnings])

    @property
    def warnings(self) -> list[str]:
        sentences = {split: [*chain.from_iterable(texts)] for split, texts in self.texts.items()}
        shared = overlap_warning({split: [_key(one) for one in own] for split, own in sentences.items()})
        found = [*self.notes, *([shared] if shared else [])]
        for split, own in sentences.items():
            if strange := Counter(tag for one in own for tag in one.tags if tag not in self.tagset.names):
                have = f"{strange.total():,} words have tags that train lacks ({', '.join([*strange][:9])})"
                found.append(f"{split}: {have}; none of them can be right")
        for split, wrong in self.illegal.items():
            if wrong:
                have = f"{len(wrong):,} of {len(sentences[split]):,} sentences have tags that the scheme does not allow"
                found.append(f"{split}: {have}, the first at {wrong[0].where}; they are read as conlleval reads them")
        return found


SCORES = ("precision", "recall", "f1", "f1_macro", "accuracy")


def run(settings: Tag, *, progress: MetricsCallback | None = None) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    new_head.check_head_supported(start, "tokens", settings.model)

    def task(fold: int | None) -> Tagging:
        errors = RowErrors(settings.on_error)
        sentences = read_splits(settings, errors, fold)
        return Tagging.of(settings, start, sentences, errors.notes(len(sentences["train"])))

    return fine_tuned(settings, task, progress)


def read_splits(settings: Tag, errors: RowErrors | None = None, fold: int | None = None) -> dict[str, list[Sentence]]:
    """Sentences by split. What is split off a file is whole documents, where it tells where they begin; of other files
    near-equal sentences stay together. errors: collects what cannot be read; InputError where that may not be left out.
    fold: in cross-validation the one that is test."""
    given = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    columns = {"words": settings.words_column, "tags": settings.tags_column, "encoding": settings.encoding}
    errors = errors or RowErrors(settings.on_error)
    found = {split: read_tagged(path, **columns, errors=errors) for split, path in given.items() if path}
    errors.notes(len(found["train"]))
    if "dev" in found:
        return found
    whole = found["train"]
    groups = [_key(one) if one.document is None else one.document for one in whole]
    rows = divide_rows(settings, groups, parts_for(found), fold, of="documents")
    return {**found, **{split: [whole[row] for row in own] for split, own in rows.items()}}


def _key(sentence: Sentence) -> str:
    return text_key(" ".join(sentence.words))


def scheme_of(settings: Tag, sentences: Sequence[Sentence]) -> Scheme:
    """The scheme given or found. InputError for the first tag that it does not allow."""
    scheme: Scheme = detect_scheme([one.tags for one in sentences]) if settings.scheme == "auto" else settings.scheme
    for one in sentences:
        if wrong := find_illegal_tag(one.tags, scheme):
            word = f"word {wrong.position + 1} of the sentence, {one.words[wrong.position]!r}"
            raise InputError(f"{one.where}: {word}: {wrong.why}; mend the tag, or name another --scheme")
    return scheme


def windows_of(
    text: Sequence[Sentence], start: Checkpoint, settings: Tag, tagset: Tagset, strict: bool
) -> list[LabelledWindow]:
    """strict: a tag that the tagset does not know is an error, and else has no part in the loss."""
    words = all_words(text)
    encoding = start.need_tokenizer().encode(join_words(words))
    (windows,) = window_policy(settings, start).split([encoding])
    tags = [*chain.from_iterable(sentence.tags for sentence in text)]
    return label_windows(windows, words, tags, tagset, where=text[0].where, strict=strict)


def marked(words: Sequence[str], tags: Sequence[str]) -> list[report.Span]:
    """Entities as characters of join_words(words)."""
    ends = [*accumulate(len(word) + 1 for word in words)]
    return [
        report.Span(ends[span.first] - len(words[span.first]) - 1, ends[span.last - 1] - 1, span.label)
        for span in tags_to_spans(tags, "iob2")
    ]


def labelled_scores(model: Model, batch: Batch) -> Sequence[Tensor]:
    """Scores of the tokens of each window that have a label, [M, C]."""
    assert batch.labels is not None
    labelled_T = batch.labels != NO_LABEL
    numbers_N = [int(part.sum()) for part in labelled_T.split(batch.lengths.tolist())]
    return model.token_scores("tokens", model(batch)[labelled_T]).split(numbers_N)


def token_scores(model: Model, batch: Batch) -> Sequence[Tensor]:
    """Scores of every token of each window, [S, C]."""
    return model.token_scores("tokens", model(batch)).split(batch.lengths.tolist())
