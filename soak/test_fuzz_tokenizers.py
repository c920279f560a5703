"""100,000 broken tokenizer files: each is read, or refused in one line."""

import pytest

from tests.text.tokenizer.conftest import write_sentencepiece
from tests.text.tokenizer.test_fuzz_tokenizers import KINDS, check, make_directory


@pytest.mark.parametrize("kind", KINDS)
def test_broken_tokenizer_files_are_refused_in_one_line(kind, tmp_path):
    check(16_700, make_directory(kind, tmp_path / "whole", write_sentencepiece), tmp_path / "broken", seed=1)
