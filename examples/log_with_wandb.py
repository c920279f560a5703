"""Log a fine-tuning run with Weights & Biases.

`mode="offline"` sends nothing; without it the metrics go to the account of `wandb login`.

    python examples/log_with_wandb.py
"""

import json
from importlib.resources import files
from tempfile import TemporaryDirectory

import wandb

import bothways
from bothways.settings import Classify

NOT_LOGGED = ("step", "steps", "seed", "split")

lines = files("bothways").joinpath("sample/support.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]


def numbers(row):
    """The numbers of a row of metrics: train/loss, heldout/accuracy and so on."""
    names = [name for name, value in row.items() if isinstance(value, float | int) and name not in NOT_LOGGED]
    return {f"{row['split']}/{name}": row[name] for name in names}


with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    settings = Classify(model="bothways-en-static", train=rows, out=f"{folder}/run", epochs=2.0)
    config = {"model": str(settings.model), "epochs": settings.epochs}
    with wandb.init(project="support", config=config, mode="offline", dir=folder) as tracked:

        def log(row):
            tracked.log(numbers(row), step=row["step"])

        result = bothways.train(settings, callbacks=[log])
        low, high = result.interval or (result.mean, result.mean)
        tracked.summary.update({"result/mean": result.mean, "result/low": low, "result/high": high})
    print(f"{result.metric} {result.mean:.2f}, logged with its 95 % interval")
