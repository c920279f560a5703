"""Longformer (Beltagy 2020): RoBERTa whose tokens see a window, but for a few that see all, with maps of their own."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.axes import Globals
from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.families import roberta
from bothways.families.bert import LAYER
from bothways.families.roberta import ROBERTA
from bothways.families.spec import architectures

DEFAULT_WINDOW = 512


def read(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The window is given whole: one size for all layers, or a list of sizes."""
    given = theirs.get("attention_window", DEFAULT_WINDOW)
    windows = given if isinstance(given, list) else [given]
    if len(set(windows)) != 1:
        raise InputError(
            f"attention_window={given!r:.60} that differs from layer to layer is not supported; one size is"
        )
    if not isinstance(windows[0], int) or windows[0] < 2 or windows[0] % 2:
        raise InputError(f"attention_window={given!r:.60} is not supported; an even number of tokens is")
    separator = theirs.get("sep_token_id", 2)
    if not isinstance(separator, int) or separator < 0:
        raise InputError(f"sep_token_id={separator!r:.60} is not supported; the id that ends a question is")
    return {
        **roberta.read(theirs), "window": windows[0] // 2, "whole_text_every": 0, "far": Globals(separator=separator)
    }  # fmt: skip


def write(config: EncoderConfig) -> dict[str, Any]:
    assert isinstance(config.far, Globals)
    windows = [2 * config.window] * config.num_hidden_layers
    return {**roberta.write(config), "attention_window": windows, "sep_token_id": config.far.separator}


LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    prefix="longformer.",
    axes={**ROBERTA.axes, "window": DEFAULT_WINDOW // 2, "whole_text_every": 0, "far": Globals(separator=2)},
    names={
        **ROBERTA.names,
        "layers.{}.attention.global_query": f"{LAYER}attention.self.query_global",
        "layers.{}.attention.global_key_value": tuple(
            f"{LAYER}attention.self.{part}_global" for part in ("key", "value")
        ),
    },
    architectures=architectures("Longformer"),
    harmless=frozenset(
        {"attention_window", "attention_mode", "gradient_checkpointing", "ignore_attention_mask", "onnx_export"}
    ),
    read=read,
    write=write,
    longest=4096,
    new=lambda config: ROBERTA.new(config).changed(
        window=DEFAULT_WINDOW // 2, whole_text_every=0, far=Globals(separator=config.pad_token_id)
    ),
)
