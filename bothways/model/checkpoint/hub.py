"""Models by name: of the package, from the Hugging Face cache, or downloaded from the hub with huggingface_hub.

A name is NAME or OWNER/NAME, with @REVISION (a branch, tag or commit) behind it for another version than `main`.
The layout of the cache is huggingface_hub's: models--OWNER--NAME/refs/REVISION holds a commit, and
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
OTHER_WEIGHTS = (
    "int8.safetensors",
    "packed.safetensors",
    "pruned.safetensors",
    "tfidf.safetensors",
)
ANY_WEIGHTS = (
    WEIGHTS,
    OLD_WEIGHTS,
    *OTHER_WEIGHTS,
    f"0_Transformer/{WEIGHTS}",
)
INDEX = f"{WEIGHTS}.index.json"
FILES = (
    CONFIG,
    METADATA_FILE,
    WEIGHTS,
    INDEX,
    "model-*-of-*.safetensors",
    *OTHER_WEIGHTS,
    "mean_head.safetensors",
    "scope.safetensors",
    "terms.json",
    *TOKENIZER_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    MODULES,
    MODEL_SETTINGS,
    *LIMITS,
    "[0-9]_*/*.json",
    "*/config.json",
    "[0-9]_*/model.safetensors",
)
NAME = re.compile(r"(?:(?P<owner>\w[\w.-]*)/)?\w[\w.-]*", re.ASCII)
REVISION = re.compile(r"\w[\w.-]*(/[\w.-]+)*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_NAME = 96  # characters, as the hub allows
SETTINGS = (  # settings that name a model
    "model",
    "teacher",
    "student",
    "from_checkpoint",
)
TRUE = ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its variables


@dataclass(frozen=True)
class HubModel:
    """The name of a model on the hub, and the branch, tag or commit of the version."""

    name: str
    revision: str = "main"

    @classmethod
    def parse(cls, text: str) -> "HubModel | None":
        """The model of NAME, OWNER/NAME or either with @REVISION; None if the text has another form.

        >>> HubModel.parse("google-bert/bert-base-uncased@main")
        HubModel(name='google-bert/bert-base-uncased', revision='main')
        """
        name, _, revision = text.partition("@")
        # "--" stands for "/" in folders of the cache; the hub allows neither it nor longer names.
        if not NAME.fullmatch(name) or ".." in text or "--" in name or len(name) > MAX_NAME:
            return None
        if "@" not in text:
            return cls(name)
        if not REVISION.fullmatch(revision):
            return None
        return cls(name, revision)

    @property
    def cached(self) -> Path:
        """The directory of all its versions in the cache."""
        return cache_directory() / f"models--{self.name.replace('/', '--')}"

    def snapshot(self) -> Path | None:
        """The cached files of the revision, complete or not; None if there are none."""
        commit = self.revision  # unless it is a branch or a tag, which has a file with its commit
        with suppress(OSError, UnicodeDecodeError):
            commit = (self.cached / "refs" / self.revision).read_text(encoding="utf-8").strip()
        directory = self.cached / "snapshots" / commit
        if not COMMIT.fullmatch(commit) or not directory.is_dir():
            return None
        return directory

    def command(self) -> str:
        """The command that downloads the model into a directory."""
        revision = "" if self.revision == "main" else f" --revision {self.revision}"
        folder = self.name.rpartition("/")[2]
        return f"hf download {self.name}{revision} --local-dir {folder}"


def cache_directory() -> Path:
    """The cache of huggingface_hub: HF_HUB_CACHE, else the folder hub in HF_HOME, else in ~/.cache/huggingface."""
    path = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if path:
        return Path(os.path.expandvars(path)).expanduser()

    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or Path(caches, "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def locate(path: str | PathLike[str]) -> Path:
    """The directory of a model: for a path that exists or cannot be a name, the path itself, or the folder `model` of a
    run; else the packaged model of this name, or the model in the cache, into which it is downloaded if it is not
    there. MissingFile if that fails."""
    local = as_path(path)
    if isinstance(local, RemotePath):
        directory = local if _holds_model(local) else local / "model"
        return directory.download()

    model = HubModel.parse(local.as_posix())
    if model is None or local.exists() or find_backup(local):
        inside = local / "model"
        return inside if _holds_model(inside) and not _holds_model(local) else local

    packaged = pretrained.locate(local)
    if packaged:
        return packaged

    snapshot = model.snapshot()
    reason = missing_part(snapshot) if snapshot else f"not in the cache {cache_directory()}"
    if snapshot and not reason:
        return snapshot

    # A directory of the owner's name shows that a path is meant, which has a typing error.
    owner = local.parent
    if owner.name and owner.exists():
        raise _missing(local, model, f"{reason}; not downloaded, since {owner} is a directory here")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in TRUE:
        raise _missing(local, model, f"{reason}; not downloaded, since HF_HUB_OFFLINE is set")
    return _download(local, model, reason)


def _holds_model(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (CONFIG, ADAPTER_CONFIG, MODULES))


def missing_part(snapshot: Path) -> str:
    """Why a directory is not a whole model; "" if it is."""
    try:
        files = Files(snapshot)
        names = _needed_files(files)
    except InputError as error:
        return str(error)

    for name in names:
        if not files.has(name):
            return f"the cached version {snapshot.name[:7]} lacks {name}"
    return ""


def _needed_files(files: Files) -> list[str]:
    """The files without which a directory is not a whole model."""
    names = [CONFIG]
    if files.has(INDEX) and not files.has(WEIGHTS):
        weight_map = get_object(files.json(INDEX), "weight_map", files.path / INDEX)
        names += sorted({str(name) for name in weight_map.values()})
    elif not any(map(files.has, ANY_WEIGHTS)):
        names.append(WEIGHTS)
    if files.has(MODULES) and "Pooling" in str(files.value(MODULES)):
        names.append(pooling_file(files))
    return names


def _download(local: Path, model: HubModel, reason: str) -> Path:
    """Download the files of a model that are read into the cache: safetensors, or an old pickle if there are none."""
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
        if not any((snapshot / name).exists() for name in (*ANY_WEIGHTS, INDEX)):
            # Of the same commit, as the branch may move between the two calls.
            snapshot = fetch(snapshot.name, (OLD_WEIGHTS,))
    except Exception as error:  # of several packages, without a common base class
        raise _missing(local, model, f"{reason}; not downloaded ({_explain(error)})") from error

    missing = missing_part(snapshot)
    if missing:
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
    name = type(error).__name__
    if name in hints:
        return hints[name]
    first_line = str(error).strip().split("\n")[0]
    return shorten(first_line or name, 160)


def _missing(local: Path, model: HubModel, reason: str) -> MissingFile:
    return MissingFile(
        f"{local}: no such directory; as a model of the hub: {reason}; pass a checkpoint or a run, or download it: "
        f"{model.command()}"
    )


def commit_of(snapshot: Path) -> str | None:
    """OWNER/NAME@COMMIT for a directory of the cache or one inside it; None for others."""
    absolute = snapshot.absolute()
    for directory in (absolute, *absolute.parents):
        folder = directory.parent.parent.name
        is_snapshot = directory.parent.name == "snapshots" and COMMIT.fullmatch(directory.name)
        if is_snapshot and folder.startswith("models--"):
            name = folder.removeprefix("models--").replace("--", "/")
            return f"{name}@{directory.name}"
    return None


def commits(values: Mapping[str, object]) -> dict[str, str]:
    """OWNER/NAME@COMMIT of each setting that names a model of the hub; the models have been located before.

    values: of settings, by name.
    """
    result: dict[str, str] = {}
    for name in SETTINGS:
        value = values.get(name)
        if not isinstance(value, Path) or value.exists():
            continue
        model = HubModel.parse(value.as_posix())
        snapshot = model.snapshot() if model else None
        commit = commit_of(snapshot) if snapshot else None
        if commit:
            result[name] = commit
    return result
