"""The wheel, the source archive and the editable install: their files, equal builds, the bill of materials."""

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

from bothways.core import build as core_build
from tools.index_page import absolute_links
from tools.wheel.archives import EARLIEST, VARIABLE, add_files, rewrite_sdist, rewrite_wheel, source_date
from tools.wheel.bill_of_materials import MODELS, bill_of_materials, to_bytes

ROOT = Path(__file__).parent.parent
BUILD = "import sys; sys.path.insert(0, 'tools/wheel'); import bothways_backend as backend; "
OLDER_LIBRARY = "libcore-0123456789ab.so.1"
NOON = 1700000000  # 2023-11-14 22:13:20 UTC


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Has setuptools build a wheel of a copy, with C files of a line; the copy, and the wheel's files by name."""
    pytest.importorskip("setuptools", "77")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("bothways", "tools/wheel"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "libcore-*"))
    for path in core_build.sources(source / "bothways/core"):
        path.write_text("typedef int of_a_test;\n")
    (source / "bothways/core" / OLDER_LIBRARY).write_text("of older sources")

    wheels = {}
    for kind in ("editable", "wheel"):
        code = f"{BUILD} backend.build_{kind}('{kind}')"
        environment = {**os.environ, VARIABLE: str(NOON), core_build.VARIABLE: ""}
        subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, env=environment)
        libraries = sorted(path.name for path in (source / "bothways/core").glob("libcore-*"))
        (source / kind / "libraries.json").write_text(json.dumps(libraries))
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
@pytest.mark.soak
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
def test_a_wheel_has_the_library_that_the_compiler_makes_and_the_platform_in_its_name(build):
    """The editable install, which is built before, puts the library into the checkout, in place of an older one."""
    source, files = build("wheel")
    in_checkout = [json.loads((source / kind / "libraries.json").read_text()) for kind in ("editable", "wheel")]
    libraries = [Path(name).name for name in files if "libcore-" in name]
    (wheel,) = (source / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        facts = archive.read("bothways-0.1.0.dist-info/WHEEL").decode().splitlines()
        check_record(archive)
    try:
        target = core_build.this_machine()
        core_build.find_compiler(target)
    except core_build.BuildError:
        assert wheel.name == "bothways-0.1.0-py3-none-any.whl" and not libraries
        assert "Root-Is-Purelib: true" in facts and "Tag: py3-none-any" in facts
    else:
        assert wheel.name == f"bothways-0.1.0-py3-none-{target.tag}.whl"
        assert "Root-Is-Purelib: false" in facts and f"Tag: py3-none-{target.tag}" in facts
        assert libraries == [core_build.library_name(source / "bothways/core", target.suffix)]
        assert in_checkout == [libraries, libraries]


def check_record(archive):
    """Asserts that RECORD lists every file of a wheel with its checksum and size, and itself."""
    (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    lines = [*csv.reader(archive.read(record).decode().splitlines())]
    assert [name for name, *_ in lines] == [*sorted({*archive.namelist()} - {record}), record]
    assert lines.pop() == [record, "", ""]
    for name, checksum, size in lines:
        content = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        assert (checksum, size) == (f"sha256={digest}", str(len(content))), name


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_package(build):
    source, files = build("wheel")
    kinds = (".py", ".typed", ".xz", ".md", ".json", ".jsonl", ".txt", ".safetensors", ".html", ".css", ".js")
    kinds += (".c", ".h", ".1", ".dylib", ".dll")
    there = {path.relative_to(source).as_posix() for path in (source / "bothways").rglob("*") if path.suffix in kinds}
    there.discard(f"bothways/core/{OLDER_LIBRARY}")  # which is still there if there is no compiler
    assert files.keys() == there
    (wheel,) = (source / "wheel").glob("*.whl")
    assert wheel.stat().st_size < 26e6
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
        notices = {Path(name).name for name in archive.namelist() if "/licenses/" in name}
        bill = json.loads(archive.read("bothways-0.1.0.dist-info/sboms/bothways.cdx.json"))
        entries = archive.infolist()
        record = archive.read("bothways-0.1.0.dist-info/RECORD").decode()
    assert "License-Expression: Apache-2.0 AND MIT" in metadata and notices == {"LICENSE", "NOTICE"}
    assert "Author: Bothways developers" in metadata and "Classifier: Typing :: Typed" in metadata

    assert checksums(bill) == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert "sboms/bothways.cdx.json,sha256=" in record
    assert {entry.date_time for entry in entries} == {(2023, 11, 14, 22, 13, 20)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644}


def checksums(bill):
    """SHA-256 of each file that a bill of materials lists."""
    files = [file for component in bill["components"] for file in component.get("components", [])]
    assert len(files) == len({file["name"] for file in files})
    return {file["name"]: file["hashes"][0]["content"] for file in files}


def metadata_of(*requirements):
    """METADATA of a wheel that requires these."""
    message = Message()
    message["Name"], message["Version"], message["Summary"] = "bothways", "7.5.3", "A test"
    message["License-Expression"] = "Apache-2.0 AND MIT"
    for line in requirements:
        message["Requires-Dist"] = line
    return message


@pytest.fixture
def small_package(tmp_path):
    """A package with a file of each kind that a bill of materials tells apart."""
    names = [f"{model['folder']}/weights.bin" for model in MODELS]
    names += ["__init__.py", "sample/rows.jsonl", "sample/__init__.py"]
    names += ["__pycache__/x.pyc", f"{MODELS[0]['folder']}/.float32-0/w.bin"]  # not in a wheel
    for name in names:
        file = tmp_path / "bothways" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "bothways"


def test_the_bill_of_materials_has_the_models_with_licence_and_checksum(small_package):
    bill = bill_of_materials(metadata_of(), small_package, NOON)
    models = [part for part in bill["components"] if part["type"] == "machine-learning-model"]
    assert [(model["name"], model["version"]) for model in models] == [
        ("bothways-en", "7.5.3"),
        ("bothways-en-static", "7.5.3"),
    ]
    assert models[0]["licenses"] == [{"expression": "Apache-2.0 AND MIT"}]
    assert models[1]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    (weights,) = models[0]["components"]
    content = f"{MODELS[0]['folder']}/weights.bin".encode()
    assert weights["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]

    assert len(checksums(bill)) == 5 and "bothways/sample/rows.jsonl" in checksums(bill)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)


def test_the_bill_of_materials_has_what_the_wheel_requires(small_package):
    metadata = metadata_of(
        "numpy>=1.26", "PyStemmer>=3", 'scikit_learn>=1.4; extra == "train"', 'numpy>=2; extra == "test"',
        "torch>=2.11; extra == 'train'", "torch>=2.11; extra == 'onnx'", 'bothways[train]; extra == "onnx"',
        'pytest-xdist[psutil]>=3.6; extra == "test"',
    )  # fmt: skip
    parts = {part["name"]: part for part in bill_of_materials(metadata, small_package, NOON)["components"]}
    scopes = {name: part["scope"] for name, part in parts.items() if "scope" in part}
    assert scopes == {
        "numpy": "required",
        "pystemmer": "required",
        "scikit-learn": "optional",
        "torch": "optional",
        "pytest-xdist": "optional",
    }
    assert parts["pystemmer"]["purl"] == "pkg:pypi/pystemmer"
    assert [fact["value"] for fact in parts["numpy"]["properties"]] == ["numpy>=1.26", "numpy>=2", "test"]
    assert [fact["value"] for fact in parts["torch"]["properties"]] == ["torch>=2.11", "onnx", "train"]


def test_the_bill_of_materials_depends_on_the_package_alone(small_package):
    first = to_bytes(bill_of_materials(metadata_of("numpy>=1"), small_package, NOON))
    for file in small_package.rglob("*.*"):
        os.utime(file, (5, 5))
    assert to_bytes(bill_of_materials(metadata_of("numpy>=1"), small_package, NOON)) == first
    (small_package / "__init__.py").write_text("changed")
    assert to_bytes(bill_of_materials(metadata_of("numpy>=1"), small_package, NOON)) != first


def test_the_bill_of_materials_has_the_library_of_the_wheel_and_no_other(small_package, tmp_path):
    (small_package / "core").mkdir()
    (small_package / "core" / "libcore-0123456789ab.so.1").write_text("of an earlier build")
    assert not [name for name in checksums(bill_of_materials(metadata_of(), small_package, NOON)) if "libcore" in name]

    library = tmp_path / "libcore-abcdef012345.dll"
    library.write_text("of another platform")
    listed = checksums(bill_of_materials(metadata_of(), small_package, NOON, library))
    digest = hashlib.sha256(b"of another platform").hexdigest()
    assert {name: value for name, value in listed.items() if "libcore" in name} == {
        "bothways/core/libcore-abcdef012345.dll": digest
    }


def test_the_models_of_the_bill_are_those_of_the_package():
    folders = {path.parent for path in (ROOT / "bothways/pretrained").rglob("config.json")}
    models = {path for path in folders if path.parent.name == "pretrained"}
    assert {ROOT / "bothways" / model["folder"] for model in MODELS} == models
    for model in MODELS:
        card = (ROOT / "bothways" / model["folder"] / "README.md").read_text(encoding="utf-8")
        assert model["license"] in " ".join(card.split())


def test_a_wheel_depends_on_its_files_alone(tmp_path):
    """Not on the order, the times, the modes and the system of what setuptools has written."""
    contents = {
        "bothways/b.py": b"two",
        "bothways/a.py": b"one",
        "bothways-1.dist-info/RECORD": b"list",
        "bothways-1.dist-info/sboms/s.json": b"{}",
    }
    wheels = []
    for number, names in enumerate((sorted(contents), sorted(contents, reverse=True))):
        wheels.append(tmp_path / f"{number}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            for name in names:
                entry = zipfile.ZipInfo(name, (1999 + number, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100600 + number * 0o155) << 16
                entry.create_system = 3 * number
                archive.writestr(entry, contents[name])
        rewrite_wheel(wheels[-1], NOON)

    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == contents
        assert [name.rpartition("/")[2] for name in archive.namelist()] == ["a.py", "b.py", "s.json", "RECORD"]
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_DEFLATED}


def test_files_are_added_to_a_wheel_with_the_platform_that_they_are_for(tmp_path):
    pure = tmp_path / "bothways-1-py3-none-any.whl"
    contents = {
        "bothways/a.py": b"one",
        "bothways-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n",
        "bothways-1.dist-info/RECORD": b"list",
    }
    with zipfile.ZipFile(pure, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    before = pure.read_bytes()
    (tmp_path / "out").mkdir()

    added = {"bothways/core/x.so": b"machine", "bothways/a.py": b"instead"}
    wheel = add_files(pure, tmp_path / "out", added, "musllinux_1_2_aarch64")
    assert wheel == tmp_path / "out/bothways-1-py3-none-musllinux_1_2_aarch64.whl"
    with zipfile.ZipFile(wheel) as archive:
        check_record(archive)
        assert {name: archive.read(name) for name in added} == added
        facts = archive.read("bothways-1.dist-info/WHEEL").decode()
    assert facts == "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-musllinux_1_2_aarch64\n\n"

    same = add_files(pure, tmp_path / "out", {})
    assert same.name == pure.name and pure.read_bytes() == before
    with zipfile.ZipFile(same) as archive:
        check_record(archive)
        assert archive.read("bothways-1.dist-info/WHEEL") == contents["bothways-1.dist-info/WHEEL"]


def test_a_source_archive_depends_on_its_files_alone_and_has_the_time_of_the_commit(tmp_path):
    contents = {"bothways-1/setup.cfg": (b"a", 0o664), "bothways-1/.ci/run": (b"b", 0o700)}
    archives = []
    for number, names in enumerate((sorted(contents), sorted(contents, reverse=True))):
        archives.append(tmp_path / f"{number}.tar.gz")
        with tarfile.open(archives[-1], "w:gz") as archive:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = 1, contents[name][1] ^ (number * 0o022)
                entry.mtime = entry.uid = 1000 + number
                entry.uname = f"user{number}"
                archive.addfile(entry, io.BytesIO(contents[name][0]))
        rewrite_sdist(archives[-1], NOON)

    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        modes = {entry.name: entry.mode for entry in archive}
        archive.extractall(tmp_path / "there", filter="data")
    assert modes == {
        "bothways-1/.ci/run": 0o755,
        f"bothways-1/{VARIABLE}": 0o644,
        "bothways-1/setup.cfg": 0o644,
    }
    assert source_date(tmp_path / "there/bothways-1") == NOON  # which the wheel of a source archive takes


def test_a_build_takes_the_time_of_the_commit(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert source_date(tmp_path) == EARLIEST
    (tmp_path / ".git").write_text("gitdir: nowhere")  # a checkout that git cannot read
    assert source_date(tmp_path) == EARLIEST
    (tmp_path / ".git").unlink()

    if shutil.which("git"):
        environment = {**os.environ, "GIT_COMMITTER_DATE": f"{NOON} +0900", "GIT_AUTHOR_DATE": "1600000000 +0000"}
        for command in ("init -q", "-c user.name=n -c user.email=e commit -q --allow-empty -m x"):
            subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True, env=environment)
        assert source_date(tmp_path) == NOON

    monkeypatch.setenv(VARIABLE, str(NOON + 60))
    assert source_date(tmp_path) == NOON + 60
    monkeypatch.setenv(VARIABLE, "0")  # before zip files
    assert source_date(tmp_path) == EARLIEST


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="compares with git")
def test_a_source_archive_holds_what_git_does(monkeypatch):
    """By the rules of MANIFEST.in, beside the files that setuptools adds itself."""
    egg_info = pytest.importorskip("setuptools.command.egg_info")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listed.returncode:  # such as a checkout of another user
        pytest.skip(f"git does not list the files: {listed.stderr.strip()}")
    tracked = listed.stdout.splitlines()
    junk = [
        "bothways/__pycache__/a.pyc", "tests/cli/__pycache__/b.pyc", "bothways/c.pyo", "docs/.DS_Store", ".venv/pip.py",
        "runs/d.json", "build/docs/index.html", "bothways/pretrained/bothways-en/.float32-0.cache",
        "bothways/pretrained/bothways-en/.float32-1/model.safetensors", "bothways/core/libcore-0123456789ab.so.1",
        "bothways/core/.libcore-x1y2z3",
    ]  # fmt: skip
    monkeypatch.chdir(ROOT)
    chosen = egg_info.FileList()
    chosen.set_allfiles([*tracked, *junk])
    for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            chosen.process_template_line(line)

    by_setuptools = {"LICENSE", "NOTICE", "README.md", "pyproject.toml"}
    assert {*chosen.files} | by_setuptools == {*tracked}


def test_the_packages_of_the_wheel_are_the_folders():
    where = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"][
        "find"
    ]
    found = find_namespace_packages(str(ROOT), include=where["include"], exclude=where["exclude"])
    files = [*(ROOT / "bothways").rglob("*.py"), *(ROOT / "bothways").rglob("*.html")]
    folders = {".".join(file.parent.relative_to(ROOT).parts) for file in files}
    assert folders <= {*found} and {"bothways.sample", "bothways.serving.web"} <= {*found}
    assert not any("bothways-en" in name for name in found)


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
