"""Train a classifier from a pandas DataFrame, or from a dict of columns if pandas is not installed.

Eight messages of each kind are enough to start with. The run compares the model with simple ones on the same test rows.

    python examples/classify_dataframe.py
"""

import json
from collections import Counter
from importlib.resources import files
from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Classify

PER_LABEL = 8


def make_table(rows):
    columns = {name: [row[name] for row in rows] for name in ("text", "label")}
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


lines = files("bothways").joinpath("sample/support.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]
train, count_by_label = [], Counter[str]()
for row in rows:
    if row["split"] == "train" and count_by_label[row["label"]] < PER_LABEL:
        train.append(row)
        count_by_label[row["label"]] += 1
test = [row for row in rows if row["split"] == "test"]

with TemporaryDirectory() as folder:  # use a directory of your own to keep the model and report.html
    result = bothways.train(Classify(train=make_table(train), test=make_table(test), out=f"{folder}/run"))
    print(f"accuracy {result.mean:.2f} on {result.rows} messages; {result.verdict}")
    model = bothways.load(result.model_directory)
    for text in ["The postman says nobody was home.", "You took too much from my account."]:
        prediction = model.classify(text)
        print(f"{prediction.label} ({prediction.score:.2f}): {text}")
