"""A run that is done, opened by its directory."""

from bothways.cloud import CloudPath, as_path
from bothways.errors import InputError, MissingFile
from bothways.mirror import download
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.settings.fields import AnyPath
from bothways.training.finetuning.deliver import result_of
from bothways.training.pretraining.result import PretrainingResult
from bothways.training.results import RunResult


def open_run(directory: AnyPath) -> RunResult:
    """The result of a run of `finetune`, `pretrain` or `distill` as `bothways.finetune` and `bothways.train` return it:
    with its model, its tables and its report. InputError if the directory has no run, or one that is not done."""
    place = as_path(directory)
    path = download(place) if isinstance(place, CloudPath) else place
    metadata = read_metadata(path / METADATA_FILE)
    if not metadata.get("verb") or not path.exists():
        raise MissingFile(f"{path}: not a run; name the directory that was its output")
    verb, _, task = metadata["verb"].partition(" ")
    if verb == "finetune" and "result" in metadata:
        return result_of(path, metadata["result"], task)
    if "heldout" in metadata:
        return PretrainingResult(path, path / "model", metadata["heldout"], metadata.get("cost", {}))
    raise InputError(f"{path}: a run of {verb} that is not done, or has no scores; name one of finetune or pretrain")
