"""100,000 checkpoints with a broken config, index, header, bothways.json or file of sentence-transformers: each is used
or refused in one line."""

import pytest

from tests.conftest import make_model, tokenizer  # noqa: F401 (fixtures)
from tests.model.checkpoint.test_fuzz_checkpoints import FILES, check, make_checkpoint

pytestmark = pytest.mark.timeout(3600)
NUMBER = 100_000
FAMILIES = ("bert", "modernbert", "longformer", "big_bird", "deberta-v2", "albert")  # share the configs' cases


@pytest.mark.parametrize("name", FILES)
def test_no_broken_file_of_a_hundred_thousand_is_a_traceback(name, make_model, tokenizer, tmp_path, capsys):  # noqa: F811
    families = FAMILIES if name == "config.json" else FAMILIES[:1]
    number, refused = NUMBER * FILES[name] // 100 // len(families), 0
    for family in families:
        make_checkpoint(make_model, tokenizer, tmp_path / family, family)
        refused += check(number, name, tmp_path / family, tmp_path / f"broken-{family}", seed=1)
    with capsys.disabled():
        print(f"\n{name}: {refused:,} of {number * len(families):,} refused, none with a traceback")
    assert refused > number / 20
