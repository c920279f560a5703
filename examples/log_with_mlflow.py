"""Log a fine-tuning run with MLflow.

The metrics go to a file here; leave out `set_tracking_uri` for the server in $MLFLOW_TRACKING_URI.

    python examples/log_with_mlflow.py
"""

import json
from importlib.resources import files
from tempfile import TemporaryDirectory

import mlflow

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
    mlflow.log_metrics(numbers(row), step=row["step"])


with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    settings = Classify(model="bothways-en-static", train=rows, out=f"{folder}/run", epochs=2.0)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    with mlflow.start_run(run_name="support"):
        mlflow.log_params({"model": str(settings.model), "epochs": settings.epochs})
        result = bothways.train(settings, callbacks=[log])
        low, high = result.interval or (result.mean, result.mean)
        mlflow.log_metrics({"result/mean": result.mean, "result/low": low, "result/high": high})
    print(f"{result.metric} {result.mean:.2f}, logged with its 95 % interval")
