"""Log a fine-tuning run with trackio.

trackio keeps the metrics on this machine; `trackio show` draws them.

    python examples/log_with_trackio.py
"""

import json
from importlib.resources import files
from tempfile import TemporaryDirectory

import trackio

import bothways
from bothways.settings import Classify

NOT_LOGGED = ("step", "steps", "seed", "split")

lines = files("bothways").joinpath("sample/support.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]


def numbers(row):
    """The numbers of a row of metrics: train/loss, heldout/accuracy and so on."""
    names = [name for name, value in row.items() if isinstance(value, float | int) and name not in NOT_LOGGED]
    return {f"{row['split']}/{name}": row[name] for name in names}


def log(row):
    trackio.log(numbers(row), step=row["step"])


with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    settings = Classify(model="bothways-en-static", train=rows, out=f"{folder}/run", epochs=2.0)
    trackio.init(project="support", config={"model": str(settings.model), "epochs": settings.epochs})
    result = bothways.train(settings, callbacks=[log])
    low, high = result.interval or (result.mean, result.mean)
    trackio.log({"result/mean": result.mean, "result/low": low, "result/high": high})
    trackio.finish()
    print(f"{result.metric} {result.mean:.2f}, logged with its 95 % interval")
