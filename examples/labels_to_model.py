"""From labels to a model in use: train, look for label errors, choose what to label next, export, reload, compare.

    python examples/labels_to_model.py
"""

import json
from importlib.resources import files
from tempfile import TemporaryDirectory

import bothways
from bothways.settings import Export
from bothways.verbs import VERBS

rows = [json.loads(line) for line in files("bothways").joinpath("sample/support.jsonl").open(encoding="utf-8")]
labelled, unlabelled = rows[::6], [row["text"] for row in rows[1::6]]
labelled[3] = {**labelled[3], "label": "praise"}  # a wrong label, to be found

with TemporaryDirectory() as folder:
    run = bothways.finetune(labelled, out=f"{folder}/first")
    print(run.label_errors.loc[:4, ["row", "text", "label", "suggested", "label_probability"]])
    print("to label next:", [unlabelled[row] for row in run.model.label_next(unlabelled, 3)])
    labelled[3] = rows[18]
    better = bothways.finetune(labelled, out=f"{folder}/second")
    print(run.compare(better))
    VERBS["export"].load()(Export(model=better.model_directory, out=f"{folder}/onnx"))
    reloaded = bothways.open_run(f"{folder}/second")
    print(reloaded.model.classify("The postman says nobody was home.").label)
