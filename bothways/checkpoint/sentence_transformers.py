"""Files of sentence-transformers: modules.json, pooling, normalization and a linear layer on top."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from bothways.checkpoint.weights import WEIGHTS, TensorFiles, open_safetensors, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.io import get_object, read_json, read_json_value, write_json
from bothways.model.pooler import encodes_separately, unit_scale
from bothways.tokenizer.tokenizer import Tokenizer

MODULES = "modules.json"
TRANSFORMER, POOLING, NORMALIZE, DENSE = "0_Transformer", "1_Pooling", "2_Normalize", "2_Dense"
IDENTITY = "torch.nn.modules.linear.Identity"


def read_modules(directory: Path) -> list[str]:
    """The module types in modules.json; empty without that file. InputError for types other than pooling and
    normalization."""
    file = directory / MODULES
    if not file.exists():
        return []
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in read_json_value(file)]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{file}: not a list of modules with types ({error!r:.100}); download the file again"
        ) from None
    if unsupported := sorted({*kinds} - {"Transformer", "Pooling", "Normalize", "Dropout"}):
        raise InputError(
            f"{file}: {unsupported[0]!r:.60} is not supported (supported: Transformer, Pooling, Normalize); without "
            "this file the encoder alone is loaded"
        )
    return kinds


def normalizes(directory: Path) -> bool:
    """Whether sentence vectors are scaled to length 1, by modules.json; True without that file."""
    kinds = read_modules(directory)
    return not kinds or "Normalize" in kinds


def warn_of_text_changes(directory: Path, tokenizer: Tokenizer, warn: Callable[[str], None]) -> None:
    """Warn if sentence-transformers would add a prompt or lower-case a text, which Bothways does not."""
    file = directory / "config_sentence_transformers.json"
    config = read_json(file) if file.exists() else {}
    if (name := config.get("default_prompt_name")) is not None:
        if not isinstance(name, str):
            raise InputError(f"{file}: default_prompt_name ({name!r:.60}) must be text; correct or remove it")
        prompt = get_object(config, "prompts", file).get(name)
        warn(f"{file}: the prompt {prompt!r} is not added to texts; add it yourself")
    file = directory / "sentence_bert_config.json"
    if file.exists() and read_json(file).get("do_lower_case") and tokenizer.ids("A") != tokenizer.ids("a"):
        warn(f"{file}: texts are not lower-cased (do_lower_case); pass them in lower case")


def read_prompts(directory: Path) -> dict[str, str]:
    """The prompts of sentence-transformers by name, which its clients may ask for; none if there are none, or if the
    pooling leaves their tokens out."""
    file, pooling = directory / "config_sentence_transformers.json", directory / POOLING / "config.json"
    if not file.exists() or (pooling.exists() and read_json(pooling).get("include_prompt") is False):
        return {}
    prompts = get_object(read_json(file), "prompts", file)
    if not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise InputError(f"{file}: prompts ({prompts!r:.60}) must be texts by name; correct or remove them")
    return prompts


def read_pooling(directory: Path) -> str | None:
    """The pooling of 1_Pooling: mean, cls or max; None without that directory. InputError for other types."""
    file = directory / POOLING / "config.json"
    if not file.exists():
        return None
    modes = read_json(file)
    names = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_max_tokens": "max"}
    on = [key for key, value in modes.items() if key.startswith("pooling_mode") and value]
    if isinstance(modes.get("pooling_mode"), str):  # as newer versions write it
        names, on = {"mean": "mean", "cls": "cls", "max": "max"}, [modes["pooling_mode"]]
    if len(on) != 1 or on[0] not in names:
        raise InputError(
            f"{file}: pooling {' + '.join(on)[:60] or 'none'} is not supported; use one of {', '.join(names.values())}"
        )
    return names[on[0]]


def write_pooling(directory: Path, pooling: str, normalized: bool, config: EncoderConfig) -> None:
    """Write the files with which sentence-transformers computes the same vectors."""
    _write_pooling(directory, pooling, config)
    _write_limits(directory, config)
    kinds = [("", "Transformer"), (POOLING, "Pooling")]
    if normalized:
        kinds.append((NORMALIZE, "Normalize"))
        (directory / NORMALIZE).mkdir()
    _write_modules(directory, kinds)


def write_linear(directory: Path, layer: nn.Linear, config: EncoderConfig) -> None:
    """Write the files, next to an encoder in TRANSFORMER, with which sentence-transformers computes the logits of a
    linear layer on the mean of the tokens (scaled to length 1 if pooler_act is "unit").

    A layer on features of pairs of texts is stored in a separate file, and the modules compute the vectors
    of single texts.
    """
    _write_pooling(directory, "mean", config)
    _write_limits(directory / TRANSFORMER, config)
    unit = config.pooler_act != "none"
    _write_dense(directory, layer.weight * (unit_scale(config.hidden_size) if unit else 1.0), layer.bias)
    kinds = [(TRANSFORMER, "Transformer"), (POOLING, "Pooling")]
    if unit:
        (directory / NORMALIZE).mkdir()
        kinds.append((NORMALIZE, "Normalize"))
    if not encodes_separately(config):
        kinds.append((DENSE, "Dense"))
    _write_modules(directory, kinds)


def write_mean_layer(directory: Path, weight_CH: Tensor, bias_C: Tensor, config: EncoderConfig) -> None:
    """Write the files with which sentence-transformers computes logits from an encoder whose last layer gives every
    token of a text the same vector."""
    _write_pooling(directory, "mean", config)
    _write_limits(directory, config)
    _write_dense(directory, weight_CH, bias_C)
    _write_modules(directory, [("", "Transformer"), (POOLING, "Pooling"), (DENSE, "Dense")])


def read_linear(directory: Path, layer: str) -> TensorFiles:
    """The tensors of such an encoder, and those of its linear layer as LAYER.weight and LAYER.bias."""
    dense = open_safetensors(directory / DENSE / WEIGHTS).locations
    named = {f"{layer}.{name}": dense[f"linear.{name}"] for name in ("weight", "bias") if f"linear.{name}" in dense}
    return TensorFiles({**open_safetensors(directory / TRANSFORMER / WEIGHTS).locations, **named})


def _write_pooling(directory: Path, pooling: str, config: EncoderConfig) -> None:
    (directory / POOLING).mkdir()
    names = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    modes = {f"pooling_mode_{name}": kind == pooling for kind, name in names.items()}
    write_json(directory / POOLING / "config.json", {"word_embedding_dimension": config.hidden_size, **modes})


def _write_dense(directory: Path, weight_CH: Tensor, bias_C: Tensor) -> None:
    (directory / DENSE).mkdir()
    sizes = {"in_features": weight_CH.shape[1], "out_features": len(weight_CH), "bias": True}
    write_json(directory / DENSE / "config.json", {**sizes, "activation_function": IDENTITY})
    state = {"linear.weight": weight_CH, "linear.bias": bias_C}
    write_weights(
        {name: value.detach().float().cpu().contiguous() for name, value in state.items()}, directory / DENSE / WEIGHTS
    )


def _write_modules(directory: Path, kinds: Sequence[tuple[str, str]]) -> None:
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(kinds)
    ]
    write_json(directory / MODULES, modules)


def _write_limits(directory: Path, config: EncoderConfig) -> None:
    limits = {"max_seq_length": config.max_position_embeddings, "do_lower_case": False}
    write_json(directory / "sentence_bert_config.json", limits)
