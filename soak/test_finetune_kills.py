"""Fine-tuning that is killed after any row of its metrics, and in any stage, goes on to the same numbers and files.

The tests of a few of these moments are in tests/training/finetuning.
"""

import pytest

from tests.conftest import make_model, tokenizer  # noqa: F401 (fixtures)
from tests.training.conftest import in_processes  # noqa: F401
from tests.training.finetuning import test_kills
from tests.training.finetuning.conftest import checkpoint_of, table  # noqa: F401
from tests.training.finetuning.test_finetune import (  # noqa: F401
    assert_a_kill_changes_no_number,
    rows_of,
    settings,
    start,
    train_file,
    undisturbed,
)

kills_file = test_kills.train_file


@pytest.mark.parametrize("rows", range(24))
def test_a_run_killed_after_any_row_resumes_to_the_same_numbers(settings, undisturbed, rows, monkeypatch):  # noqa: F811
    assert rows < len(rows_of(undisturbed.directory))
    assert_a_kill_changes_no_number(settings, undisturbed, rows, monkeypatch)


@pytest.mark.parametrize("kind", test_kills.STAGES)
def test_a_run_killed_in_each_place_resumes_to_the_same_files(
    kind,
    in_processes,  # noqa: F811
    checkpoint_of,  # noqa: F811
    kills_file,
    tmp_path,
):
    places = test_kills.STAGES[kind][1]
    test_kills.assert_kills_change_no_file(kind, places, in_processes, checkpoint_of, kills_file, tmp_path)
