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
    schedule: Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"]
    weight_decay: float
    gradient_accumulation: int
    seed: int
    seeds: int
    keep_seed: Literal["best", "median"]
    epochs: float | None
    minutes: float | None
    batch_tokens: int | None
    batch_size: int | None
    learning_rate: float | None
    warmup: float
    layer_decay: float
    linear_start: bool
    freeze: int
    dropout: float
    window: int
    long: Literal["windows", "error", "truncate"]
    evaluations_per_epoch: float | None
    patience: int | None
    baselines: bool
    checkpoint_every: int
    resume: bool
    encoding: str | None
    adapter: Literal["lora", "bottleneck", "bitfit", "prefix", "prompt"] | None
    rank: int
    lora_alpha: float | None
    lora_maps: Iterable[Literal["query", "key", "value", "attention-output", "inner", "output"]]
    adapter_size: int | None
    bottlenecks: Literal["both", "feed-forward"]
    added_rows: int
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
    temperature: float
    text_column: str | None
    pair_column: str | None
    label_column: str | None
    pooling: Literal["auto", "cls", "mean", "pair"] | Literal["auto", "mean", "cls", "max"]
    window_pooling: Literal["mean", "max"]
    train_windows: int
    cloze: str | None
    words: Iterable[str]
    multi_label: bool
    merge_labels: bool
    class_weights: Literal["none", "balanced"]
    calibrate: bool
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
    matryoshka_dims: Iterable[int]
