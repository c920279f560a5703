"""Few examples: 8 and 64 rows a class of six public sets, by models that train no encoder, and by three that do.

    python -m benchmarks.few_examples -o DIR [--cells SST-2:8 ...] [--methods ours vectors tfidf]
    python -m benchmarks.few_examples -o DIR --trained [--methods ours-trained transformers setfit]
    python -m benchmarks.few_examples -o DIR --keep

A cell is a set and its rows of each class, drawn three times (--trained: once). All methods have the same rows; at most
1,000 test rows are predicted. Each answer is kept in DIR as it is made, so that an interrupted run goes on. --keep
writes all of DIR to docs/measurements/few-examples, from which `make figures` makes the tables.

ours: `bothways.finetune(rows)` as it is, which leaves the encoder frozen on so few rows (BANKING77 with 64 rows a
class: by `learning_rate=0`). vectors: logistic regression of scikit-learn on `bothways.load().embed`. tfidf: the same
on words and pairs of words. ours-trained: `finetune` from all-MiniLM-L6-v2 with a learning rate, so that it trains.
transformers: a Trainer on the same start, 20 epochs (64 rows: 10) of batches of 16 at 5e-5. setfit: SetFit on the same
start, with its own defaults but 20 pairs a row. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from benchmarks import measurements
from benchmarks.finetune_sets import DATA, Rows, sample_rows
from benchmarks.first_labels import columns, draw, load_set, on_tfidf, on_vectors
from benchmarks.inference_texts import minilm

SETS = ("SST-2", "CoLA", "ACL-ARC", "Hyperpartisan", "CLINC150 domains", "BANKING77")
ROWS = (8, 64)
TRAINED_SETS = ("SST-2", "CLINC150 domains")
DRAWS = 3
MAX_TEST = 1000
MANY_ROWS = 1000  # from here on, `finetune` would try whether training gains
TRAINED_RATE = 1.4e-4  # the default of `finetune` for this width
NAME = "few-examples"


def load(name: str) -> tuple[Rows, Rows]:
    if name != "CLINC150 domains":
        return load_set(name)

    domains = json.loads((DATA / "clinc150/domains.json").read_text(encoding="utf-8"))
    domain_of = {intent: domain for domain, intents in domains.items() for intent in intents}
    train, test = load_set("CLINC150")
    return [{**row, "label": domain_of[row["label"]]} for row in train], [
        {**row, "label": domain_of[row["label"]]} for row in test
    ]


# --- methods: the label of each test row ------------------------------------------------------------------------------


def ours(train: Rows, test: Rows) -> list[str | None]:
    frozen = {"learning_rate": 0.0} if len(train) >= MANY_ROWS else {}
    return finetuned(train, test, **frozen)


def ours_trained(train: Rows, test: Rows) -> list[str | None]:
    return finetuned(train, test, model=minilm(), learning_rate=TRAINED_RATE)


def finetuned(train: Rows, test: Rows, **options: Any) -> list[str | None]:
    with tempfile.TemporaryDirectory() as folder:
        result = bothways.finetune(train, out=Path(folder, "run"), **options)
        print(f"  {result.measured}; {'frozen' if result.frozen else 'trained'}", flush=True)
        return [answer.label for answer in result.load().classify(columns(test)[0])]


def by_transformers(train: Rows, test: Rows) -> list[str | None]:
    """The recipe of transformers' own course: tokenizer, model with a new head, Trainer."""
    from datasets import Dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    names = sorted({row["label"] for row in train})
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    model = AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=len(names))

    def dataset(rows: Rows) -> Dataset:
        texts, labels = columns(rows)
        tokens = tokenizer(texts, truncation=True, max_length=128)
        return Dataset.from_dict({**tokens, "label": [names.index(label) for label in labels]})

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=20 if len(train) < MANY_ROWS / 10 else 10,
            per_device_train_batch_size=16,
            learning_rate=5e-5,
            warmup_steps=0.1,
            save_strategy="no",
            report_to=[],
            seed=0,
            use_cpu=True,
        )
        collate = DataCollatorWithPadding(tokenizer)
        trainer = Trainer(model=model, args=arguments, train_dataset=dataset(train), data_collator=collate)
        trainer.train()
        logits_NC = trainer.predict(dataset(test)).predictions
    return [names[index] for index in logits_NC.argmax(1)]


def by_setfit(train: Rows, test: Rows) -> list[str | None]:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    texts, labels = columns(train)
    model = SetFitModel.from_pretrained(str(minilm()), labels=sorted({*labels}))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_iterations=20, num_epochs=1, report_to=[], save_strategy="no", seed=0
        )
        trainer = Trainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts, "label": labels})
        )
        trainer.train()
        return [str(label) for label in model.predict(columns(test)[0])]


Method = Callable[[Rows, Rows], Sequence[str | None]]
FROZEN: dict[str, Method] = {
    "ours": ours,
    "vectors": on_vectors,
    "tfidf": on_tfidf,
}
TRAINED: dict[str, Method] = {
    "ours-trained": ours_trained,
    "transformers": by_transformers,
    "setfit": by_setfit,
}


# --- runs -------------------------------------------------------------------------------------------------------------


def run_cell(cell: str, draws: int, methods: Sequence[str], out: Path) -> None:
    """The answers of each method to each draw, those that DIR lacks."""
    name, number = cell.split(":")
    train, test = load(name)
    test = sample_rows(test, MAX_TEST, seed=0)
    for seed in range(draws):
        rows, _ = draw(train, int(number), seed)
        for method in methods:
            file = out / f"{name}_{number}_{seed}_{method}.json"
            if file.exists():
                continue

            begun = time.perf_counter()
            labels = ({**FROZEN, **TRAINED})[method](rows, test)
            seconds = round(time.perf_counter() - begun, 1)

            gold = columns(test)[1]
            right = np.mean([one == other for one, other in zip(gold, labels, strict=True)])
            print(f"{cell}, draw {seed}, {method}: {right:.1%} in {seconds} s", flush=True)
            answers = {"rows": len(rows), "seconds": seconds, "gold": gold, "predicted": [*labels]}
            file.write_text(json.dumps({**answers, "machine": measurements.machine()}), encoding="utf-8")


def keep(out: Path) -> None:
    """All answers of DIR as one measurement: labels as numbers, in the order of their names."""
    arrays: dict[str, np.ndarray] = {}
    cells: dict[str, Any] = {}
    machines = {}
    for file in sorted(out.glob("*_*_*_*.json")):
        name, number, seed, method = file.stem.split("_")
        answers = json.loads(file.read_text(encoding="utf-8"))
        labels = sorted({*answers["gold"]})
        arrays[f"{name}/gold"] = measurements.codes(answers["gold"], labels)
        arrays[f"{name}/{number}/{seed}/{method}"] = measurements.codes(answers["predicted"], labels)
        cells[f"{name}/{number}/{seed}/{method}"] = {"rows": answers["rows"], "seconds": answers["seconds"]}
        machines[json.dumps(answers["machine"])] = answers["machine"]
    measurements.write(
        NAME,
        arrays,
        model="bothways-en; for trained encoders all-MiniLM-L6-v2",
        seeds=range(DRAWS),
        cells=cells,
        machines=[*machines.values()],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", help="SET:ROWS")
    parser.add_argument("--methods", nargs="+", choices=[*FROZEN, *TRAINED])
    parser.add_argument("--trained", action="store_true", help="the methods that train an encoder, one draw")
    parser.add_argument("--keep", action="store_true", help="write the measurement; run nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.keep:
        keep(options.out)
        return

    sets = TRAINED_SETS if options.trained else SETS
    cells = options.cells or [f"{name}:{number}" for number in ROWS for name in sets]
    methods = options.methods or [*(TRAINED if options.trained else FROZEN)]
    for cell in cells:
        run_cell(cell, 1 if options.trained else DRAWS, methods, options.out)


if __name__ == "__main__":
    main()
