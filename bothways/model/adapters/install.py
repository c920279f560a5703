"""Adapters in a model: install one, name its parameters, take it out or merge it; and bottleneck adapters.

Bottlenecks: Houlsby 2019; Pfeiffer 2021, behind the feed-forward part only. Letters: T tokens, I inputs, H hidden size,
W width of the bottleneck.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.errors import InputError
from bothways.model.adapters.lora import LoraLinear
from bothways.model.adapters.rows import PrefixAttention, RowsEncoder
from bothways.model.adapters.spec import BOTTLENECK_SHARE, LORA_MAPS, QKV, AdapterSpec, LoraMap, check_supported
from bothways.model.attention import Attention
from bothways.model.encoder import Encoder
from bothways.model.families import FamilySpec
from bothways.model.model import Model
from bothways.model.parameters import retype, set_module
from bothways.rng import Purpose, derive_seed
from bothways.text.batch import Batch

LINEARS: Mapping[str, str] = {  # our module by LoRA's map; queries, keys and values are one
    **dict.fromkeys(QKV, "attention.qkv"),
    "attention-output": "attention.output",
    "inner": "feed_forward.inner",
    "output": "feed_forward.output",
}
PLACES = {"both": ("attention.output", "feed_forward.output"), "feed-forward": ("feed_forward.output",)}
OWN_NAME = re.compile(r"\.(lora_\w+|bottleneck_\w+|prefix|prompt)$")
SAMPLES = 256  # numbers of each tensor in a fingerprint
WORDS = 1000, 6000  # entries of the vocabulary at which rows start; the first ones of BERT's are no words


def install(model: Model, spec: AdapterSpec, family: FamilySpec, seed: int = 0) -> AdapterSpec:
    """Add an adapter to a model, in place, so that its results do not change (prefixes and prompts: not much).

    Only the adapter's parameters and those outside the encoder are trainable afterwards. Returns the spec, completed
    with values that depend on the model. InputError if the model has an adapter, or cannot have one of this kind.
    """
    if model.adapter is not None:
        raise InputError(f"the model has an adapter already ({model.adapter.kind}); merge it first (bothways merge)")
    check_supported(spec, model.config, family.model_type)
    spec = replace(spec, fingerprint=fingerprint_encoder(model))
    if spec.kind == "bottleneck" and not spec.size:
        spec = replace(spec, size=max(1, model.config.hidden_size // BOTTLENECK_SHARE))
    for name, value in model.encoder.named_parameters():
        value.requires_grad_(spec.kind == "bitfit" and name.endswith("bias"))
    generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
    added: Mapping[str, nn.Module] = {}
    if spec.kind == "lora":
        added = _lora_layers(model, spec, family, generator)
    elif spec.kind == "bottleneck":
        std, names = model.config.initializer_range, linears(model, PLACES[spec.places])
        added = {name: BottleneckLinear.of(_linear(model, name), spec.size, std, generator) for name in names}
    elif spec.kind in ("prefix", "prompt"):
        added = _install_rows(model, spec, generator)
    for name, module in added.items():
        set_module(model, name, module)
    model.adapter = spec
    return spec


def linears(model: Model, names: tuple[str, ...]) -> list[str]:
    """The names of these linear layers of all transformer layers."""
    return [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and re.search(r"layers\.\d+\.", name) and name.endswith(names)
    ]


def lora_parts(maps: tuple[LoraMap, ...], name: str, family: FamilySpec) -> tuple[int, list[int]]:
    """Of a linear layer, the number of parts that the family stores, and which of them these maps name.

    InputError for a family that stores queries, keys and values together, unless all or none of them are named.
    """
    names = [map_name for map_name in LORA_MAPS if name.endswith(LINEARS[map_name])]
    chosen = [index for index, map_name in enumerate(names) if map_name in maps]
    num_parts = len(family.hf_names(f"{name}.weight", ()))
    if num_parts == len(names) or not chosen:
        return num_parts, chosen
    if len(chosen) < len(names):
        raise InputError(
            f"lora_maps ({' '.join(maps)}): {family.model_type} has one map for {', '.join(names)}; name all or none"
        )
    return 1, [0]


def _lora_layers(
    model: Model, spec: AdapterSpec, family: FamilySpec, generator: torch.Generator
) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {}
    for name in linears(model, tuple({*LINEARS.values()})):
        num_parts, adapted = lora_parts(spec.maps, name, family)
        if adapted:
            layers[name] = LoraLinear.of(
                _linear(model, name),
                num_parts=num_parts,
                adapted=adapted,
                rank=spec.rank,
                scale=spec.scale,
                generator=generator,
            )
    return layers


def _install_rows(model: Model, spec: AdapterSpec, generator: torch.Generator) -> dict[str, nn.Module]:
    """Add an encoder with rows; returns the attentions of a prefix. Rows start as words: a prompt as their embeddings,
    a prefix as their keys and values (Li & Liang 2021, section 7.4)."""
    encoder = model.encoder
    assert isinstance(encoder, Encoder)
    first, last = WORDS if model.config.vocab_size > WORDS[1] else (0, model.config.vocab_size)
    words = torch.randint(first, last, (spec.rows,), generator=generator)
    zeros = torch.zeros_like(words)
    batch = Batch(words, zeros, zeros, torch.tensor([spec.rows])).to(encoder.embeddings.words.weight.device)
    attentions = [(name, part) for name, part in model.named_modules() if isinstance(part, Attention)]
    values: dict[str, Tensor] = {}
    hooks = [
        part.qkv.register_forward_hook(lambda module, _, output, name=name: values.update({name: output}))
        for name, part in attentions
    ]
    was_training = model.training
    with torch.no_grad():
        embeddings_PH = encoder.eval().embeddings(batch)
        encoder(batch)
    model.train(was_training)
    for hook in hooks:
        hook.remove()
    added = RowsEncoder.of(encoder, spec.rows)
    if spec.kind == "prompt":
        added.prompt = nn.Parameter(embeddings_PH.clone())
    model.encoder = added
    if spec.kind == "prompt":
        return {}
    return {
        name: PrefixAttention.of(attention, torch.stack(values[name].chunk(3, -1)[1:]))
        for name, attention in attentions
    }


def _linear(model: Model, name: str) -> nn.Linear:
    part = model.get_submodule(name)
    assert isinstance(part, nn.Linear)
    return part


def own_state(model: Model) -> dict[str, Tensor]:
    """The adapter's tensors by name, and those outside the encoder; nothing of the model that it belongs to."""
    spec: AdapterSpec = model.adapter
    return {
        name: value
        for name, value in model.state_dict().items()
        if not name.startswith("encoder.") or OWN_NAME.search(name) or (spec.kind == "bitfit" and name.endswith("bias"))
    }


def merge(model: Model) -> None:
    """Give the model the adapter's effect as plain weights, in place. InputError for kinds that add layers or rows.

    The weights themselves are not changed but replaced, since other models may share them."""
    spec: AdapterSpec = model.adapter
    if not spec.is_mergeable:
        raise InputError(
            f"an adapter of kind {spec.kind} adds {'rows' if spec.kind in ('prefix', 'prompt') else 'layers'}, which "
            "cannot be merged into the model's weights; only lora and bitfit can"
        )
    for name, part in [*model.named_modules()]:
        if isinstance(part, LoraLinear):
            set_module(model, name, part.merged())
    model.adapter = None


def fingerprint_encoder(model: Model) -> str:
    """Hash of a sample of each tensor of the encoder, the same for weights that are rounded to bfloat16."""
    digest = hashlib.sha256()
    for name, value in model.encoder.state_dict().items():
        if not OWN_NAME.search(f".{name}"):
            flat = value.detach().flatten()
            sample = flat[:: -(-len(flat) // SAMPLES) or 1].to(torch.bfloat16).float()
            digest.update(name.encode() + sample.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


class BottleneckLinear(nn.Linear):
    """y = x W^T + b, then y + gelu(y A^T) B^T (Houlsby 2019, section 2.1), before the residual sum.

    The parameters of the linear layer are those of the frozen layer, under the same names.
    """

    bottleneck_down: nn.Parameter  # [W, H]
    bottleneck_down_bias: nn.Parameter
    bottleneck_up: nn.Parameter  # [H, W]
    bottleneck_up_bias: nn.Parameter

    @staticmethod
    def of(linear: nn.Linear, width: int, std: float, generator: torch.Generator | None = None) -> "BottleneckLinear":
        """The layer with zero B, so that it computes the same."""
        module, size, weight = retype(linear, BottleneckLinear), linear.out_features, linear.weight
        down = torch.empty(width, size)
        nn.init.normal_(down, std=std, generator=generator)
        module.bottleneck_down = nn.Parameter(down.to(weight))
        module.bottleneck_down_bias = nn.Parameter(weight.new_zeros(width))
        module.bottleneck_up = nn.Parameter(weight.new_zeros(size, width))
        module.bottleneck_up_bias = nn.Parameter(weight.new_zeros(size))
        return module

    def forward(self, x_TI: Tensor) -> Tensor:
        y_TH = super().forward(x_TI)
        narrow_TW = F.gelu(F.linear(y_TH, self.bottleneck_down, self.bottleneck_down_bias))
        return y_TH + F.linear(narrow_TW, self.bottleneck_up, self.bottleneck_up_bias)
