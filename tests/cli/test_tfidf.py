"""A saved TF-IDF model in every verb: described by info, and named where an encoder is needed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bothways
from bothways import pretrained
from bothways.base.errors import InputError
from bothways.base.io import BACKUP_SUFFIX
from bothways.cli.main import main
from bothways.model.checkpoint import hub
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.tfidf import read_tfidf, write_tfidf
from bothways.model.linear import tfidf
from bothways.serving.models import load_models

TEXTS = ["a cat ran", "the cat sat", "a cat", "cats", "a dog ran", "the dog sat", "a dog"]
TRAINED = {"verb": "finetune classify", "settings": {"train": "pets.csv"}}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A classifier and a regression on the same texts, by task."""
    folder = tmp_path_factory.mktemp("tfidf")
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    for task, kind, names, count in (("classify", "classes", ("cat", "dog"), (2,)), ("regress", "number", (), ())):
        rows = tfidf.TextRows(TEXTS, None, labels if names else labels.astype(float))
        described = Description(labels=names, metadata=TRAINED)
        write_tfidf(tfidf.fit(rows, rows, kind, *count), described, folder / task)
    return {task: folder / task for task in ("classify", "regress")}


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_info_describes_a_tfidf_model(task, directories, capsys):
    main(["info", str(directories[task]), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert "TF-IDF" in facts["model"] and task in facts["model"]
    terms = json.loads((directories[task] / "terms.json").read_text())
    assert facts["terms"] == len(terms["words"]) + len(terms["characters"]) > 9
    assert facts.get("labels") == {"classify": "cat, dog"}.get(task)
    assert (facts["made with"], facts["trained on"]) == ("bothways finetune classify", "pets.csv")


@pytest.mark.parametrize("task", ["classify", "regress"])
@pytest.mark.parametrize(
    "command",
    [
        "quantize MODEL --with FILE --out OUT",
        "export MODEL --out OUT",
        "finetune classify --model MODEL --train FILE --out OUT",
        "distill MODEL FILE --out OUT",
        "pretrain FILE --from MODEL --out OUT",
    ],
)
def test_verbs_that_need_an_encoder_name_the_kind_of_model_in_one_line(command, task, directories, tmp_path, capsys):
    file = tmp_path / "pets.csv"
    file.write_text("text,label\n" + "".join(f"{text},{text[-3:]}\n" for text in TEXTS), encoding="utf-8")
    places = {"MODEL": directories[task], "FILE": file, "OUT": tmp_path / "out"}
    with pytest.raises(SystemExit) as stopped:
        main([str(places.get(word, word)) for word in command.split()])
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and error.count("\n") == 1
    assert f"{directories[task]}: a TF-IDF model" in error
    assert ("regression" in error) == (task == "regress") and "predict" in error and "evaluate" in error


@pytest.fixture
def run(directories, tmp_path):
    """A run that delivers the classifier."""
    shutil.copytree(directories["classify"], tmp_path / "run" / "model")
    described = {"format": 1, "verb": "finetune classify", "status": "done", "settings": {"train": "pets.csv"}}
    (tmp_path / "run" / "bothways.json").write_text(json.dumps(described), encoding="utf-8")
    return tmp_path / "run"


def test_a_run_that_delivers_tfidf_is_used_by_its_name(run, tmp_path, capsys):
    assert hub.locate(run) == run / "model"  # where the server reads prompts too
    model = bothways.load(run)
    expected = [one.label for one in model.classify(TEXTS)]
    assert expected == ["cat"] * 4 + ["dog"] * 3
    assert [one.label for one in load_models({"pets": str(run)})["pets"].classify(TEXTS)] == expected
    file = tmp_path / "pets.csv"
    rows = zip(TEXTS, expected, strict=True)
    file.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    for command in (
        ["predict", str(run), str(file)],
        ["predict", str(run), str(file), "-o", str(tmp_path / "out.csv")],
    ):
        main(command)
    printed = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert printed == expected and (tmp_path / "out.csv").exists()
    main(["evaluate", str(run), str(file), "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] == 1
    main(["info", str(run), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["path"] == str(run) and facts["status"] == "done" and "TF-IDF" in facts["model"]


def test_a_run_that_holds_static_vectors_is_used_by_its_name(tmp_path):
    (tmp_path / "model").symlink_to(pretrained.locate(Path("bothways-en-static")))
    model, named = bothways.load(tmp_path), bothways.load("bothways-en-static")
    assert (model.embed(TEXTS) == named.embed(TEXTS)).all()


def test_a_run_whose_save_was_cut_off_is_read_from_the_model_before(run, capsys):
    (run / "model").rename(run / f".model.0123abcd{BACKUP_SUFFIX}")
    assert bothways.load(run).classify("a dog").label == "dog"


@pytest.mark.parametrize("name", ["idf", "weight", "bias"])
def test_weights_that_are_no_numbers_are_refused_by_name(name, directories, tmp_path):
    shutil.copytree(directories["classify"], tmp_path / "model")
    file = tmp_path / "model" / "tfidf.safetensors"
    weights = load_file(file)
    weights[name][-1:] = np.nan
    save_file(weights, file)
    with pytest.raises(InputError, match=rf"tfidf\.safetensors: NaN .*{name}"):
        read_tfidf(Directory(tmp_path / "model"))
