"""bothways.load: a Predictor from a checkpoint, a run or a saved TF-IDF model."""

from os import PathLike

from bothways.checkpoint import hub
from bothways.inference.backends import open_backend
from bothways.inference.predictor import Predictor
from bothways.inference.runner import BATCH_TOKENS
from bothways.pretrained import DEFAULT


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
    backend = open_backend(hub.locate(path), dtype=dtype, device=device, window=window, batch_tokens=batch_tokens)
    return Predictor(backend)
