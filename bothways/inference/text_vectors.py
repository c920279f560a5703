"""Predictor.embed and hidden_states: vectors of texts and of tokens.

Letters: N texts, S tokens of a text, H hidden size.
"""

from typing import Unpack, overload

from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Rows, Texts
from bothways.tasks import arrays
from bothways.tasks.arguments import read_one_or_many
from bothways.tasks.pooling import Pooling
from bothways.tasks.windows import merge_rows


class TextVectors(PredictorBase):
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
        rows = self.encoder.run_rows(windows, options, lambda hidden_TH: hidden_TH)
        merged = [merge_rows(parts, part_rows) for parts, part_rows in zip(windows, rows, strict=True)]
        return merged[0] if is_single else merged

    def embed(
        self, texts: Texts, *, pooling: Pooling = "auto", normalize: bool = True, **options: Unpack[ReadOptions]
    ) -> Rows:
        """A vector per text, float32 [N, H]; [H] for a single text.

        pooling: "mean", "cls" or "max"; "auto" is the checkpoint's own pooling, else the mean. mean and max are over
        the text's tokens, each counted once even if several windows contain it; cls is averaged over the windows.
        normalize: scale to length 1.
        """
        texts, _, is_single = read_one_or_many(texts)
        vectors = self.backend.text_vectors(texts, pooling, options)
        vectors_NH: Rows = arrays.normalize(vectors, out=vectors) if normalize else vectors
        return vectors_NH[0] if is_single else vectors_NH
