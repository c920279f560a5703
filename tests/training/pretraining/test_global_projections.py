"""The projections of a Longformer for global tokens, which pre-training does not reach."""

import pytest
import torch

from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Pretrain
from bothways.training.pretraining import pretrain
from bothways.training.pretraining.initial_model import copy_to_global_projections, global_projections_are_copies


@pytest.mark.slow
@pytest.mark.parametrize("start", ["none", "untrained maps", "maps of their own"])
def test_untrained_global_maps_are_copies_of_the_local_ones(start, make_model, tokenizer, tmp_path):
    own = make_model("longformer", {"masked_words": 0}, max_position_embeddings=128)
    if start == "untrained maps":
        copy_to_global_projections(own)
    checkpoint.save(Checkpoint(own, tokenizer, model_type="longformer"), tmp_path / "start")
    (tmp_path / "text.txt").write_text("\n\n".join("the cat sat on the mat. " * 9 for _ in range(30)), encoding="utf-8")
    settings = Pretrain(
        corpus=(tmp_path / "text.txt",),
        out=tmp_path / "run",
        max_length=64,
        steps=2,
        batch_tokens=500,
        dtype="float32",
        pairs="none",
        **(
            {"tokenizer": tmp_path / "start", "family": "longformer", "model": "tiny"}
            if start == "none"
            else {"from_checkpoint": tmp_path / "start"}
        ),
    )
    made = checkpoint.load(pretrain.run(settings).model_directory).model
    assert global_projections_are_copies(made) == (start != "maps of their own")
    if start == "maps of their own":
        maps = [model.encoder.layers[0].attention.global_query.weight for model in (own, made)]
        assert torch.equal(*maps)
