"""bothways.load: a Predictor from a checkpoint, a run or a saved TF-IDF model."""

from os import PathLike

import torch

from bothways.checkpoint import checkpoint, hub
from bothways.checkpoint.checkpoint import CONFIG, TFIDF
from bothways.device import choose_device, choose_dtype, single_thread
from bothways.inference.predictor import Predictor
from bothways.inference.runner import BATCH_TOKENS
from bothways.inference.tfidf_predictor import TfidfPredictor
from bothways.pretrained import DEFAULT
from bothways.tokenizer.files import read_json


def load(
    path: str | PathLike[str] = DEFAULT,
    dtype: str = "auto",
    device: str = "auto",
    *,
    window: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Predictor:
    """Load a Predictor from a checkpoint directory in the Hugging Face layout, a run, or a saved TF-IDF model.

    Without a path, it is bothways-en, the English model that comes with the package.

    A path that does not exist may be the name of a model on the Hugging Face hub, such as
    sentence-transformers/all-MiniLM-L6-v2 or bert-base-uncased, with @REVISION behind it for another version than
    `main`. It is read from the Hugging Face cache, or downloaded into it (extra `hub`).

    dtype: "float32" is exact; "auto" is bf16 where the hardware is faster with it, else float32. device: "auto" is a
    GPU if there is one. window: maximum tokens of a window, special tokens included; the default is that of
    fine-tuning, else 512. batch_tokens: maximum tokens per batch. TF-IDF models compute in float64 on the CPU and do
    not split texts.
    """
    path = hub.locate(path)
    config = path / CONFIG
    if config.is_file() and read_json(config).get("model_type") == TFIDF:
        return TfidfPredictor(path, window=window)
    number_format = choose_dtype(dtype, choose_device(device))
    # Rounded weights cannot be saved, so `save` reads the exact ones again from here.
    source = None if number_format is torch.float32 else path.resolve()
    with single_thread():
        loaded = checkpoint.load(path, dtype=number_format)
        return Predictor(loaded, dtype=dtype, device=device, source=source, window=window, batch_tokens=batch_tokens)
