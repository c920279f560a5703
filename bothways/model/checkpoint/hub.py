"""Models by name: of the package, from the Hugging Face cache, or downloaded from the hub with huggingface_hub.

A name is NAME or OWNER/NAME, with @REVISION (a branch, tag or commit) behind it for another version than `main`.
The layout of the cache is that of huggingface_hub: models--OWNER--NAME/refs/REVISION holds a commit, and
snapshots/COMMIT its files.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from bothways import pretrained
from bothways.base.errors import InputError, MissingFile, shorten
from bothways.base.io import Files, find_backup, get_object
from bothways.base.log import logger
from bothways.base.paths import RemotePath, as_path
from bothways.model.checkpoint.description import ADAPTER_CONFIG, CONFIG, METADATA_FILE
from bothways.model.checkpoint.sentence_transformers import LIMITS, MODEL_SETTINGS, MODULES, pooling_file
from bothways.model.checkpoint.weights import OLD_WEIGHTS, WEIGHTS
from bothways.text.tokenizer.formats import FILE_NAMES as TOKENIZER_FILES

# Exact names, since a repository may hold the same weights again in other formats (onnx/, openvino/, *.bin).
OTHER_WEIGHTS = tuple(f"{kind}.safetensors" for kind in ("int8", "packed", "pruned", "tfidf"))
ANY_WEIGHTS = (WEIGHTS, OLD_WEIGHTS, *OTHER_WEIGHTS, f"0_Transformer/{WEIGHTS}")
FILES = (
    *(CONFIG, METADATA_FILE, WEIGHTS, f"{WEIGHTS}.index.json", "model-*-of-*.safetensors"),
    *(*OTHER_WEIGHTS, "mean_head.safetensors", "scope.safetensors", "terms.json", *TOKENIZER_FILES, "merges.txt"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", MODULES, MODEL_SETTINGS, *LIMITS),
    *("[0-9]_*/*.json", "*/config.json", "[0-9]_*/model.safetensors"),
)
NAME = re.compile(r"(?:(?P<owner>\w[\w.-]*)/)?\w[\w.-]*", re.ASCII)
REVISION = re.compile(r"\w[\w.-]*(/[\w.-]+)*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
SETTINGS = ("model", "teacher", "student", "from_checkpoint")  # settings that name a model
TRUE = ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its variables


@dataclass(frozen=True)
class HubModel:
    """The name of a model on the hub, and the branch, tag or commit of the version."""

    name: str
    revision: str = "main"

    @classmethod
    def parse(cls, text: str) -> "HubModel | None":
        """The model of NAME, OWNER/NAME or either with @REVISION; None if the text has another form."""
        name, _, revision = text.partition("@")
        if not NAME.fullmatch(name) or ".." in text or "--" in name or len(name) > 96:
            return None
        if "@" not in text:
            return cls(name)
        return cls(name, revision) if REVISION.fullmatch(revision) else None

    @property
    def cached(self) -> Path:
        """The directory of all its versions in the cache."""
        return cache_directory() / f"models--{self.name.replace('/', '--')}"

    def snapshot(self) -> Path | None:
        """The cached files of the revision, complete or not; None if there are none."""
        commit = self.revision
        with suppress(OSError, UnicodeDecodeError):
            commit = (self.cached / "refs" / self.revision).read_text(encoding="utf-8").strip()
        directory = self.cached / "snapshots" / commit
        return directory if COMMIT.fullmatch(commit) and directory.is_dir() else None

    def command(self) -> str:
        """The command that downloads the model into a directory."""
        revision = "" if self.revision == "main" else f" --revision {self.revision}"
        return f"hf download {self.name}{revision} --local-dir {self.name.rpartition('/')[2]}"


def cache_directory() -> Path:
    """The cache of huggingface_hub: HF_HUB_CACHE, else the folder hub in HF_HOME, else in ~/.cache/huggingface."""
    if path := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(path)).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def locate(path: str | PathLike[str]) -> Path:
    """The directory of a model: for a path that exists or cannot be a name, the path itself, or the folder `model` of a
    run; else that of the packaged model of this name, or of the one in the cache, into which it is downloaded if it is
    not there. MissingFile if that fails."""
    local = as_path(path)
    if isinstance(local, RemotePath):
        return (local if _holds_model(local) else local / "model").download()
    model = HubModel.parse(local.as_posix())
    if model is None or local.exists() or find_backup(local):
        inside = local / "model"
        return inside if _holds_model(inside) and not _holds_model(local) else local
    if packaged := pretrained.locate(local):
        return packaged
    snapshot = model.snapshot()
    reason = missing_part(snapshot) if snapshot else f"not in the cache {cache_directory()}"
    if snapshot and not reason:
        return snapshot
    if (owner := local.parent).name and owner.exists():
        raise _missing(local, model, f"{reason}; not downloaded, since {owner} is a directory here")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in TRUE:
        raise _missing(local, model, f"{reason}; not downloaded, since HF_HUB_OFFLINE is set")
    return _download(local, model, reason)


def _holds_model(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (CONFIG, ADAPTER_CONFIG, MODULES))


def missing_part(snapshot: Path) -> str:
    """Why a directory is not a whole model; "" if it is."""
    try:
        names, files = [CONFIG], Files(snapshot)
        index = f"{WEIGHTS}.index.json"
        if files.has(index) and not files.has(WEIGHTS):
            weight_map = get_object(files.json(index), "weight_map", snapshot / index)
            names += sorted({str(name) for name in weight_map.values()})
        elif not any(map(files.has, ANY_WEIGHTS)):
            names.append(WEIGHTS)
        if files.has(MODULES) and "Pooling" in str(files.value(MODULES)):
            names.append(pooling_file(files))
    except InputError as error:
        return str(error)
    missing = [name for name in names if not files.has(name)]
    return f"the cached version {snapshot.name[:7]} lacks {missing[0]}" if missing else ""


def commit_of(snapshot: Path) -> str | None:
    """OWNER/NAME@COMMIT for a directory of the cache or one inside it; None for others."""
    absolute = snapshot.absolute()
    for directory in (absolute, *absolute.parents):
        if directory.parent.name == "snapshots" and COMMIT.fullmatch(directory.name):
            folder = directory.parent.parent.name
            if folder.startswith("models--"):
                return f"{folder.removeprefix('models--').replace('--', '/')}@{directory.name}"
    return None


def commits(values: Mapping[str, object]) -> dict[str, str]:
    """OWNER/NAME@COMMIT of each setting that names a model of the hub; the models have been located before.

    values: of settings, by name."""
    result = {}
    for name in SETTINGS:
        value = values.get(name)
        if isinstance(value, Path) and not value.exists():
            model = HubModel.parse(value.as_posix())
            snapshot = model.snapshot() if model else None
            if snapshot and (commit := commit_of(snapshot)):
                result[name] = commit
    return result


def _download(local: Path, model: HubModel, reason: str) -> Path:
    """Download what is read of a model into the cache: safetensors, or an old pickle if there are none."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise _missing(
            local, model, f"{reason}; to download it, pip install 'bothways[hub]' (package huggingface_hub)"
        ) from None

    def fetch(revision: str, patterns: Iterable[str]) -> Path:
        return Path(
            snapshot_download(
                model.name,
                revision=revision,
                allow_patterns=[*patterns],
                cache_dir=cache_directory(),
                endpoint=os.environ.get("HF_ENDPOINT") or None,
            )
        )

    logger.info(f"{local}: {reason}; downloading it from the hub")
    try:
        snapshot = fetch(model.revision, FILES)
        if not any((snapshot / name).exists() for name in (*ANY_WEIGHTS, f"{WEIGHTS}.index.json")):
            snapshot = fetch(snapshot.name, (OLD_WEIGHTS,))
    except Exception as error:  # of several packages, without a common base class
        raise _missing(local, model, f"{reason}; not downloaded ({_explain(error)})") from error
    if missing := missing_part(snapshot):
        raise MissingFile(
            f"{local}: {missing}; the hub has no weights of it that can be read ({WEIGHTS} or {OLD_WEIGHTS}); name "
            "another model"
        )
    return snapshot


def _explain(error: Exception) -> str:
    hints = {
        "RepositoryNotFoundError": "no such model, or a private one: check the name, or log in with hf auth login",
        "GatedRepoError": "access is restricted: accept its terms on the hub, and log in with hf auth login",
        "RevisionNotFoundError": "no such revision",
    }
    return hints.get(type(error).__name__) or shorten(str(error).strip().split("\n")[0] or type(error).__name__, 160)


def _missing(local: Path, model: HubModel, reason: str) -> MissingFile:
    return MissingFile(
        f"{local}: no such directory; as a model of the hub: {reason}; pass a checkpoint or a run, or download it: "
        f"{model.command()}"
    )
