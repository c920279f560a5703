"""Fine-tuning a text classifier (Devlin 2018, section 4.1): the whole model learns, the class is read at [CLS].

Long texts are several windows; their [CLS] vectors are averaged before pooler and classifier, in training as in
prediction.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways import checkpoint, metrics, report
from bothways.batch import Batch
from bothways.checkpoint import Checkpoint
from bothways.data.draws import Purpose, generator
from bothways.data.examples import Table, label_numbers, read_table
from bothways.data.order import by_length, fill_budget, shuffled
from bothways.device import choose_device, choose_dtype, keep_memory
from bothways.errors import InputError
from bothways.model.model import Model
from bothways.predict import Predictor
from bothways.settings import Classify
from bothways.tasks.progress import Bar, Tell, lines
from bothways.tokenizer.tokenizer import Encoding
from bothways.train.loop import fit
from bothways.train.losses import Loss, class_loss
from bothways.train.plan import Plan
from bothways.train.state import Run
from bothways.variants import VARIANTS

DEV_EVERY = 10


@dataclass(frozen=True)
class Result:
    """Scores over seeds: mean and standard deviation of the metric on `split`, and how many were no better than the
    majority."""

    directory: Path
    model: Path
    metric: str
    split: str
    mean: float
    std: float
    failed: int
    scores: list[float]


@dataclass(frozen=True)
class Examples:
    """Texts as windows, with the number of each text's class."""

    windows: list[list[Encoding]]
    labels: list[int]

    @property
    def sizes(self) -> list[int]:
        return [sum(map(len, parts)) for parts in self.windows]


def run(settings: Classify, tell: Tell = lines) -> Result:
    """Fine-tune as told; keeps the seed that is best on dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    if frozenset({"classes"}) not in VARIANTS[start.model_type].architectures:
        raise InputError(f"{settings.model}: text classes are not supported for {start.model_type}; bert's are")
    tables = read_tables(settings)
    names = class_names(tables["train"], settings.train)
    with Run(settings.out, "finetune classify", settings) as run:
        return over_seeds(settings, start, tables, names, run, tell)


def over_seeds(
    settings: Classify, start: Checkpoint, tables: Mapping[str, Table], names: tuple[str, ...], run: Run, tell: Tell
) -> Result:
    """One training a seed; the best model by dev is kept."""
    predictor = Predictor(start, dtype="float32", device="cpu")
    data = {split: to_examples(table, names, predictor, settings.window) for split, table in tables.items()}
    tell(describe(data, names))
    scores: dict[str, list[float]] = {split: [] for split in data if split != "train"}
    kept: tuple[float, Model, dict[str, Any]] | None = None
    for seed in range(settings.seed, settings.seed + settings.seeds):
        fresh = checkpoint.with_head(
            start,
            "classes",
            names,
            seed=seed,
            dropout=settings.dropout,
            warn=tell if seed == settings.seed else lambda line: None,
        )
        best = train_one(settings, fresh.model, data, seed, run)
        for split in scores:
            scores[split].append(measure(best, data[split])["accuracy"])
        tell(f"seed {seed}: " + ", ".join(f"{split} accuracy {values[-1]:.1%}" for split, values in scores.items()))
        if kept is None or scores["dev"][-1] > kept[0]:
            kept = (scores["dev"][-1], best, {split: measure(best, data[split]) for split in scores})
    assert kept is not None
    split = "test" if "test" in data else "dev"
    mean, std = metrics.spread(scores[split])
    failed = sum(score <= kept[2][split]["majority"] for score in scores[split])
    found = {
        "split": split,
        "selected_on": "dev",
        "mean": mean,
        "std": std,
        "n": settings.seeds,
        "failed": failed,
        "scores": scores,
    }
    made = Checkpoint(kept[1], start.tokenizer, labels=names, extra=start.extra, made={**run.origin, "result": found})
    checkpoint.save(made, run.directory / "model")
    report.curves(run.metrics(), run.directory / "curves.png", title="Fine-tuning", levels=kept[2]["dev"])
    run.note(result=found, figures=kept[2])
    return Result(run.directory, run.directory / "model", "accuracy", split, mean, std, failed, scores[split])


def read_tables(settings: Classify) -> dict[str, Table]:
    """train and dev, and test if given; without a dev file every tenth training row of each class, by a fixed
    shuffle."""
    columns = {"text": settings.text_column, "pair": settings.pair_column, "label": settings.label_column}
    given = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    tables = {split: read_table(path, **columns, need_labels=True) for split, path in given.items() if path}
    if "dev" not in tables:
        tables["train"], tables["dev"] = split_off(tables["train"], settings.seed)
    return tables


def split_off(table: Table, seed: int) -> tuple[Table, Table]:
    """(rest, every tenth row of each class): the classes keep their shares."""
    assert table.labels is not None
    order = generator(seed, Purpose.HELD_OUT).permutation(len(table)).tolist()
    seen: dict[str, int] = {}
    away = set()
    for row in order:
        seen[table.labels[row]] = seen.get(table.labels[row], 0) + 1
        if seen[table.labels[row]] % DEV_EVERY == 0:
            away.add(row)
    if not away:
        raise InputError(
            f"{len(table)} rows are too few to hold out a tenth of each class; give --dev a table of its own"
        )
    return _rows(table, [row for row in range(len(table)) if row not in away]), _rows(table, sorted(away))


def _rows(table: Table, rows: Sequence[int]) -> Table:
    columns = (table.texts, table.pairs, table.labels, table.where)
    return Table(*(None if column is None else [column[row] for row in rows] for column in columns))  # type: ignore[arg-type]


def class_names(table: Table, path: Path) -> tuple[str, ...]:
    names = tuple(sorted(set(table.labels or [])))
    if len(names) < 2:
        raise InputError(f"{path}: one class only ({names[0]!r}); a classifier needs at least two")
    return names


def to_examples(table: Table, names: Sequence[str], predictor: Predictor, window: int) -> Examples:
    labels = label_numbers(table, names)
    encodings = predictor.tokenizer.encode_many(table.texts, table.pairs)
    return Examples(predictor.fit_windows(encodings, "windows", window, window // 4), labels)


def describe(data: Mapping[str, Examples], names: Sequence[str]) -> str:
    """Class counts, lengths and what is windowed, a line a split."""
    found = []
    for split, examples in data.items():
        counts = np.bincount(examples.labels, minlength=len(names))
        classes = ", ".join(f"{name} {number}" for name, number in zip(names, counts.tolist(), strict=True))
        windowed = sum(len(parts) > 1 for parts in examples.windows)
        median = int(np.median(examples.sizes))
        found.append(
            f"{split}: {len(examples.labels):,} texts ({classes}); median {median} tokens, {windowed} read in windows"
        )
    return "\n".join(found)


def train_one(settings: Classify, model: Model, data: Mapping[str, Examples], seed: int, run: Run) -> Model:
    """One run from one seed; gives the model as it was when best on dev."""
    training = data["train"]
    sizes = training.sizes
    groups = list(fill_budget(range(len(sizes)), sizes, settings.batch_tokens))
    num_steps = max(1, math.ceil(settings.epochs * len(groups)))
    device = choose_device("auto")
    if device.type == "cpu":
        keep_memory()
    dtype = choose_dtype(settings.dtype, device)

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        for epoch in count():
            order = shuffled(len(sizes), seed=seed, epoch=epoch).tolist()
            for rows in fill_budget(order, sizes, settings.batch_tokens):
                yield [to_batch(training, by_length(rows, sizes))]

    plan = Plan(
        steps=num_steps, rate=settings.rate, warmup=settings.warmup, weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay, evaluate_every=max(1, len(groups)), seed=seed, device=device, dtype=dtype,
        best_by="accuracy",
    )  # fmt: skip

    with Bar(f"fine-tuning, seed {seed}", plan.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            run.metric(**row, seed=seed)
            bar.show(row)

        fit(
            model,
            losses,
            counts,
            steps,
            plan,
            evaluate=lambda: measure(model, data["dev"]),
            record=record,
        )
    return model


def to_batch(examples: Examples, rows: Sequence[int]) -> Batch:
    """All windows of these texts, sorted by length, with the text each belongs to and the texts' labels."""
    parts = [(window, text) for text, row in enumerate(rows) for window in examples.windows[row]]
    parts.sort(key=lambda part: len(part[0]))
    return replace(
        Batch.of([window for window, _ in parts]),
        text_of_window=torch.tensor([text for _, text in parts]),
        labels=torch.tensor([examples.labels[row] for row in rows]),
    )


def scores(model: Model, batch: Batch) -> Tensor:
    """Class scores of each text, [N, C]."""
    assert batch.text_of_window is not None and batch.labels is not None
    first_WH = model(batch)[batch.first_tokens]
    sums_NH = first_WH.new_zeros(len(batch.labels), first_WH.shape[1]).index_add(0, batch.text_of_window, first_WH)
    windows_N = torch.bincount(batch.text_of_window, minlength=len(batch.labels))
    return model.text_scores("classes", sums_NH / windows_N[:, None].to(sums_NH.dtype))


def counts(batch: Batch) -> dict[str, int]:
    assert batch.labels is not None
    return {"classes": len(batch.labels)}


def losses(model: Model, batch: Batch) -> dict[str, Loss]:
    assert batch.labels is not None
    return {"classes": class_loss(scores(model, batch), batch.labels)}


def measure(model: Model, examples: Examples) -> dict[str, float]:
    """Mean loss, accuracy, macro F1 and the majority's share."""
    weight = model.encoder.embeddings.words.weight
    predicted, total, gold = [], 0.0, []
    with torch.inference_mode():
        for rows in fill_budget(by_length(range(len(examples.labels)), examples.sizes), examples.sizes, 4096):
            batch = to_batch(examples, rows).to(weight.device)
            found = scores(model.eval(), batch).float()
            assert batch.labels is not None
            total += float(class_loss(found, batch.labels)[0])
            predicted += found.argmax(-1).tolist()
            gold += batch.labels.tolist()
    return {"loss": total / len(gold), **metrics.classification(gold, predicted)}
