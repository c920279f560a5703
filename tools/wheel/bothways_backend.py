"""Build backend of pyproject.toml: setuptools', so that two builds of a commit are equal, with a bill of materials."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from archives import VARIABLE, rewrite_sdist, rewrite_wheel, source_date
from bill_of_materials import FILE_NAME, bill_of_materials, to_bytes
from setuptools import build_meta

# Hooks that are setuptools' own.
build_editable = build_meta.build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

# To save time: the wheel is compressed when it is rewritten.
UNCOMPRESSED = {"--build-option": ["--compression=stored"]}


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    with tempfile.TemporaryDirectory() as temporary, _commit_time():
        if metadata_directory is None:
            name = prepare_metadata_for_build_wheel(temporary, config_settings)
            metadata_directory = os.path.join(temporary, name)
        settings = config_settings or UNCOMPRESSED
        wheel = build_meta.build_wheel(wheel_directory, settings, metadata_directory)

    rewrite_wheel(Path(wheel_directory, wheel), source_date(Path.cwd()))
    return wheel


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """setuptools' metadata, and in sboms/ the bill of materials (PEP 770)."""
    name = build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    folder = Path(metadata_directory, name)

    metadata = BytesParser().parsebytes((folder / "METADATA").read_bytes(), headersonly=True)
    bill = bill_of_materials(metadata, Path.cwd() / "bothways", source_date(Path.cwd()))
    (folder / "sboms").mkdir(exist_ok=True)
    (folder / "sboms" / FILE_NAME).write_bytes(to_bytes(bill))
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    with _commit_time():
        archive = build_meta.build_sdist(sdist_directory, config_settings)

    rewrite_sdist(Path(sdist_directory, archive), source_date(Path.cwd()))
    return archive


@contextmanager
def _commit_time() -> Iterator[None]:
    """SOURCE_DATE_EPOCH is set inside the block, for setuptools."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(source_date(Path.cwd()))
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
