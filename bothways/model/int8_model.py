"""A model with int8 layers: made from a float one, and as tensors by name, to be stored and read back.

The token table is stored as int8 too, a scale a row, and read back as float: half of a small model is its table.
"""

from collections.abc import Mapping
from copy import deepcopy

from torch import Tensor, nn

from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.model.int8 import POST_OPERATIONS, Int8FeedForward, Int8Linear, symmetric
from bothways.model.layer import FeedForward
from bothways.model.model import OUTPUTS, Model
from bothways.model.no_init import blank

WORDS = "encoder.embeddings.words.weight"
SLACK = 2**16  # parameters that int8 layers have no use for
TABLE_INT8, TABLE_SCALE = "encoder.embeddings.words.table_int8", "encoder.embeddings.words.table_scale"


def is_int8(model: nn.Module) -> bool:
    return any(isinstance(part, Int8Linear) for part in model.modules())


def with_int8(model: Model, linears: Mapping[str, Int8Linear]) -> Model:
    """A copy with int8 layers in place of those of the same names, and the token table as it is stored."""
    copy = deepcopy(model)
    for name, linear in linears.items():
        _put(copy, name, deepcopy(linear))
    _fuse(copy)
    words = copy.encoder.embeddings.words
    words.weight.data = _table(*symmetric(words.weight.detach()))
    return copy.eval()


def _put(model: Model, name: str, part: nn.Module) -> None:
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, part)


def _fuse(model: Model) -> None:
    for name, part in [*model.named_modules()]:
        if isinstance(part, FeedForward) and fuses(part, model.config) and isinstance(part.inner, Int8Linear):
            _put(model, name, Int8FeedForward(part.inner, part.output, model.config.hidden_act))


def fuses(part: FeedForward, config: EncoderConfig) -> bool:
    """Whether its activation can be done inside its first product."""
    return not part.gated and config.hidden_act in POST_OPERATIONS


def _table(integers_VE: Tensor, scale_V: Tensor) -> Tensor:
    return integers_VE.float() * scale_V[:, None]


# --- stored -----------------------------------------------------------------------------------------------------------


def int8_state(model: Model) -> dict[str, Tensor]:
    """All that such a model holds, by our names."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    integers_VE, scale_V = symmetric(state.pop(WORDS))
    return {**state, TABLE_INT8: integers_VE, TABLE_SCALE: scale_V}


def from_int8_state(config: EncoderConfig, stored: Mapping[str, Tensor]) -> Model:
    """The way back. InputError where the config and these tensors do not belong together."""
    try:
        model = _empty(config, stored)
        state = dict(stored)
        state[WORDS] = _table(state.pop(TABLE_INT8), state.pop(TABLE_SCALE))
        model.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError) as error:  # torch has no one kind for "does not fit"
        raise InputError(" ".join(str(error).split())[:300]) from None
    return model.eval()


def _empty(config: EncoderConfig, state: Mapping[str, Tensor]) -> Model:
    """A model with the heads and the int8 layers that these names tell of."""
    heads = sorted({name.split(".")[1] for name in state if name.startswith("heads.")})
    sizes = {name: OUTPUTS[name] if name in OUTPUTS else len(state[f"heads.{name}.output.bias"]) for name in heads}
    with blank(most=2 * sum(value.numel() for value in state.values()) + SLACK):
        model = Model(config, sizes, pooler=any(name.startswith("pooler.") for name in state))
    known = {name for name, _ in model.named_modules()}
    for name, weight_OI in state.items():
        layer = name.removesuffix(".weight_int8")
        if layer == name:
            continue
        if layer not in known:
            raise InputError(f"{name}: the config has no such layer")
        num_outputs, num_inputs = weight_OI.shape
        _put(model, layer, Int8Linear(num_inputs, num_outputs))
    _fuse(model)
    return model
