"""A format of checkpoints: weights as 16-bit numbers in a file of numpy."""

import numpy as np

from bothways.model.checkpoint.formats.format import StoredModel
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat, hf_state_dict
from bothways.model.families import FAMILIES

WEIGHTS = "halves.npz"


class HalvesFormat(LayoutFormat):
    model_type = "acme-halves"

    def open(self, directory):
        def read(plan):
            with np.load(directory.path / WEIGHTS) as stored:
                return {name: value.astype(np.float32) for name, value in stored.items()}

        return StoredModel({**directory.config, "model_type": directory.config["family"]}, read)

    def write(self, checkpoint, directory, hf_config):
        family = FAMILIES[checkpoint.model_type]
        tensors = hf_state_dict(checkpoint.model, family, family.prefix)
        np.savez(directory / WEIGHTS, **{name: value.half().numpy() for name, value in tensors.items()})
        return {**hf_config, "family": hf_config["model_type"], "model_type": self.model_type}
