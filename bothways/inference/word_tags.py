"""Predictor.tag and tag_words: entities in texts, tags of pre-split words (NER, parts of speech)."""

from collections.abc import Iterable, Sequence
from typing import Unpack, overload

from bothways.data.tags import join_words
from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Rows, Texts
from bothways.tasks import tag_decoding
from bothways.tasks.arguments import read_one_or_many, read_words
from bothways.tasks.tag_decoding import Entity, Tagset
from bothways.tasks.windows import merge_rows
from bothways.tokenizer.tokenizer import Encoding


class WordTags(PredictorBase):
    @overload
    def tag(self, texts: str, **options: Unpack[ReadOptions]) -> list[Entity]: ...  # type: ignore[overload-overlap]
    @overload
    def tag(self, texts: Texts, **options: Unpack[ReadOptions]) -> list[list[Entity]]: ...
    def tag(self, texts: Texts, **options: Unpack[ReadOptions]) -> list[Entity] | list[list[Entity]]:
        """The entities of each text, in order; entity.text == text[entity.start : entity.end] always holds.

        A model with one label per word (part of speech) returns an entity for each word, split at punctuation.
        """
        texts, _, is_single = read_one_or_many(texts)
        windows, scores = self._tag_scores(texts, options)
        tagset = self.tagset
        entities = [
            tag_decoding.decode_entities(parts, scores_SC, tagset)
            for parts, scores_SC in zip(windows, scores, strict=True)
        ]
        return entities[0] if is_single else entities

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
        tags = [
            tag_decoding.decode_word_tags(parts, scores_SC, words, tagset)
            for words, parts, scores_SC in zip(lists, windows, scores, strict=True)
        ]
        return tags[0] if is_single else tags

    @property
    def tagset(self) -> Tagset:
        """The labels of the tagger and their scheme."""
        return Tagset.from_names(self.labels, self.description.metadata.get("scheme"))

    def _tag_scores(self, texts: Sequence[str], options: ReadOptions) -> tuple[list[list[Encoding]], list[Rows]]:
        """Each text's windows and its scores, one row per token, [S, C]."""
        self._need_head("tokens", "tags", "fine-tune one: bothways finetune tag")
        windows = self.encoder.encode(texts, None, options)
        rows = self.encoder.token_scores("tokens", windows, options)
        return windows, [merge_rows(parts, part_rows) for parts, part_rows in zip(windows, rows, strict=True)]
