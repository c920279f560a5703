"""Calibration: temperatures that make probabilities mean what they say, and prediction sets with a coverage."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.settings import Classify
from bothways.tasks.class_decoding import LOWEST, Calibration, fit_calibration, fit_temperature, stored_calibration
from bothways.tasks.classify import scoring


def sample(scores_NC, temperature, seed):
    """Classes drawn from the softmax of scores at a temperature."""
    probabilities = (scores_NC / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(seed))[:, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_temperature_of_sampled_classes_is_recovered(temperature):
    scores_NC = 3 * torch.randn(6000, 4, generator=torch.Generator().manual_seed(1))
    classes_N = sample(scores_NC, temperature, 2)
    assert fit_temperature(scores_NC.numpy(), classes_N.numpy(), multi_label=False) == pytest.approx(
        temperature, rel=0.1
    )
    gold_NC = torch.bernoulli((scores_NC / temperature).sigmoid(), generator=torch.Generator().manual_seed(3)).long()
    assert fit_temperature(scores_NC.numpy(), gold_NC.numpy(), multi_label=True) == pytest.approx(temperature, rel=0.1)


def test_a_few_rows_that_are_all_right_are_no_certainty():
    scores_NC = np.array([[3.0, 0.0], [0.0, 3.0]] * 4)
    temperature = fit_temperature(scores_NC, np.array([0, 1] * 4), multi_label=False)
    assert temperature > LOWEST * 1.5
    more = fit_temperature(np.tile(scores_NC, (50, 1)), np.array([0, 1] * 200), multi_label=False)
    assert more < temperature


def test_sets_hold_the_right_class_as_often_as_promised():
    scores_NC = 2 * torch.randn(3000, 5, generator=torch.Generator().manual_seed(4))
    classes_N = sample(scores_NC, 1.5, 5)
    calibration = fit_calibration(scores_NC[:1000].numpy(), classes_N[:1000].numpy(), multi_label=False)
    probabilities_NC = (scores_NC[1000:] / calibration.temperature).softmax(-1)
    gold_N = probabilities_NC.gather(1, classes_N[1000:, None])[:, 0]
    sizes = []
    for coverage in (0.5, 0.8, 0.9, 0.95):
        lowest = calibration.threshold(coverage)
        assert float((gold_N >= lowest).float().mean()) == pytest.approx(coverage, abs=0.03)
        sizes.append(float((probabilities_NC >= lowest).sum(1).float().mean()))
    assert sizes == sorted(sizes)


def test_many_rows_are_thinned_out_and_have_nearly_the_same_threshold():
    scores_NC = 2 * torch.randn(9001, 3, generator=torch.Generator().manual_seed(6))
    classes_N = sample(scores_NC, 1.0, 7)
    calibration = fit_calibration(scores_NC.numpy(), classes_N.numpy(), multi_label=False)
    assert len(calibration.strangeness) == 2000 and calibration.rows == 9001
    gold_N = (scores_NC / calibration.temperature).softmax(-1).gather(1, classes_N[:, None])[:, 0]
    exact = float(gold_N.sort(descending=True).values[math.ceil(9002 * 0.9) - 1])
    assert calibration.threshold(0.9) == pytest.approx(exact, abs=0.005)


def test_a_coverage_that_needs_more_rows_is_refused():
    calibration = Calibration(1.0, 8, tuple(np.linspace(0.1, 0.8, 8)))
    assert calibration.threshold(8 / 9) == pytest.approx(0.2)
    with pytest.raises(InputError, match=r"coverage \(0.9\) needs 9 held-out rows; .* 8; .* 0.88"):
        calibration.threshold(0.9)
    assert calibration.threshold(0.88) == pytest.approx(0.2)  # as the message says
    with pytest.raises(InputError, match=r"coverage \(1.5\)"):
        calibration.threshold(1.5)
    with pytest.raises(InputError, match="fine-tune a single-label classifier"):
        stored_calibration({})


@pytest.fixture(scope="module")
def rows():
    """Labels that a tenth of the rows have wrong."""
    words = ["the", "sat", "on", "mat", "and", "ran"]
    return [
        {
            "text": f"{words[row % 6]} {('dog', 'cat')[row % 3 > 0]} {'on ' * (row // 12)}",
            "label": "ab"[(row % 3 > 0) != (row % 10 == 7)],
        }
        for row in range(240)
    ]


@pytest.mark.slow
def test_the_saved_model_has_scores_divided_by_the_temperature(
    rows, table, checkpoint_of, finetuned, tmp_path, capsys, monkeypatch
):
    options = {"model": checkpoint_of(), "train": table(rows), "epochs": 3.0}
    run, fitted = finetuned(Classify, **options), scoring.fit_calibration
    with monkeypatch.context() as patched:  # the same run without a division
        patched.setattr(scoring, "fit_calibration", lambda *a, **b: replace(fitted(*a, **b), temperature=1.0))
        plain = finetuned(Classify, **options)
    stored = run.predictor.description.metadata["calibration"]
    texts = [row["text"] for row in rows[:30]]
    logits = []
    for predictor in (run.predictor, plain.predictor):
        scores = [one.scores for one in predictor.classify(texts)]
        logits.append(np.array([math.log(one["a"]) - math.log(one["b"]) for one in scores]))
    assert logits[0] * stored["temperature"] == pytest.approx(logits[1], rel=1e-3, abs=1e-4)
    assert abs(stored["temperature"] - 1) > 0.01
    figures = run.metadata["figures"]["test"]
    assert {"calibration_error", "calibration_error_before"} <= {*figures} and run.result.mean == plain.result.mean
    sets = [one.labels for one in run.predictor.classify(texts, coverage=0.8)]
    assert all(not one or one[0] == best.label for one, best in zip(sets, run.predictor.classify(texts), strict=True))
    file, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    file.write_text("\n".join(texts), encoding="utf-8")
    main(
        [
            "predict",
            str(run.result.model_directory),
            str(file),
            "--coverage",
            "0.8",
            "--out",
            str(out),
            "--dtype",
            "float32",
        ]
    )
    capsys.readouterr()
    lines = out.read_text(encoding="utf-8").splitlines()
    written = [json.loads(row["labels"]) for row in csv.DictReader(lines)]
    assert written == [[*one] for one in sets]
