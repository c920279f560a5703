"""Fixtures of the tests of search: a small encoder with vectors."""

import pytest


@pytest.fixture(scope="session")
def checkpoint_with_vectors(make_model, tokenizer, tmp_path_factory):
    """The directory of a random encoder whose texts are the means of their tokens."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    directory = tmp_path_factory.mktemp("vectors") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {}), tokenizer, pooling="mean"), directory)
    return directory
