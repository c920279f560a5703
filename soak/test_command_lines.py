"""A hundred thousand random command lines, of which none ends in a traceback."""

import pytest

from tests.cli.test_command_lines import place, refuse_tracebacks  # noqa: F401
from tests.conftest import make_model, tokenizer  # noqa: F401

NUMBER = 100_000


@pytest.mark.timeout(4 * 3600)
def test_a_hundred_thousand_command_lines_end_without_a_traceback(place, capsys):  # noqa: F811
    ended = refuse_tracebacks(place, capsys, NUMBER, seed=1)
    with capsys.disabled():
        print(f"\ncommand lines by exit status: {dict(sorted(ended.items()))}")
