"""Predictor.fill: predict masked words (fill-mask, cloze)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, Unpack, overload

from torch import Tensor

from bothways.batch import Batch
from bothways.errors import InputError, shorten
from bothways.inference.arguments import read_one_or_many, whole_number
from bothways.inference.backends.encoder import EncoderBackend
from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Texts
from bothways.log import logger
from bothways.tokenizer.tokenizer import Encoding

MASK = "[MASK]"
Guesses = tuple[list[float], list[int]]  # probabilities and ids of the most probable words, best first


@dataclass(frozen=True)
class Guess:
    """A guess for a mask: the token, its probability, and the text with the token in place of the mask."""

    token: str
    score: float
    text: str


class MaskedWords(PredictorBase):
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
        texts, _, is_single = read_one_or_many(texts)
        self._need_head("masked_words", "masked words", "use a model pre-trained with them")
        if self.encoder.module.config.direction != "both":
            raise InputError("a one-directional model cannot fill masks; use one that reads both directions")
        top = whole_number("top", top, 1)
        self.warn_of_lost_decoder()
        mask = self.tokenizer.tokens[self.tokenizer.mask_id]
        texts = [text.replace(MASK, mask) for text in texts]
        encodings = [self.tokenizer.encode(text, allow_special=(mask,)) for text in texts]
        masks = [_indices(encoding.ids, self.tokenizer.mask_id) for encoding in encodings]
        for text, indices in zip(texts, masks, strict=True):
            if not indices:
                raise InputError(f"no {mask} in {shorten(text)!r}; write {mask} where a word is to be guessed")
        windows = self.split(encodings, options)
        positions = [
            [_most_central(parts, index, mask) for index in indices]
            for parts, indices in zip(windows, masks, strict=True)
        ]
        guesses = self._guesses(windows, positions, top, options)
        fills = [
            [
                [self._fill(text, encoding.offsets[index], *guess) for guess in zip(*guessed, strict=True)]
                for index, guessed in zip(indices, of_text, strict=True)
            ]
            for text, encoding, indices, of_text in zip(texts, encodings, masks, guesses, strict=True)
        ]
        return fills[0] if is_single else fills

    def cloze(self, phrase: str, words: Mapping[str, str] | Sequence[str]) -> Self:
        """A classifier without any training: the label of a text is the one whose word is the most probable at the mask
        of a phrase before the text (Schick & Schuetze 2021).

        phrase: with one [MASK], such as "It was [MASK].". words: by label, or only the words, which are the labels too;
        each is one piece of the vocabulary.

            model.cloze("It was [MASK].", ["great", "terrible"]).classify("The plot makes no sense.").label
        """
        from bothways.checkpoint.cloze import with_cloze_head, words_by_label

        encoder = self.encoder
        named = words_by_label(words if isinstance(words, Mapping) else tuple(words), ())
        source = encoder.checkpoint
        dtype = str(self.dtype).removeprefix("torch.")
        classifier = with_cloze_head(source, phrase, named)
        backend = EncoderBackend(classifier, dtype=dtype, device=str(self.device), source=encoder.source)
        return type(self)(backend)

    def warn_of_lost_decoder(self) -> None:
        """Warn once that the decoder of pre-training (DeBERTa's EMD) is missing."""
        if self.description.settings.get("objective") == "enhanced" and not self._warned:
            logger.warning(
                "the enhanced mask decoder (--objective enhanced) is not saved with the model; words are guessed "
                "without it"
            )
            self._warned = True

    def _guesses(
        self, windows: list[list[Encoding]], positions: list[list[tuple[int, int]]], top: int, options: ReadOptions
    ) -> list[list[Guesses]]:
        """The guesses for each text at its (window, row) positions. Windows without a position are not run."""
        num_words = len(self.tokenizer)

        def guess(hidden_TH: Tensor, batch: Batch, rows_of_windows: list[tuple[int, ...]]) -> list[list[Guesses]]:
            guesses = []
            for hidden_SH, rows in zip(hidden_TH.split(batch.lengths.tolist()), rows_of_windows, strict=True):
                of_window = []
                for row in rows:
                    scores_V = self.encoder.module.word_scores(hidden_SH[row][None])[0].float().softmax(-1).cpu()
                    values, ids = scores_V[:num_words].topk(min(top, num_words))
                    of_window.append((values.tolist(), ids.tolist()))
                guesses.append(of_window)
            return guesses

        rows_of_window: dict[tuple[int, int], list[int]] = {}
        for text, of_text in enumerate(positions):
            for window, row in of_text:
                rows_of_window.setdefault((text, window), []).append(row)
        flat = [windows[text][window] for text, window in rows_of_window]
        found = self.encoder.run(flat, options, guess, [tuple(rows) for rows in rows_of_window.values()])
        guesses = {
            (*key, row): guessed
            for (key, rows), of_window in zip(rows_of_window.items(), found, strict=True)
            for row, guessed in zip(rows, of_window, strict=True)
        }
        return [[guesses[text, window, row] for window, row in of_text] for text, of_text in enumerate(positions)]

    def _fill(self, text: str, span: tuple[int, int], score: float, index: int) -> Guess:
        """The text with entry `index` of the vocabulary in place of the mask at span."""
        filled = self.tokenizer.backend.append_token(text[: span[0]], self.tokenizer.tokens[index])
        return Guess(
            self.tokenizer.decode([index], keep_special=True, clean_up_spaces=False), score, filled + text[span[1] :]
        )


def _indices(ids: Sequence[int], wanted: int) -> list[int]:
    return [index for index, token in enumerate(ids) if token == wanted]


def _most_central(windows: Sequence[Encoding], index: int, mask: str) -> tuple[int, int]:
    """The window in which token `index` of a text is furthest from the ends, and its row there."""
    starts = [window.ranges[0][1] for window in windows]
    rows = {
        number: index - start
        for number, (window, start) in enumerate(zip(windows, starts, strict=True))
        if 0 < index - start < len(window) - 1
    }
    if not rows:
        raise InputError(f"token {index} is a {mask} that truncation cut off; use long='windows'")
    best = max(rows, key=lambda number: min(rows[number], len(windows[number]) - 1 - rows[number]))
    return best, rows[best]
