"""The Hugging Face layout: config.json and float tensors by the family's names, which transformers loads."""

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.base.errors import InputError
from bothways.base.io import write_json
from bothways.model.checkpoint.description import CONFIG, METADATA_FILE, problem_type
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import Format, StoredModel
from bothways.model.checkpoint.sentence_transformers import write_modules
from bothways.model.checkpoint.weights import WEIGHTS, read_weights, write_floats
from bothways.model.families import FAMILIES, FamilySpec
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.model import Model

# Our names of parameters.
POOLER = "pooler.dense.weight"
TABLE = "encoder.embeddings.words.weight"
BIAS = "heads.masked_words.bias"
# The ends of Hugging Face's names of copies: of the vocabulary bias, and of the token table.
BIAS_COPY = "decoder.bias"
TABLE_COPIES = (
    "decoder.weight",
    "vocab_projector.weight",
    "lm_head.weight",
)
# In files, but no parameters of ours: buffers, and copies.
DERIVED = (
    "position_ids",
    "token_type_ids",
    BIAS_COPY,
    *TABLE_COPIES,
)


class LayoutFormat(Format):
    """The files of the Hugging Face layout, with the weights written in some way.

    stores_pooling: whether the pooling of text vectors is written beside the weights.
    """

    stores_pooling: ClassVar[bool] = True

    @abstractmethod
    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        """Write the weights. hf_config: config.json as the family writes it. Returns the content it shall have."""

    def save(self, checkpoint: "Checkpoint", directory: Path) -> None:
        config = self.write(checkpoint, directory, hugging_face_config(checkpoint))
        write_json(directory / CONFIG, config)
        write_json(directory / METADATA_FILE, {"format": 1, **checkpoint.metadata})

        if checkpoint.words:
            from bothways.model.checkpoint.formats.tfidf import write_terms

            write_terms(checkpoint.words, directory)
        if checkpoint.scope is not None:
            checkpoint.scope.write(directory)
        if checkpoint.statements is not None:
            checkpoint.statements.write(directory)

        encoder = checkpoint.model.config
        if checkpoint.tokenizer:
            checkpoint.tokenizer.save(directory, encoder.max_position_embeddings, segments=encoder.type_vocab_size)
        if checkpoint.pooling and self.stores_pooling:
            write_modules(
                directory,
                encoder,
                pooling=checkpoint.pooling,
                normalized=checkpoint.normalized,
            )


class HuggingFaceFormat(LayoutFormat):
    """Float tensors by the family's names."""

    is_read_by_others = True

    def open(self, directory: Directory) -> StoredModel:
        return StoredModel(directory.config, lambda _: read_weights(directory))

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return True

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        family = FAMILIES[checkpoint.model_type]
        # transformers' class of a bare encoder, such as BertModel, has parameters without a prefix.
        prefix = "" if hf_config["architectures"][0].endswith("Model") else family.prefix
        write_floats(hf_state_dict(checkpoint.model, family, prefix), directory / WEIGHTS)
        return hf_config


HUGGING_FACE = HuggingFaceFormat()


def hugging_face_config(checkpoint: "Checkpoint") -> dict[str, Any]:
    """The content of config.json. InputError if the family has no architecture with the model's heads."""
    family = FAMILIES[checkpoint.model_type]
    encoder = checkpoint.model.config
    num_outputs = checkpoint.model.num_outputs
    tokenizer = checkpoint.tokenizer

    architecture = family.architectures.get(frozenset(num_outputs))
    if architecture is None:
        heads = ", ".join(sorted(num_outputs))
        raise InputError(f"{checkpoint.model_type} with heads {heads} cannot be saved in the Hugging Face layout")

    config = {
        **checkpoint.extra,
        "architectures": [architecture],
        **special_token_ids(tokenizer),
        **family.to_hf_config(encoder),
    }
    if tokenizer and not encoder.position_offset:  # RoBERTa's positions start behind this id
        config["pad_token_id"] = tokenizer.pad_id

    num_labels = num_outputs.get("classes", num_outputs.get("tokens", 0))
    labels = checkpoint.labels or tuple(f"LABEL_{index}" for index in range(num_labels))
    if labels:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    if "classes" in num_outputs:
        config["problem_type"] = problem_type(checkpoint, num_labels)
    return config


def special_token_ids(tokenizer: Tokenizer | None) -> dict[str, int | None]:
    """The ids of the tokenizer's special tokens for config.json; None for tokens that are unknown.

    If an id were left out, transformers would take the default of its class, which a smaller vocabulary does not have.
    """
    ids: dict[str, int | None] = {
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
        "mask_token_id": None,
    }
    if tokenizer:
        ids["cls_token_id"] = tokenizer.cls_id
        ids["sep_token_id"] = tokenizer.sep_id
        ids["mask_token_id"] = tokenizer.mask_id
        if tokenizer.backend.has_bos_and_eos:
            ids["bos_token_id"] = tokenizer.cls_id
            ids["eos_token_id"] = tokenizer.sep_id
    return ids


def hf_state_dict(model: "Model", family: FamilySpec, prefix: str) -> "dict[str, Tensor]":
    """Our parameters under Hugging Face's names, with stacked ones split.

    model: its parameters stay where they are.
    family: names the parameters.
    prefix: replaces the family's prefix.

    InputError for a parameter that the family does not name.
    """
    tensors: dict[str, Tensor] = {}
    for parameter, value in model.state_dict().items():
        names = family.hf_names(parameter, model.num_outputs)
        if not names:
            raise InputError(
                f"{parameter} has no Hugging Face name in the family {family.model_type}; the model cannot be saved"
            )
        for name, rows in zip(names, value.chunk(len(names)), strict=True):
            if name.startswith(family.prefix):
                name = prefix + name.removeprefix(family.prefix)
            tensors[name] = rows
    return tensors
