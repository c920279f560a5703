"""From labels to a model in use: train, look for label errors, choose what to label next, compare, export, reload.

One label is wrong on purpose.

    python examples/labels_to_model.py
"""

import json
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import bothways

lines = files("bothways").joinpath("sample/support.jsonl").read_text(encoding="utf-8").splitlines()
rows = [json.loads(line) for line in lines]
labelled, test, unlabelled = rows[::6], rows[2::6], [row["text"] for row in rows[1::6]]
mended = list(labelled)
labelled[3] = {**labelled[3], "label": "praise"}

with TemporaryDirectory() as folder:
    run = bothways.finetune(labelled, test=test, out=f"{folder}/first")
    run.label_errors.to_csv(f"{folder}/errors.csv", index=False)  # with pandas, a DataFrame
    print(*Path(folder, "errors.csv").read_text(encoding="utf-8-sig").splitlines()[:4], sep="\n")
    print("to label next:", [unlabelled[row] for row in run.model.label_next(unlabelled, 3)])
    better = bothways.finetune(mended, test=test, out=f"{folder}/second")
    print(run.compare(better))
    better.model.save(f"{folder}/exported")  # transformers loads it, too; `bothways export` writes ONNX
    texts = ["The postman says nobody was home.", "I was charged twice."]
    print([one.label for one in bothways.load(f"{folder}/exported").classify(texts)])
