"""Files of sentence-transformers: modules.json, pooling, normalization and a linear layer on top."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bothways.base.errors import InputError, MissingFile
from bothways.base.io import Files, get_object, write_json
from bothways.model.checkpoint.weights import WEIGHTS, write_floats
from bothways.model.config import EncoderConfig

if TYPE_CHECKING:
    from torch import Tensor

MODULES = "modules.json"
MODEL_SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "0_Transformer"
POOLING = "1_Pooling"
NORMALIZE = "2_Normalize"
DENSE = "2_Dense"
IDENTITY = "torch.nn.modules.linear.Identity"
LIMITS = (  # files with the settings of the Transformer module; the first that exists counts
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
POOLINGS = {  # the name in older files -> in newer ones, and ours
    "mean_tokens": "mean",
    "cls_token": "cls",
    "max_tokens": "max",
}
OTHER_POOLINGS = (
    "mean_sqrt_len_tokens",
    "weightedmean_tokens",
    "lasttoken",
)

# Keys of each file, with the values that are computed; ANY is used here, or changes no numbers.
ANY = None
Values = Mapping[str, tuple[Any, ...] | None]
MODULE_VALUES: Values = {
    "idx": ANY,
    "name": ANY,
    "path": ANY,
    "type": ANY,
    "kwargs": ANY,
}
POOLING_VALUES: Values = {
    "word_embedding_dimension": ANY,
    "embedding_dimension": ANY,
    "include_prompt": ANY,
    "pooling_mode": ANY,
    **{f"pooling_mode_{name}": ANY for name in (*POOLINGS, *OTHER_POOLINGS)},
}
SCALING_VALUES: Values = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding",),
    "dropout": ANY,  # nothing is dropped in inference
}
ARGUMENTS: Values = {  # of transformers
    "trust_remote_code": ANY,
    "torch_dtype": ANY,
    "dtype": ANY,
    "attn_implementation": ANY,
    "add_pooling_layer": ANY,
    "device_map": ANY,
    "use_safetensors": ANY,
    "model_max_length": ANY,
}
ARGUMENT_KEYS = (
    "model_args",
    "model_kwargs",
    "tokenizer_args",
    "tokenizer_kwargs",
    "processor_args",
    "processor_kwargs",
    "config_args",
    "config_kwargs",
)
LIMIT_VALUES: Values = {
    "max_seq_length": ANY,
    "do_lower_case": ANY,
    "unpad_inputs": ANY,
    **dict.fromkeys(ARGUMENT_KEYS, ANY),
    "transformer_task": ("feature-extraction", "sequence-classification"),
    "module_output_name": ("token_embeddings", "scores"),
    "modality_config": (
        {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        {"text": {"method": "forward", "method_output_name": "logits"}},
    ),
}
SETTING_VALUES: Values = {
    "__version__": ANY,
    "requirements": ANY,
    "prompts": ANY,
    "default_prompt_name": ANY,
    "similarity_fn_name": ANY,
    "truncate_dim": ANY,
    "activation_fn": ANY,
    "keep_in_fp32_modules": ANY,
    "model_type": ("SentenceTransformer", "CrossEncoder"),
}


class Module(NamedTuple):
    """A step of the computation, and the folder of its files."""

    type: str
    path: str

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


def read_modules(files: Files) -> list[str]:
    """The kinds of modules in modules.json; empty without that file. InputError for other modules than pooling and
    normalization, or for settings of these that are not computed."""
    file = files.path / MODULES
    modules = _list_modules(files)
    for module in modules:
        is_theirs = module.type.startswith("sentence_transformers.")
        if not is_theirs or module.kind not in ("Transformer", "Pooling", "Normalize", "Dropout"):
            raise InputError(
                f"{file}: {module.kind if is_theirs else module.type!r:.60} is not supported (supported: Transformer, "
                "Pooling, Normalize); without this file the encoder alone is loaded"
            )
        if module.kind == "Transformer" and module.path not in ("", "."):
            raise InputError(f"{file}: path {module.path!r:.60} of Transformer is not supported; move its files here")

    # Dropout may stand anywhere, since nothing is dropped in inference.
    kinds = [module.kind for module in modules]
    order = " ".join(kind for kind in kinds if kind != "Dropout")
    if modules and not re.fullmatch("Transformer( Pooling( Normalize)*)?", order):
        raise InputError(f"{file}: modules {', '.join(kinds)[:80]} are not supported in this order")

    for module in modules:
        if module.kind in ("Normalize", "Dropout") and module.path:
            _read(files, f"{module.path}/config.json", SCALING_VALUES)
    return kinds


def _list_modules(files: Files) -> list[Module]:
    if not files.has(MODULES):
        return []

    file = files.path / MODULES
    entries = files.value(MODULES)
    try:
        modules = [Module(str(entry["type"]), entry.get("path", "")) for entry in entries]
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"{file}: not a list of modules with types ({error!r:.100}); download the file again"
        ) from None

    for entry, module in zip(entries, modules, strict=True):
        _check(file, entry, MODULE_VALUES)
        if not isinstance(module.path, str) or not re.fullmatch(r"\.?|\w[\w.-]*", module.path):
            raise InputError(f"{file}: path {module.path!r:.60} is not the name of a folder; correct it")
    return modules


def _check(file: Path, content: Mapping[str, Any], values: Values) -> None:
    """InputError for a setting of a file that is unknown, or that has a value which is not computed."""
    for key, value in content.items():
        computed = values.get(key, ())
        if value and computed is not ANY and value not in computed:
            way_out = f"only {computed[0]!r}" if computed else "remove it to leave it out of account"
            raise InputError(f"{file}: {key:.60} ({value!r:.60}) is not supported; {way_out}")


def _read(files: Files, name: str, values: Values) -> dict[str, Any]:
    """The settings in a file, none if it does not exist."""
    content = files.json(name)
    _check(files.path / name, content, values)
    return content


def normalizes(files: Files) -> bool:
    """Whether sentence vectors are scaled to length 1, by modules.json; True without that file."""
    kinds = read_modules(files)
    return not kinds or "Normalize" in kinds


def lowers_texts(files: Files) -> bool:
    """Whether texts are lower-cased before the tokenizer reads them."""
    file, content = _read_limits(files)
    lowers = content.get("do_lower_case") or False
    if not isinstance(lowers, bool):
        raise InputError(f"{file}: do_lower_case ({lowers!r:.60}) must be true or false; correct or remove it")
    return lowers


def _read_limits(files: Files) -> tuple[Path, dict[str, Any]]:
    """The file with the settings of the Transformer module, and its content."""
    name = next((name for name in LIMITS if files.has(name)), LIMITS[0])
    file = files.path / name
    content = _read(files, name, LIMIT_VALUES)
    for key in ARGUMENT_KEYS:
        _check(file, get_object(content, key, file), ARGUMENTS)
    return file, content


def check_settings(files: Files, hidden_size: int, warn: Callable[[str], None]) -> None:
    """Compare the settings of sentence-transformers with the vectors that Bothways computes.

    files: the files of the model.
    hidden_size: of the model.
    warn: is called with a line about a prompt that sentence-transformers adds, or a function that it applies to scores.

    InputError if it computes other vectors.
    """
    file = files.path / MODEL_SETTINGS
    config = _read(files, MODEL_SETTINGS, SETTING_VALUES)
    prompts = _prompts(files)

    size = config.get("truncate_dim")
    if size is not None and not (type(size) is int and size >= hidden_size):
        raise InputError(
            f"{file}: truncate_dim ({size!r:.60}) is not supported; remove it for vectors of all {hidden_size} numbers"
        )

    function = config.get("activation_fn")
    if function not in (None, IDENTITY):
        warn(f"{file}: {function!r:.60} is not applied to scores (activation_fn)")

    name = config.get("default_prompt_name")
    if name is None:
        return
    if not isinstance(name, str):
        raise InputError(f"{file}: default_prompt_name ({name!r:.60}) must be text; correct or remove it")
    if prompts.get(name) and not _includes_prompt(files):
        raise InputError(
            f"{file}: the prompt {prompts[name]!r:.60} is added, but left out of the pooling (include_prompt), which "
            "is not supported; remove default_prompt_name"
        )
    warn(f"{file}: the prompt {prompts.get(name)!r} is not added to texts; add it yourself")


def vector_notes(files: Files, max_length: int) -> list[str]:
    """How to get the vectors of sentence-transformers, if not by default: the prompts, and the length at which it cuts
    texts. max_length: of the model."""
    notes: list[str] = []

    # `check_settings` warns of the default prompt.
    default = files.json(MODEL_SETTINGS).get("default_prompt_name")
    prompts = {name: text for name, text in read_prompts(files).items() if text and name != default}
    if prompts:
        file = files.path / MODEL_SETTINGS
        listed = ", ".join(f"{name} ({text!r:.60})" for name, text in prompts.items())
        notes.append(f"{file}: the model has prompts, which are not added to texts; add them yourself: {listed:.400}")

    limit = _read_length(files)
    if limit and limit < max_length:
        notes.append(
            f"{files.path}: sentence-transformers cuts texts off after {limit} tokens (max_seq_length), but longer "
            f"ones are read whole; for its vectors, pass window={limit}, long='truncate'"
        )
    return notes


def _read_length(files: Files) -> int | None:
    """The number of tokens after which sentence-transformers cuts a text off; None if no file sets it."""
    if not files.has(MODULES):
        return None

    file, content = _read_limits(files)
    values = [get_object(content, key, file).get("model_max_length") for key in ARGUMENT_KEYS]
    values.append(content.get("max_seq_length"))
    values.append(files.json("tokenizer_config.json").get("model_max_length"))
    return next((value for value in values if type(value) is int and value > 0), None)


def read_prompts(files: Files) -> dict[str, str]:
    """The prompts of sentence-transformers by name, which its clients may ask for; none if there are none, or if the
    pooling leaves their tokens out."""
    if not _includes_prompt(files):
        return {}
    return _prompts(files)


def _prompts(files: Files) -> dict[str, str]:
    file = files.path / MODEL_SETTINGS
    prompts = get_object(files.json(MODEL_SETTINGS), "prompts", file)
    if not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise InputError(f"{file}: prompts ({prompts!r:.60}) must be texts by name; correct or remove them")
    return prompts


def _includes_prompt(files: Files) -> bool:
    return files.json(pooling_file(files)).get("include_prompt") is not False


def pooling_file(files: Files) -> str:
    """The name of the file with the settings of the pooling, in the folder that modules.json names."""
    paths = [module.path for module in _list_modules(files) if module.kind == "Pooling"]
    folder = paths[-1] if paths else ""
    return f"{folder or POOLING}/config.json"


def read_pooling(files: Files) -> str | None:
    """The pooling: mean, cls or max; None if no file names it. InputError for other types."""
    name = pooling_file(files)
    if not files.has(name):
        if "Pooling" in {module.kind for module in _list_modules(files)}:
            raise MissingFile(f"{files.path / name}: not found, though {MODULES} names it; download the model again")
        return None

    # Older versions write a truth value for each mode, newer ones a name or a list of names.
    content = _read(files, name, POOLING_VALUES)
    mode = content.get("pooling_mode")
    if mode is None:
        keys = (*POOLINGS, *OTHER_POOLINGS)
        modes = [POOLINGS.get(key, key) for key in keys if content.get(f"pooling_mode_{key}")]
    elif isinstance(mode, list):
        modes = [str(part) for part in mode]
    else:
        modes = [str(mode)]

    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise InputError(
            f"{files.path / name}: pooling {' + '.join(modes)[:60] or 'none'} is not supported; use one of "
            f"{', '.join(POOLINGS.values())}"
        )
    return modes[0]


def write_modules(
    directory: Path,
    config: EncoderConfig,
    *,
    pooling: str = "mean",
    normalized: bool = False,
    linear: "tuple[Tensor, Tensor] | None" = None,
    has_linear: bool = True,
    encoder: str = "",
) -> None:
    """Write the files with which sentence-transformers computes the same vectors, and from them the logits of a linear
    layer.

    directory: of the model.
    config: the model's.
    pooling: mean, cls or max.
    normalized: whether vectors are scaled to length 1.
    linear: weight and bias of the linear layer.
    has_linear: whether the modules compute the linear layer; else its file is only stored.
    encoder: the folder of the encoder.
    """
    modules = [Module("Transformer", encoder), Module("Pooling", POOLING)]
    limits = {"max_seq_length": config.max_position_embeddings, "do_lower_case": False}
    write_json(directory / encoder / "sentence_bert_config.json", limits)

    (directory / POOLING).mkdir()
    modes = {f"pooling_mode_{name}": ours == pooling for name, ours in POOLINGS.items()}
    write_json(directory / POOLING / "config.json", {"word_embedding_dimension": config.hidden_size, **modes})

    if normalized:
        modules.append(Module("Normalize", NORMALIZE))
        (directory / NORMALIZE).mkdir()

    if linear:
        if has_linear:
            modules.append(Module("Dense", DENSE))
        (directory / DENSE).mkdir()
        _write_dense(directory / DENSE, *linear)

    entries = []
    for index, module in enumerate(modules):
        entries.append(
            {
                "idx": index,
                "name": str(index),
                "path": module.path,
                "type": f"sentence_transformers.models.{module.kind}",
            }
        )
    write_json(directory / MODULES, entries)


def _write_dense(folder: Path, weight_CH: "Tensor", bias_C: "Tensor") -> None:
    num_outputs, hidden_size = weight_CH.shape
    content = {
        "in_features": hidden_size,
        "out_features": num_outputs,
        "bias": True,
        "activation_function": IDENTITY,
    }
    write_json(folder / "config.json", content)
    write_floats({"linear.weight": weight_CH, "linear.bias": bias_C}, folder / WEIGHTS)
