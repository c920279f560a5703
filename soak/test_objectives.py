"""Every objective of pre-training learns, resumes to the same losses, and has the same losses in micro-batches."""

import pytest

from tests.training.pretraining import test_objectives
from tests.training.pretraining.test_objectives import settings, trained  # noqa: F401 (fixtures)


@pytest.mark.parametrize("case", test_objectives.IN_SOAK)
def test_an_objective_learns_and_leaves_a_model_which_transformers_loads(case, trained):  # noqa: F811
    test_objectives.assert_learns_and_is_loaded(case, trained)


@pytest.mark.parametrize("case", test_objectives.RESUMED)
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_run(case, settings, tmp_path):  # noqa: F811
    test_objectives.assert_resumes_to_the_same_losses(case, settings, tmp_path)


@pytest.mark.parametrize("case", test_objectives.CUT)
def test_micro_batches_change_no_loss(case, settings, tmp_path):  # noqa: F811
    test_objectives.assert_micro_batches_change_no_loss(case, settings, tmp_path)
