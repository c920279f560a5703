"""`pip install .` and `make install` install every file, and type checkers find the package."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tools.index_page import absolute_links

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Has setuptools build a wheel of a copy; the copy, and the wheel's files by name."""
    pytest.importorskip("setuptools", "77")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "bothways", source / "bothways", ignore=shutil.ignore_patterns("__pycache__"))

    wheels = {}
    for kind in ("editable", "wheel"):
        code = f"import setuptools.build_meta as backend; backend.build_{kind}('{kind}')"
        subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
        (wheel,) = (source / kind).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            wheels[kind] = {name: files.read(name) for name in files.namelist() if ".dist-info/" not in name}

    return lambda kind: (source, wheels[kind])


def test_an_editable_install_is_a_path_which_type_checkers_read(build):
    """An import hook, which setuptools makes of other layouts, is invisible to mypy."""
    source, files = build("editable")
    assert [Path(name).suffix for name in files] == [".pth"]
    assert Path(next(iter(files.values())).decode().strip()).samefile(source)


@pytest.mark.slow
def test_a_type_checker_finds_an_editable_install(build, tmp_path):
    """mypy on a user's script, with a Python that has nothing else: a wrong name is an error, a right one is none."""
    pytest.importorskip("mypy")
    _, files = build("editable")
    venv.create(tmp_path / "env", with_pip=False)
    (packages,) = (tmp_path / "env").glob("lib/*/site-packages")
    for name, content in files.items():
        (packages / name).write_bytes(content)
    script = tmp_path / "script.py"
    script.write_text("import bothways\n\nfor one in bothways.load('m').classify(['a']):\n    one.label, one.lable\n")
    command = ["-m", "mypy", "--strict", "--python-executable", tmp_path / "env" / "bin" / "python", script]
    completed = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, env=_without_path()
    )
    assert '"Prediction" has no attribute "lable"' in completed.stdout and "Found 1 error in 1 file" in completed.stdout


def _without_path():
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_package(build):
    source, files = build("wheel")
    kinds = (".py", ".typed", ".xz", ".md", ".json", ".jsonl", ".txt", ".safetensors", ".html", ".css", ".js")
    there = {path.relative_to(source).as_posix() for path in (source / "bothways").rglob("*") if path.suffix in kinds}
    assert files.keys() == there
    (wheel,) = (source / "wheel").glob("*.whl")
    assert wheel.stat().st_size < 26e6
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
        notices = {Path(name).name for name in archive.namelist() if "/licenses/" in name}
    assert "License-Expression: Apache-2.0 AND MIT" in metadata and notices == {"LICENSE", "NOTICE"}
    assert "Author: Bothways developers" in metadata and "Classifier: Typing :: Typed" in metadata


def test_the_packages_of_the_wheel_are_the_folders():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    files = [*(ROOT / "bothways").rglob("*.py"), *(ROOT / "bothways").rglob("*.html")]
    folders = {".".join(file.parent.relative_to(ROOT).parts) for file in files}
    assert folders <= {*listed} and all((ROOT / name.replace(".", "/")).is_dir() for name in listed)


def test_readme_and_wheel_name_the_same_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"License: {project['license']}." in (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_of_the_readme_are_absolute_on_the_page_of_an_index_once_there_is_an_address():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert absolute_links(page, "", "1.2") == page
    made = absolute_links(page, "https://example.org/us/it", "1.2")
    links = re.findall(r"\]\(([^)]+)\)", made)
    assert len(links) == len(re.findall(r"\]\(", page)) and all(link.startswith(("https://", "#")) for link in links)
    assert "![Quality of English models against their size](https://example.org/us/it/raw/v1.2/docs/pictures/" in made
    assert "[NOTICE](https://example.org/us/it/blob/v1.2/NOTICE)" in made
