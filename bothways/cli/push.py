"""`push`: upload a model with its card to the Hugging Face hub."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, flag, format_count, require
from bothways.base.io import read_text
from bothways.model.checkpoint.card_file import CARD, MODEL, is_written_by_us
from bothways.model.checkpoint.description import METADATA_FILE
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.published import PublishedFile, files_of
from bothways.settings.deploy import Push

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TERMS = "terms.json"  # of a model with a part over TF-IDF


@dataclass(frozen=True)
class PushedModel:
    """What is sent to the hub.

    name: of the repository.
    files: that are sent.
    left_out: names of the files that are not.
    metadata: content of bothways.json as it is sent; None if there is none.
    is_public: whether everyone may read the repository.
    url: of the repository; "" if nothing was sent.
    """

    name: str
    files: Sequence[PublishedFile]
    left_out: Sequence[str]
    metadata: Any
    is_public: bool
    url: str = ""

    def to_json(self) -> dict[str, Any]:
        facts = {
            "name": self.name,
            "public": self.is_public,
            "files": [{"name": file.name, "bytes": file.size} for file in self.files],
            "left_out": [*self.left_out],
        }
        return facts | ({"url": self.url} if self.url else {"sent": False, METADATA_FILE: self.metadata})

    def lines(self) -> Iterator[str]:
        for file in self.files:
            changed = "  (cleaned)" if isinstance(file.content, bytes) and file.name != CARD else ""
            yield f"{file.size:12,}  {file.name}{changed}"
        if self.left_out:
            yield f"not sent: {', '.join(self.left_out)}"
        if any(file.name == TERMS for file in self.files):
            yield f"{TERMS} has words and parts of words of the training texts"

        kind = "public" if self.is_public else "private"
        if self.url:
            yield f"{format_count(len(self.files), 'file')} in {self.url} ({kind})"
            return
        if self.metadata is not None:
            yield f"{METADATA_FILE}:"
            yield from json.dumps(self.metadata, indent=2, ensure_ascii=False).splitlines()
        yield f"nothing was sent; the repository would be {self.name} ({kind})"


def run(settings: Push) -> PushedModel:
    """Upload a model, or with `dry_run` only say what would be uploaded. The directory of the model is not changed.

    InputError if huggingface_hub is not installed, the hub refuses, or the repository is public without `public`.
    """
    if not settings.dry_run:
        require(f"push {settings.name}", "huggingface_hub")

    directory = Directory(settings.model)
    files, left_out = files_of(directory.path)
    files = [file for file in files if file.name != CARD]
    files.append(PublishedFile(CARD, card_to_send(directory, settings.name)))
    files.sort(key=lambda file: file.name)

    metadata = next((json.loads(contents(file)) for file in files if file.name == METADATA_FILE), None)
    pushed = PushedModel(settings.name, files, left_out, metadata, settings.public)
    if settings.dry_run:
        return pushed
    return send(pushed)


def card_to_send(directory: Directory, name: str) -> bytes:
    """The card of a model with its name on the hub; one that the user has written as it is."""
    file = directory.path / CARD
    if not is_written_by_us(file):
        return file.read_bytes()
    if file.exists():
        text = read_text(file)
    else:
        from bothways.training.finetuning.card import card_of_directory

        text = card_of_directory(directory)
    return text.replace(MODEL, name).encode()


def contents(file: PublishedFile) -> bytes:
    return file.content if isinstance(file.content, bytes) else file.content.read_bytes()


def send(pushed: PushedModel) -> PushedModel:
    """Create the repository, unless it exists, and send all files as one commit."""
    from huggingface_hub import CommitOperationAdd, HfApi

    # The variable is read here, since huggingface_hub reads it only when it is imported.
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    operations = [
        CommitOperationAdd(
            path_in_repo=file.name,
            path_or_fileobj=str(file.content) if isinstance(file.content, Path) else file.content,
        )
        for file in pushed.files
    ]
    try:
        repository = api.create_repo(pushed.name, private=not pushed.is_public, exist_ok=True)
        is_public = not api.model_info(pushed.name).private
        if is_public and not pushed.is_public:
            raise InputError(
                f"{pushed.name}: this repository exists and is public; add {flag('public', True)}, or name another one"
            )
        api.create_commit(pushed.name, operations, commit_message="Upload of a model by Bothways")
    except InputError:
        raise
    except Exception as error:  # of several packages, without a common base class
        first_line = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(f"{pushed.name}: not sent ({first_line}); {way_out(api)}") from error

    return PushedModel(
        name=pushed.name,
        files=pushed.files,
        left_out=pushed.left_out,
        metadata=pushed.metadata,
        is_public=is_public,
        url=str(repository),
    )


def way_out(api: "HfApi") -> str:
    from huggingface_hub import get_token

    if get_token() is None:
        return "there is no token: set HF_TOKEN, or log in with hf auth login"
    return f"check the name, and that the token may write to {api.endpoint}"
