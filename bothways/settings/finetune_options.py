"""Options of `bothways.finetune` for type checkers, written by `python tests/test_option_types.py`."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from bothways.settings.fields import AnyPath
from bothways.settings.tables_in_memory import Table


class FineTuneOptions(TypedDict, total=False):
    """Settings of the tasks of fine-tuning. `bothways.settings` has their meaning and defaults."""

    json: bool
    device: str
    dtype: Literal["auto", "float32", "bfloat16"]
    gradient_accumulation: int
    seed: int
    seeds: int
    epochs: float | None
    minutes: float | None
    batch_tokens: int | None
    batch_size: int | None
    learning_rate: float | None
    warmup: float
    linear_start: bool
    dropout: float
    window: int
    long: Literal["windows", "error", "truncate"]
    evaluations_per_epoch: float | None
    patience: int | None
    baselines: bool
    checkpoint_every: int
    resume: bool
    encoding: str | None
    adapter: Literal["lora", "bitfit"] | None
    rank: int
    dev: Table | None
    test: Table | None
    on_error: Literal["stop", "skip"]
    folds: int | None
    keep_layers: Iterable[int]
    teacher: AnyPath | None
    quantize: Literal["int8"] | None
    alpha: float
    unlabelled: Table | Iterable[Table]
    group_column: str | None
    text_column: str | None
    pair_column: str | None
    label_column: str | None
    pooling: Literal["auto", "cls", "mean", "pair"] | Literal["auto", "mean", "cls", "max"] | Literal["cls", "mean"]
    multi_label: bool
    class_weights: Literal["none", "balanced"]
    metric: (
        Literal["accuracy", "f1", "f1_macro", "f1_micro", "matthews"]
        | Literal["spearman", "pearson"]
        | Literal["f1", "exact_match"]
        | None
    )
    positive: str | None
    words_column: str | None
    tags_column: str | None
    scheme: Literal["auto", "iob1", "iob2", "bioes", "plain"]
    context: bool
    overlap: int
    max_answer_tokens: int
    objective: Literal["auto", "pairs", "scores"]
    negative_column: str | None
    negatives_from: AnyPath | None
    temperature: float
    matryoshka_dims: Iterable[int]
    pairs: AnyPath | None
    passages: int
    first_rank: int
    max_share: float | None
    negatives: int
    options: str | None
    question: str
    probabilities_column: str | None
