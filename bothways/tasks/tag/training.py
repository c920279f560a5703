"""Training of a tagger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from bothways.base.errors import flag
from bothways.base.log import muted
from bothways.settings.finetune import Tag
from bothways.tasks import training_task
from bothways.tasks.arrays import Floats
from bothways.tasks.linear_baselines import most_frequent_tags
from bothways.tasks.tag.decoding import Tagset
from bothways.tasks.tag.examples import (
    TaggedTexts,
    TaggedWindows,
    all_words,
    group_sentences,
    read_tagset,
    transfer_scores,
)
from bothways.tasks.tag.report import TagReport
from bothways.tasks.tag.scoring import TagObjective, TagScoring
from bothways.text.data.split_tables import read_unlabelled
from bothways.text.data.tags import Sentence, find_illegal_tag

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.linear import linear_head
    from bothways.model.model import Model


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
        from bothways.tasks.tag.linear_start import fit_linear_head

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
    report = cached_property(TagReport)
