"""Adapters in a model: install one, name its parameters, or merge it into the weights.

LoRA (Hu 2022): frozen weights plus products of two narrow matrices. Letters: T tokens, I inputs, O outputs, R rank, P
equal parts of the outputs (such as queries, keys and values).
"""

import hashlib
import math
import re
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.base.rng import Purpose, derive_seed
from bothways.model.adapters.spec import AdapterSpec, check_supported
from bothways.model.families import FamilySpec
from bothways.model.model import Model
from bothways.model.parameters import retype, set_module


class LoraLinear(nn.Linear):
    """x W^T + b + scale * x A^T B^T (Hu 2022, eq. 3), with A and B for each part of the outputs.

    It has the parameters of the frozen layer, under the same names.
    """

    lora_down: nn.Parameter  # [P * R, I], the A of all parts
    lora_up: nn.Parameter  # [P, O / P, R], their B
    scale: float

    @staticmethod
    def of(
        linear: nn.Linear,
        num_parts: int,
        rank: int,
        scale: float,
        generator: torch.Generator | None = None,
    ) -> "LoraLinear":
        """The layer with zero B, so that it computes the same.

        linear: the frozen layer, whose parameters are shared.
        num_parts: of the outputs.
        rank: of A and B.
        scale: of the change.
        generator: A is drawn from it.
        """
        module = retype(linear, LoraLinear)
        module.scale = scale

        down = torch.empty(num_parts * rank, linear.in_features)
        for part in down.chunk(num_parts):
            nn.init.kaiming_uniform_(part, a=math.sqrt(5), generator=generator)  # as microsoft/LoRA
        weight = linear.weight
        module.lora_down = nn.Parameter(down.to(weight))
        module.lora_up = nn.Parameter(weight.new_zeros(num_parts, linear.out_features // num_parts, rank))
        return module

    def forward(self, x_TI: Tensor) -> Tensor:
        return torch.addmm(super().forward(x_TI), F.linear(x_TI, self.lora_down), self.up().t(), alpha=self.scale)

    def up(self) -> Tensor:
        """The B of all parts as one matrix [O, P * R]."""
        if len(self.lora_up) == 1:
            return self.lora_up[0]
        return torch.block_diag(*self.lora_up)

    def merged(self) -> nn.Linear:
        """A plain layer with the weight W + scale * B A, computed in float64 and rounded once."""
        plain = retype(self, nn.Linear)
        for name in ("lora_down", "lora_up"):
            del plain._parameters[name]
        with torch.no_grad():
            change = self.scale * (self.up().double() @ self.lora_down.double())
            plain.weight = nn.Parameter((self.weight.double() + change).to(self.weight), requires_grad=False)
        return plain


LINEARS = (
    "attention.qkv",
    "attention.output",
    "feed_forward.inner",
    "feed_forward.output",
)
OWN_NAME = re.compile(r"\.lora_\w+$")
SAMPLES = 256  # numbers of each tensor in a fingerprint


def install(model: Model, spec: AdapterSpec, family: FamilySpec, seed: int = 0) -> None:
    """Add an adapter to a model, in place, so that its results do not change.

    model: without an adapter.
    spec: of the adapter.
    family: tells which parts of a linear map are stored apart.
    seed: the adapter's parameters are drawn from it.

    Only the parameters of the adapter and of the heads are trainable afterwards. InputError if the model has an
    adapter, or cannot have one of this kind.
    """
    if model.adapter is not None:
        raise InputError(f"the model has an adapter already ({model.adapter.kind}); merge it first (bothways merge)")
    check_supported(spec, model.config, family.model_type)

    # Of the encoder before the change, which the adapter belongs to.
    spec = replace(spec, fingerprint=fingerprint_encoder(model))
    for name, value in model.encoder.named_parameters():
        value.requires_grad_(spec.kind == "bitfit" and name.endswith("bias"))
    if spec.kind == "lora":
        generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
        _install_lora(model, spec, family, generator)
    model.adapter = spec


def _install_lora(model: Model, spec: AdapterSpec, family: FamilySpec, generator: torch.Generator) -> None:
    """LoRA in all linear maps of the layers; of queries, keys and values one for each, if the family stores them so."""
    for name, part in [*model.named_modules()]:
        if isinstance(part, nn.Linear) and re.search(r"layers\.\d+\.", name) and name.endswith(LINEARS):
            lora = LoraLinear.of(
                part,
                num_parts=len(family.hf_names(f"{name}.weight", ())),
                rank=spec.rank,
                scale=spec.scale,
                generator=generator,
            )
            set_module(model, name, lora)


def own_state(model: Model) -> dict[str, Tensor]:
    """The tensors of the adapter and of the heads by name; nothing of the model that the adapter belongs to."""
    spec: AdapterSpec = model.adapter
    state: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        is_outside = not name.startswith("encoder.")
        is_trained = spec.kind == "bitfit" and name.endswith("bias")
        if is_outside or is_trained or OWN_NAME.search(name):
            state[name] = value
    return state


def merge(model: Model) -> None:
    """Give the model the adapter's effect as plain weights, in place. The weights themselves are not changed but
    replaced, since other models may share them."""
    for name, part in [*model.named_modules()]:
        if isinstance(part, LoraLinear):
            set_module(model, name, part.merged())
    model.adapter = None


def fingerprint_encoder(model: Model) -> str:
    """Hash of a sample of each tensor of the encoder, the same for weights that are rounded to bfloat16."""
    digest = hashlib.sha256()
    for name, value in model.encoder.state_dict().items():
        if OWN_NAME.search(f".{name}"):
            continue
        flat = value.detach().flatten()
        step = math.ceil(len(flat) / SAMPLES) or 1
        sample = flat[::step].to(torch.bfloat16).float()
        digest.update(name.encode() + sample.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
