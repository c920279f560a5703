"""A run that is killed in any stage goes on to the same files: plan, train_seeds, select, compare, deliver."""

import json
import signal

import numpy as np
import pytest

from bothways.model.checkpoint import checkpoint
from bothways.training.run import read_metrics

pytestmark = pytest.mark.slow

STAGES = {  # settings, and places in the order of a run
    "int8": (
        {"quantize": "int8", "baselines": False},
        [
            "before training.finetuning.plan:training_options",
            "before training.finetuning.training:select_fraction",
            "before training.finetuning.training:round_table",  # between the phases
            "before training.finetuning.seeds:score",
            "before training.finetuning.select:load_file",
            "before training.finetuning.deliver:write_report",
            "after training.finetuning.run_models:finalize_all",
            "before training.finetuning.deliver:rmtree",
        ],
    ),
    "folds": (
        {"folds": 2, "linear_start": False},
        [
            "after training.finetuning.plan:choose_rows",
            "before training.finetuning.ground.baselines:write_atomic",
            "before training.finetuning.seeds:score",
            "before training.finetuning.model_scores:mean_scores",
            "before training.finetuning.compare:lead_on_dev",
            "before training.finetuning.run_models:write_tfidf",
        ],
    ),
    "few": (  # linear models, and a training that is tried in folds
        {"epochs": None, "minutes": 600.0},
        [
            "after training.finetuning.plan:choose_rows",
            "before training.finetuning.few_rows:fit_candidate",
            "before training.finetuning.few_rows:estimate_trainings",
            "before training.finetuning.seeds:score 3",
            "before training.finetuning.finetune:compare_trained",
            "before training.finetuning.deliver:write_report",
        ],
    ),
    "all rows": (  # a last training, of which a part is done
        {
            "epochs": 3.0,
            "minutes": 600.0,
            "batch_size": 16,
            "linear_start": False,
            "pooling": "mean",
            "baselines": False,
            "checkpoint_every": 2,
        },
        [
            "after training.finetuning.all_rows:learning_curve",
            "before training.finetuning.all_rows:train_model",
            "after training.step:read_step 5",
            "before training.finetuning.all_rows:interpolate",
            "after training.finetuning.all_rows:write_weights",
            "before training.finetuning.deliver:write_report",
            "after training.finetuning.run_models:finalize_all",
            "before training.finetuning.deliver:rmtree",
        ],
    ),
}

SOME = {  # soak/test_finetune_kills.py has all places, of "all rows" and "few" too
    "int8": [
        "before training.finetuning.training:round_table",  # between the phases
        "after training.finetuning.run_models:finalize_all",
    ],
    "folds": [
        "before training.finetuning.seeds:score",
        "before training.finetuning.model_scores:mean_scores",
        "before training.finetuning.compare:lead_on_dev",
    ],
}


@pytest.fixture(scope="module")
def train_file(table):
    """A text's class is whether it holds a cat or a dog."""
    draw, rows = np.random.default_rng(0), []
    for index in range(80):
        words = draw.choice("the and on a b mat ran".split(), int(draw.integers(3, 9))).tolist()
        words.insert(int(draw.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        rows.append({"text": " ".join(words), "label": ("feline", "canine")[index % 2]})
    return table(rows)


@pytest.mark.parametrize("kind", SOME)
def test_a_run_killed_in_each_stage_resumes_to_the_same_files(kind, in_processes, checkpoint_of, train_file, tmp_path):
    assert {*SOME[kind]} < {*STAGES[kind][1]}
    assert_kills_change_no_file(kind, SOME[kind], in_processes, checkpoint_of, train_file, tmp_path)


def assert_kills_change_no_file(kind, places, in_processes, checkpoint_of, train_file, tmp_path):
    """A run that is killed in one place after the other has the files of a whole one."""
    options, _ = STAGES[kind]
    settings = {"model": str(checkpoint_of(num_hidden_layers=1)), "train": str(train_file), "epochs": 1.0}
    settings |= {"dtype": "float32", "device": "cpu", **options}
    statuses = []
    for number, place in enumerate([None, *places, None]):
        run = {"out": str(tmp_path / ("killed" if number else "whole")), "resume": number > 1}
        statuses += in_processes({"die_in": place, "settings": settings | run})
    assert statuses == [0, *[-signal.SIGKILL] * len(places), 0]
    for read in (names_of, result_of, losses_of, weights_of, predictions_of):
        assert read(tmp_path / "killed") == read(tmp_path / "whole"), read


def names_of(run):
    return sorted(str(path.relative_to(run)) for path in run.rglob("*"))


def result_of(run):
    """All that bothways.json says of the models; places in texts are those of the run."""
    metadata = json.loads((run / "bothways.json").read_text(encoding="utf-8").replace(str(run), "RUN"))
    return {name: metadata[name] for name in ("status", "result", "figures", "examples", "rows")}


def losses_of(run):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_metrics(run)]


def weights_of(run):
    encoder = run / ("encoder" if (run / "encoder").exists() else "model")  # beside TF-IDF, if that is better on dev
    return {name: value.tolist() for name, value in checkpoint.load(encoder).model.state_dict().items()}


def predictions_of(run):
    return (run / "predictions.csv").read_text(encoding="utf-8")
