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

POOLER, TABLE = "pooler.dense.weight", "encoder.embeddings.words.weight"
BIAS, BIAS_COPY = "heads.masked_words.bias", "decoder.bias"
TABLE_COPIES = ("decoder.weight", "vocab_projector.weight", "lm_head.weight")
# In files, but no parameters of ours: buffers, and copies of the token table and the vocabulary bias.
DERIVED = ("position_ids", "token_type_ids", BIAS_COPY, *TABLE_COPIES)


class LayoutFormat(Format):
    """The files of the Hugging Face layout, with the weights written in some way.

    stores_pooling: whether the pooling of text vectors is written beside the weights.
    """

    stores_pooling: ClassVar[bool] = True

    @abstractmethod
    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        """Write the weights. hf_config: config.json as the family writes it. Returns the content it shall have."""

    def save(self, checkpoint: "Checkpoint", directory: Path) -> None:
        model = checkpoint.model
        config = self.write(checkpoint, directory, hugging_face_config(checkpoint))
        write_json(directory / CONFIG, config)
        write_json(directory / METADATA_FILE, {"format": 1, **checkpoint.metadata})

        if checkpoint.words:
            from bothways.model.checkpoint.formats.tfidf import write_terms

            write_terms(checkpoint.words, directory)
        if checkpoint.scope is not None:
            checkpoint.scope.write(directory)
        if tokenizer := checkpoint.tokenizer:
            tokenizer.save(directory, model.config.max_position_embeddings, segments=model.config.type_vocab_size)
        if checkpoint.pooling and self.stores_pooling:
            write_modules(directory, model.config, pooling=checkpoint.pooling, normalized=checkpoint.normalized)


class HuggingFaceFormat(LayoutFormat):
    """Float tensors by the family's names."""

    is_read_by_others = True

    def open(self, directory: Directory) -> StoredModel:
        return StoredModel(directory.config, lambda _: read_weights(directory))

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return True

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        family = FAMILIES[checkpoint.model_type]
        prefix = "" if hf_config["architectures"][0].endswith("Model") else family.prefix
        write_floats(hf_state_dict(checkpoint.model, family, prefix), directory / WEIGHTS)
        return hf_config


HUGGING_FACE = HuggingFaceFormat()


def hugging_face_config(checkpoint: "Checkpoint") -> dict[str, Any]:
    """The content of config.json. InputError if the family has no architecture with the model's heads."""
    model, family, tokenizer = checkpoint.model, FAMILIES[checkpoint.model_type], checkpoint.tokenizer
    architecture = family.architectures.get(frozenset(model.num_outputs))
    if architecture is None:
        heads = ", ".join(sorted(model.num_outputs))
        raise InputError(f"{checkpoint.model_type} with heads {heads} cannot be saved in the Hugging Face layout")
    specials = special_token_ids(tokenizer)
    config = {**checkpoint.extra, "architectures": [architecture], **specials, **family.to_hf_config(model.config)}
    if tokenizer and not model.config.position_offset:  # RoBERTa's positions start behind this id
        config["pad_token_id"] = tokenizer.pad_id
    num_labels = model.num_outputs.get("classes", model.num_outputs.get("tokens", 0))
    if labels := checkpoint.labels or tuple(f"LABEL_{index}" for index in range(num_labels)):
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    if "classes" in model.num_outputs:
        config["problem_type"] = problem_type(checkpoint, num_labels)
    return config


def special_token_ids(tokenizer: Tokenizer | None) -> dict[str, int | None]:
    """The ids of the tokenizer's special tokens for config.json; None for those that are unknown.

    If they were left out, transformers would take those of its class, which a smaller vocabulary does not have."""
    ids: dict[str, int | None] = dict.fromkeys(("bos", "eos", "cls", "sep", "mask"))
    if tokenizer:
        ids |= {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id, "mask": tokenizer.mask_id}
        if tokenizer.backend.has_bos_and_eos:
            ids |= {"bos": tokenizer.cls_id, "eos": tokenizer.sep_id}
    return {f"{name}_token_id": index for name, index in ids.items()}


def hf_state_dict(model: "Model", family: FamilySpec, prefix: str) -> "dict[str, Tensor]":
    """Our parameters under Hugging Face's names, with stacked ones split. prefix: replaces the family's prefix."""
    tensors = {}
    for parameter, value in model.state_dict().items():
        names = family.hf_names(parameter, model.num_outputs)
        if not names:
            raise InputError(
                f"{parameter} has no Hugging Face name in the family {family.model_type}; the model cannot be saved"
            )
        for name, rows in zip(names, value.chunk(len(names)), strict=True):
            renamed = prefix + name.removeprefix(family.prefix) if name.startswith(family.prefix) else name
            tensors[renamed] = rows
    return tensors
