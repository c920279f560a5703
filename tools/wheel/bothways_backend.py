"""Build backend of pyproject.toml: setuptools', with the C library, so that two builds of a commit are equal, and with
a bill of materials.

BOTHWAYS_BUILD in the environment chooses what compiles the library (bothways/core/build.py): a compiler of the machine
if it is not set, "zig" (from the package ziglang), "none" for a wheel without the library. Without a compiler that
works the installation goes on without the library, and a line on stderr says so. pip shows what a backend prints only
with `pip install -v`, or if the backend fails; `python -m build` shows it always. `make install` prints the line.
"""

import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from pathlib import Path
from types import ModuleType
from typing import Any

from archives import ANY_PLATFORM, VARIABLE, add_files, rewrite_sdist, rewrite_wheel, source_date
from bill_of_materials import FILE_NAME, bill_of_materials, to_bytes
from core_build import load_core_build
from setuptools import build_meta

# Hooks that are setuptools' own. There is none for the metadata of a wheel: the bill of materials, which is part of
# them, names the library with its checksum, so that pip gets them from the wheel.
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

# To save time: the wheel is compressed when it is rewritten.
UNCOMPRESSED = {"--build-option": ["--compression=stored"]}
WRONG_USE = 2  # exit status


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return build_meta.get_requires_for_build_wheel(config_settings) + _compiler_package()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return build_meta.get_requires_for_build_editable(config_settings) + _compiler_package()


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """setuptools' wheel, which has the path of the checkout. The library is built in the checkout, if it lacks it."""
    _library(reuse=True)
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """The wheel of this platform with the library, or, without a library, that of all platforms.

    The library is compiled here even if the checkout has one, which another compiler may have made.
    """
    built = _library(reuse=False)
    with tempfile.TemporaryDirectory() as temporary:
        pure = _setuptools_wheel(temporary, config_settings)
        if built is None:
            return _finish(pure, Path(wheel_directory)).name

        library, platform = built
        return _finish(pure, Path(wheel_directory), library, platform).name


def build_pure_wheel(folder: Path) -> Path:
    """The wheel of all platforms, without the library, in a folder."""
    with tempfile.TemporaryDirectory() as temporary:
        return _finish(_setuptools_wheel(temporary), folder)


def add_library(pure: Path, library: Path, platform: str) -> Path:
    """The wheel of a platform, beside the wheel of all platforms, which stays.

    platform: such as "manylinux_2_17_x86_64".
    """
    return _finish(pure, pure.parent, library, platform)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    with _commit_time():
        archive = build_meta.build_sdist(sdist_directory, config_settings)

    rewrite_sdist(Path(sdist_directory, archive), source_date(Path.cwd()))
    return archive


def _chosen(core_build: ModuleType) -> str:
    """The value of BOTHWAYS_BUILD. An unknown one ends the process, so that pip shows one line and no stack."""
    try:
        return core_build.chosen()
    except core_build.BuildError as error:
        print(error, file=sys.stderr)
        raise SystemExit(WRONG_USE) from None


def _compiler_package() -> list[str]:
    """The requirements of the build beside setuptools."""
    core_build = load_core_build(Path.cwd())
    return [core_build.ZIG_REQUIREMENT] if _chosen(core_build) == core_build.ZIG else []


def _library(*, reuse: bool) -> tuple[Path, str] | None:
    """The library in the checkout, and the platform in the name of a wheel; None if there is to be or can be none."""
    core_build = load_core_build(Path.cwd())
    compiler = _chosen(core_build)
    if compiler == core_build.NONE:
        return None

    try:
        target = core_build.this_machine(zig=compiler == core_build.ZIG)
        library = core_build.build(
            Path.cwd() / "bothways" / "core",
            target,
            reuse=reuse,
            on_left_out=lambda line: print(f"bothways: {line}", file=sys.stderr),
        )
    except core_build.BuildError as error:
        print(core_build.without_library(str(error)), file=sys.stderr)
        return None
    return library, target.tag


def _setuptools_wheel(folder: str, config_settings: Any = None) -> Path:
    """The wheel as setuptools makes it, in a folder."""
    with _commit_time():
        return Path(folder, build_meta.build_wheel(folder, config_settings or UNCOMPRESSED))


def _finish(pure: Path, folder: Path, library: Path | None = None, platform: str = ANY_PLATFORM) -> Path:
    """A wheel in a folder, with the library, if there is one, and the bill of materials (PEP 770: in sboms/)."""
    with zipfile.ZipFile(pure) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(archive.read(name), headersonly=True)
    seconds = source_date(Path.cwd())
    bill = bill_of_materials(metadata, Path.cwd() / "bothways", seconds, library)

    files = {f"{name.removesuffix('METADATA')}sboms/{FILE_NAME}": to_bytes(bill)}
    if library is not None:
        files[f"bothways/core/{library.name}"] = library.read_bytes()

    folder.mkdir(parents=True, exist_ok=True)
    wheel = add_files(pure, folder, files, platform)
    rewrite_wheel(wheel, seconds)
    return wheel


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
