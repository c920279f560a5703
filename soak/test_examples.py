"""The slow examples run as they are; the others run in tests/test_examples.py."""

import pytest

from tests import test_examples
from tests.test_examples import packaged  # noqa: F401 (a fixture)


@pytest.mark.parametrize("name", test_examples.IN_SOAK)
def test_an_example_prints_a_result_and_leaves_no_files(name, packaged, tmp_path, monkeypatch, capsys):  # noqa: F811
    test_examples.assert_prints_a_result_and_leaves_no_files(name, packaged, tmp_path, monkeypatch, capsys)
