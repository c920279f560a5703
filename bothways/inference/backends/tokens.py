"""Models that read tokens: texts of any length in windows, whose vectors and scores are joined to one for each text.

Letters: N texts, W windows of them, S tokens of one text, H hidden size, C outputs of a head.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, format_count
from bothways.inference.backends.backend import MAX_SCORES, Backend
from bothways.inference.reading import ReadOptions, Rows, check_names, expanded, trained_window_policy
from bothways.model.checkpoint.description import DECIDE
from bothways.model.config import EncoderConfig, encodes_separately
from bothways.tasks import TASK, task_from_heads
from bothways.tasks.pooling import Pooling, pool_windows, pooling_name
from bothways.tasks.windows import WindowPolicy, is_truncated, window_of
from bothways.text.batching import without_garbage_collection
from bothways.text.token_windows import Integers, TokenWindows
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from bothways.model.statement_head import StatementHead
    from bothways.tasks.decide.option_set import OptionSet
    from bothways.tasks.fill.decoding import Words
    from bothways.text.statements import StatementBatch


class TokenBackend(Backend):
    """A model that computes hidden states of tokens. Threads may share it. config: of its encoder."""

    config: EncoderConfig

    def set_windows(self, window: int | None) -> None:
        """window: the default window size; None means as in fine-tuning, else 512; of static vectors, whole texts."""
        policy = trained_window_policy(self.description.settings, self.config.max_position_embeddings, window)
        if window is None:
            policy = policy.changed(size=window_of(self.config, policy.size, policy.long), overlap=policy.overlap)
        self.window_policy = policy
        self.truncated_texts = 0
        self._lock = Lock()  # around the count above

    @property
    def encoder(self) -> TokenBackend:
        return self

    @property
    def task(self) -> str:
        return task_from_heads(self.heads, self.description, fills=self.config.direction == "both")

    @cached_property
    def asked(self) -> OptionSet | None:
        """The options that the model decides among by itself; None for most models."""
        if DECIDE not in self.description.metadata:
            return None
        from bothways.tasks.decide.option_set import stored_options

        return stored_options(self.description)

    def asking(self, options: OptionSet) -> Self:
        """The same model, with these options as its classes, whose scores are those of their statements."""
        model = copy(self)
        model.__dict__.pop("asked", None)  # of this model
        metadata = {**self.description.metadata, TASK: DECIDE, DECIDE: options.to_json()}
        model.description = replace(self.description, labels=options.names, multi_label=False, metadata=metadata)
        model.heads = {**self.heads, "classes": len(options.names)}
        return model

    def refusal(self) -> InputError:
        return InputError(f"a model of type {self.description.model_type} does not support this")

    def size_facts(self, vocabulary: int) -> dict[str, Any]:
        """The size of the model. vocabulary: number of its parameters."""
        config = self.config
        if config.is_static:
            return {
                "model": f"static vectors of size {config.hidden_size}",
                "parameters": vocabulary,
                "vocabulary": config.vocab_size,
                "heads": ", ".join(self.heads) or "none",
            }

        heads = format_count(config.num_attention_heads, "head")
        size = f"{format_count(config.num_hidden_layers, 'layer')} x {config.hidden_size}, {heads}"
        return {
            "model": f"{self.description.model_type}, {size}, up to {config.max_position_embeddings} tokens",
            "parameters": vocabulary,
            "vocabulary": config.vocab_size,
            "heads": ", ".join(self.heads) or "none",
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    # --- windows ------------------------------------------------------------------------------------------------------

    def split(
        self, encodings: Sequence[Encoding], options: ReadOptions | None = None, names: Sequence[str] | None = None
    ) -> list[list[Encoding]]:
        """The windows of each encoding. RowsError if texts are too long for long="error"."""
        windows = self.policy_for(options or {}).split(encodings, names)
        self.count_truncated(sum(map(is_truncated, windows)))
        return windows

    def policy_for(self, options: ReadOptions) -> WindowPolicy:
        """How long texts are read with these options."""
        if not options:
            return self.window_policy
        check_names(options)
        return self.window_policy.changed(
            size=options.get("window"),
            overlap=options.get("overlap"),
            long=options.get("long"),
        )

    def count_truncated(self, number: int) -> None:
        """Add to the number of texts that were truncated."""
        if number:
            with self._lock:
                self.truncated_texts += number

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions) -> list[list[Encoding]]:
        """Each text (or pair) as windows, whose tokens can be found in the text."""
        with without_garbage_collection():
            return self.split(self.tokenizer.encode_many(texts, pairs), options)

    def token_windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> tuple[TokenWindows, Integers]:
        """The windows of the different texts (or pairs), as arrays, and for each text its row among them, [N]."""
        whole, rows = TokenWindows.encode(self.tokenizer, texts, pairs)
        policy = self.policy_for(options)
        windows = policy.divide(whole, rows)
        if policy.long == "truncate":
            self.count_truncated(int(windows.are_truncated[rows].sum()))
        return windows, rows

    # --- outputs of windows -------------------------------------------------------------------------------------------

    @abstractmethod
    def pooled_windows(self, windows: TokenWindows, kind: str, rows_W2: Integers, options: ReadOptions) -> Rows:
        """The sum ("mean"), maximum ("max") or first ("cls") of these rows of hidden states of each window, [W, H]."""

    @abstractmethod
    def window_states(self, windows: TokenWindows, options: ReadOptions) -> Rows:
        """The vector of each window that a head on texts reads, [W, H]."""

    @abstractmethod
    def head_scores(self, head: str, states_nH: Rows) -> Rows:
        """The scores of a head on texts, [n, C]."""

    @abstractmethod
    def hidden_rows(self, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        """The hidden states [S, H] of each window of each text."""

    @abstractmethod
    def token_scores(self, head: str, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        """The scores [S, C] of a head for each token of each window of each text."""

    @abstractmethod
    def masked_words(
        self, windows: Sequence[Encoding], rows: Sequence[tuple[int, ...]], top: int, options: ReadOptions
    ) -> list[list[Words]]:
        """The `top` most probable words at these rows of each window."""

    @abstractmethod
    def attention_weights(self, encoding: Encoding) -> NDArray[np.float32]:
        """The attention weights of every layer and head for one text (or pair), float32 [L, N, S, S] with N heads.

        InputError if the text is too long, or if the attention is not one softmax over all tokens."""

    def read_statements(self, batch: StatementBatch, head: StatementHead) -> Rows:
        """The last hidden states [T, H] of texts and of the statements behind them. InputError for encoders of another
        layout than BERT's."""
        raise self.refusal()

    @abstractmethod
    def encoder_parameters(self) -> Iterator[tuple[str, tuple[int, ...], Iterable[NDArray[Any]]]]:
        """Name, shape and pieces of each parameter of the encoder, as bits of bfloat16, sorted by name."""

    # --- vectors and scores of texts ----------------------------------------------------------------------------------

    def pooling_kind(self, pooling: Pooling) -> str:
        """mean, max or cls. InputError if the model has no such pooling."""
        kind = pooling_name(pooling, self.description.pooling)
        if kind != "mean" and self.config.is_static:
            raise InputError(f"pooling ({kind}) is for encoders; static vectors are the mean of their tokens")
        if kind == "cls" and self.config.direction != "both":
            raise InputError("pooling 'cls' sees no other token in a one-directional model; use 'mean' or 'max'")
        return kind

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Rows:
        kind = self.pooling_kind(pooling)
        windows, rows = self.token_windows(texts, None, options)
        return expanded(self.pooled_texts(windows, kind, options), rows)

    def pooled_texts(self, windows: TokenWindows, kind: str, options: ReadOptions) -> Rows:
        """A vector per text, from its windows, [N, H]."""
        rows_W2 = windows.own_rows
        pooled_WH = self.pooled_windows(windows, kind, rows_W2, options)
        sizes_W = rows_W2[:, 1] - rows_W2[:, 0]
        return pool_windows(kind, pooled_WH, windows.text_rows, num_texts=len(windows), sizes_W=sizes_W)

    def scored_vectors(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[tuple[Rows, Rows]]:
        """Without texts, `pairs` may be None for every model."""
        num_outputs = self.heads[head]
        if not texts and not pairs:
            yield np.zeros((0, num_outputs), np.float32), np.zeros((0, self.config.hidden_size), np.float32)
            return

        # A model may add scores that a linear model gives to the words of a text, and those of statements about it.
        words = self.description.words if head == "classes" else None
        asked = self.asked if head == "classes" else None
        has_head = asked is None or asked.has_head
        if has_head:
            states_NH = self._text_states(head, texts, pairs, options)
        elif pairs is not None:
            raise InputError("options are decided for single texts, not for pairs; join both texts to one")
        else:
            states_NH = self.text_vectors(texts, "mean", options)

        step = max(1, MAX_SCORES // num_outputs)
        for start in range(0, len(states_NH), step):
            part = slice(start, start + step)
            states_nH = states_NH[part]
            scores_nC = np.zeros((len(states_nH), num_outputs), np.float32)
            if has_head:
                scores_nC = self.head_scores(head, states_nH)
            if asked and asked.pair_scale:
                from bothways.inference.backends.statement_scores import option_scores

                pair_scores_nC = option_scores(self, texts[part], asked, options)
                scores_nC = scores_nC + np.float32(asked.pair_scale) * pair_scores_nC
            if words:
                word_scores_nC = words(texts[part], None if pairs is None else pairs[part])
                scores_nC = scores_nC + word_scores_nC.astype(np.float32)
            yield scores_nC, states_nH.reshape(len(states_nH), -1)

    def _text_states(self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions) -> Rows:
        """The vector of each text (or pair) that a head reads, [N, H]; of a bi-encoder a vector for each text of a
        pair, [N, 2, H]."""
        is_bi_encoder = head == "classes" and encodes_separately(self.config)
        if is_bi_encoder:
            windows, rows = self._compared_windows(texts, pairs, options)
        else:
            windows, rows = self.token_windows(texts, pairs, options)

        states_WH = self.window_states(windows, options)
        pooled_NH: Rows = pool_windows("mean", states_WH, windows.text_rows, len(windows))
        states_NH = expanded(pooled_NH, rows)
        if is_bi_encoder:  # all first texts, then all second texts
            states_NH = states_NH.reshape(2, -1, states_NH.shape[1]).swapaxes(0, 1)
        return states_NH

    def _compared_windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> tuple[TokenWindows, Integers]:
        """The windows of all first texts, and then of all second texts, as single texts."""
        _check_compared(texts, pairs)
        firsts, first_rows = self.token_windows(texts, None, options)
        seconds, second_rows = self.token_windows(pairs or [], None, options)
        return firsts.joined(seconds), np.concatenate([first_rows, len(firsts) + second_rows])


def _check_compared(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """InputError unless there is a second text for each."""
    if pairs is None:
        raise InputError("the model compares pairs of texts; give pairs too")
    if len(texts) != len(pairs):
        counts = f"{format_count(len(texts), 'text')} but {format_count(len(pairs), 'pair')}"
        raise InputError(f"{counts}: give one pair per text")
