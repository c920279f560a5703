"""The library of C code: which compiler makes it, what it is called, and what happens if it cannot be made.

Most tests have a compiler of their own, a script of the shell, and so need none on the machine.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bothways.core import build as core_build
from bothways.core.build import TARGETS, VARIABLE, BuildError, Target, build, digest, library_name

ROOT = Path(__file__).parent.parent.parent
HOOK = "import sys; sys.path.insert(0, 'tools/wheel'); import bothways_backend as backend; "
EXPORT = '__attribute__((visibility("default")))'
PROCESSOR = f"{EXPORT} int instruction_sets(void) {{ return 5; }}\n"
ENCODE = f"""
#define JOIN(name, isa) name##_##isa
#define NAME(name, isa) JOIN(name, isa)
{EXPORT} int NAME(stub, ISA)(void) {{ return 7; }}
"""
# Writes its arguments to the file of -o. $FAIL: of the arguments with which it fails, a pattern of the shell.
SCRIPT = """#!/bin/sh
for argument in "$@"; do
    case "$argument" in
        {fail}) echo "cc: note"; echo "cc: error: $argument" >&2; exit 1 ;;
    esac
    if [ "$previous" = -o ]; then out=$argument; fi
    previous=$argument
done
echo "$@" > "$out"
"""
LINUX = Target("x86_64", "linux", "linux_x86_64")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the compiler of the tests is a script of the shell")


@pytest.fixture
def folder(tmp_path):
    """Small C files. The name has a space."""
    path = tmp_path / "the core"
    path.mkdir()
    (path / "processor.c").write_text(PROCESSOR)
    (path / "encode.c").write_text(ENCODE)
    return path


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes a script the compiler of the environment: compiler(pattern of arguments with which it fails)."""

    def make(fail="no-such-argument"):
        script = tmp_path / "script of cc"
        script.write_text(SCRIPT.format(fail=fail))
        script.chmod(0o755)
        monkeypatch.setenv("CC", shlex.join([str(script), "--of-the-user"]))
        return script

    return make


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_library_of_the_machines_compiler_has_a_function_of_each_instruction_set(folder):
    try:
        target = core_build.this_machine()
        core_build.find_compiler(target)
    except BuildError as error:
        pytest.skip(str(error))
    left_out = []
    path = build(folder, on_left_out=left_out.append)

    assert path == folder / library_name(folder, target.suffix)
    assert files(folder) == sorted(["encode.c", path.name, "processor.c"])
    library = ctypes.CDLL(str(path))
    assert library.instruction_sets() == 5
    sets = [*core_build.INSTRUCTION_SETS[target.architecture]]
    made = [name for name in sets if hasattr(library, f"stub_{name}")]
    assert made and made + [line.split()[0] for line in left_out] == sets


def test_each_instruction_set_has_its_flags(folder, tmp_path, monkeypatch):
    """The compiler writes them down."""
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\necho "$@" >> calls\n' + SCRIPT.format(fail="nothing").partition("\n")[2])
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    build(folder, LINUX)

    calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
    compiled = {word: call for call in calls for word in call if word.startswith("-DISA=")}
    assert compiled.keys() == {"-DISA=avx2", "-DISA=avx512", "-DISA=avx512_bf16", "-DISA=amx"}
    avx2, avx512, bf16, amx = (
        {word for word in compiled[f"-DISA={name}"] if word.startswith("-m")}
        for name in ("avx2", "avx512", "avx512_bf16", "amx")
    )
    assert avx2 == {"-mavx2", "-mfma", "-mf16c"}
    assert avx512 - avx2 == {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"}
    assert bf16 - avx512 == {"-mavx512vnni", "-mavx512bf16"}
    assert amx - bf16 == {"-mamx-tile", "-mamx-bf16", "-mamx-int8"}
    (processor,) = (call for call in calls if "processor.c" in call)
    assert "-O3" in processor and not [word for word in processor if word.startswith("-m")]


def test_the_name_depends_on_the_names_and_the_bytes_of_the_c_files(folder):
    first = digest(folder)
    assert len(first) == 12 and int(first, 16) >= 0
    (folder / "notes.txt").write_text("no source")
    (folder / "libcore-0123456789ab.so.1").write_text("no source")
    assert digest(folder) == first

    (folder / "vectors.h").write_text("")
    second = digest(folder)
    (folder / "vectors.h").rename(folder / "vector.h")
    third = digest(folder)
    (folder / "vector.h").write_text("int x;")
    fourth = digest(folder)
    (folder / "vector.h").write_text("int y;")
    assert len({first, second, third, fourth, digest(folder)}) == 5


def test_a_library_of_the_same_sources_is_not_compiled_again(folder, compiler):
    compiler()
    path = build(folder, LINUX)
    path.write_text("is there")
    compiler("*")  # fails
    assert build(folder, LINUX) == path and path.read_text() == "is there"

    with pytest.raises(BuildError):
        build(folder, LINUX, reuse=False)
    compiler()
    build(folder, LINUX, reuse=False)
    assert path.read_text() != "is there"


def test_a_build_deletes_the_libraries_of_other_sources_after_it_has_succeeded(folder, compiler):
    compiler()
    older = build(folder, LINUX)
    (folder / "libcore-0123456789ab.dylib").write_text("older still")
    (folder / "encode.c").write_text(ENCODE + "\n")

    compiler("*")
    with pytest.raises(BuildError):
        build(folder, LINUX)
    assert older.is_file()

    compiler()
    newer = build(folder, LINUX)
    assert files(folder) == sorted(["encode.c", newer.name, "processor.c"]) and newer != older


def test_without_a_compiler_the_error_names_those_that_were_looked_for(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError) as failure:
        build(folder, LINUX)
    assert str(failure.value) == "no C compiler works (cc: not found; gcc: not found; clang: not found)"
    assert files(folder) == ["encode.c", "processor.c"]


def test_a_compiler_that_fails_is_passed_over(folder, compiler, tmp_path, monkeypatch):
    works = tmp_path / "gcc"
    compiler().rename(works)
    fails = tmp_path / "cc"
    compiler("*").rename(fails)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert core_build.find_compiler(LINUX) == [str(works)]

    works.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(BuildError) as failure:
        build(folder, LINUX)
    assert str(failure.value).splitlines() == [
        "no C compiler works (cc: cc: error: -O3; gcc: exit status 3; clang: not found)"
    ]
    assert files(folder) == ["encode.c", "processor.c"]


def test_the_compiler_of_the_environment_is_the_only_one_and_has_its_arguments(compiler, monkeypatch):
    script = compiler()
    assert core_build.find_compiler(LINUX) == [str(script), "--of-the-user"]
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(BuildError, match=r"^no C compiler works \(no-such-compiler: not found\)$"):
        core_build.find_compiler(LINUX)


def test_an_instruction_set_that_the_compiler_does_not_know_is_left_out(folder, compiler):
    """The objects of the others are linked; without any there is no library."""
    compiler("-mamx-tile|-mavx512bf16")
    left_out = []
    path = build(folder, LINUX, on_left_out=left_out.append)
    assert left_out == [
        "avx512_bf16 is left out: cc: error: -mavx512bf16",
        "amx is left out: cc: error: -mavx512bf16",
    ]
    linked = [Path(word).name for word in path.read_text().split() if word.endswith(".o")]
    assert linked == ["processor.o", "encode-avx2.o", "encode-avx512.o"]

    compiler("-mavx2")
    with pytest.raises(BuildError, match=r"^encode.c does not compile: cc: error: -mavx2$"):
        build(folder, LINUX, reuse=False)
    compiler("processor.c")
    with pytest.raises(BuildError, match=r"^processor.c does not compile: cc: error: processor.c$"):
        build(folder, LINUX, reuse=False)
    compiler("*encode-amx.o")
    build(folder, LINUX, reuse=False)


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(folder, compiler):
    """A folder stands where the library belongs: the rights of a folder do not stop root."""
    compiler()
    place = folder / library_name(folder, ".so.1")
    place.mkdir()
    with pytest.raises(BuildError) as failure:
        build(folder, LINUX)
    assert place.name in str(failure.value) or ".libcore-" in str(failure.value)
    assert "\n" not in str(failure.value)
    assert files(folder) == sorted(["encode.c", place.name, "processor.c"])  # no temporary file


def test_two_builds_at_once_make_one_library(folder, compiler):
    """They wait for each other between compiling and linking, where an instruction set is left out."""
    compiler("-mamx-tile")
    both = threading.Barrier(2, timeout=60)
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(build(folder, LINUX, on_left_out=lambda line: both.wait())))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 2 and len({*made}) == 1
    assert files(folder) == sorted(["encode.c", made[0].name, "processor.c"])
    assert made[0].read_text().startswith("--of-the-user")


@pytest.fixture
def zig(tmp_path, monkeypatch):
    """A package ziglang whose compiler writes its arguments to the file of -o."""
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys\nopen(sys.argv[-1], 'w').write(' '.join(sys.argv[1:]))\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.syspath_prepend(package.parent)


def test_zig_compiles_for_another_platform(folder, tmp_path, zig, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    path = build(folder, TARGETS["aarch64-macos.11.0"])
    assert path.name == library_name(folder, ".dylib")
    words = path.read_text().split()
    assert words[:3] == ["cc", "-target", "aarch64-macos.11.0"]
    assert [Path(word).name for word in words if word.endswith(".o")] == ["processor.o", "encode-neon.o"]
    assert f"-Wl,-install_name,@rpath/{path.name}" in words


def test_the_name_and_the_platform_of_each_target():
    shown = {name: (target.suffix, target.tag) for name, target in TARGETS.items()}
    assert shown == {
        "x86_64-linux-gnu.2.17": (".so.1", "manylinux_2_17_x86_64"),
        "aarch64-linux-gnu.2.17": (".so.1", "manylinux_2_17_aarch64"),
        "x86_64-linux-musl": (".so.1", "musllinux_1_2_x86_64"),
        "aarch64-linux-musl": (".so.1", "musllinux_1_2_aarch64"),
        "aarch64-macos.11.0": (".dylib", "macosx_11_0_arm64"),
        "x86_64-macos.11.0": (".dylib", "macosx_11_0_x86_64"),
        "x86_64-windows-gnu": (".dll", "win_amd64"),
    }


def test_the_variable_chooses_what_compiles_and_another_value_is_an_error():
    assert core_build.chosen({}) == core_build.chosen({VARIABLE: ""}) == ""
    assert [core_build.chosen({VARIABLE: value}) for value in ("zig", "none")] == ["zig", "none"]
    with pytest.raises(BuildError, match=r"^BOTHWAYS_BUILD \('zog'\) must be 'zig', 'none' or not set$"):
        core_build.chosen({VARIABLE: "zog"})


@pytest.mark.parametrize(
    "system, machine, tag, zig",
    [
        ("darwin", "arm64", "macosx_11_0_arm64", "aarch64-macos.11.0"),
        ("darwin", "x86_64", "macosx_10_13_x86_64", "x86_64-macos.11.0"),
        ("linux", "aarch64", "linux_aarch64", "aarch64-linux-"),
        ("linux", "x86_64", "linux_x86_64", "x86_64-linux-"),
    ],
)
def test_the_platform_of_a_machine(monkeypatch, system, machine, tag, zig):
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert core_build.this_machine().tag == tag
    assert core_build.this_machine(zig=True).zig.startswith(zig)


@pytest.mark.parametrize("system, machine", [("linux", "riscv64"), ("freebsd14", "amd64")])
def test_a_machine_without_c_code_is_an_error_of_one_line(monkeypatch, system, machine):
    """A wheel must not have a platform in its name that pip refuses there."""
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(BuildError, match=machine if machine == "riscv64" else system):
        core_build.this_machine()


def run_script(folder, **variables):
    """Runs build.py of a copy, as `make install` does."""
    script = folder / "build.py"
    script.write_bytes(Path(core_build.__file__).read_bytes())
    done = subprocess.run(
        [sys.executable, "-P", script], env={**os.environ, **variables}, capture_output=True, text=True
    )
    return done.returncode, done.stderr.splitlines()


def test_the_script_says_in_one_line_why_there_is_no_library(folder):
    no_compiler = {"CC": "no-such-compiler", VARIABLE: ""}
    status, (line,) = run_script(folder, **no_compiler)
    assert status == 1 and VARIABLE in line
    assert "compiler: not found" in line or "no C code" in line  # on a processor that has none
    assert run_script(folder, **no_compiler | {VARIABLE: "none"}) == (0, [])
    status, lines = run_script(folder, **no_compiler | {VARIABLE: "zog"})
    assert (status, len(lines)) == (2, 1)
    assert files(folder) == ["build.py", "encode.c", "processor.c"]


@pytest.mark.parametrize("value", ["zig", "zog"])
def test_a_build_of_the_package_requires_zig_if_the_variable_says_so(value, tmp_path):
    pytest.importorskip("setuptools", "77")
    # In a copy, since setuptools writes into the folder of the package.
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "bothways/__init__.py", "bothways/core/build.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tools/wheel", tmp_path / "tools/wheel", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"{HOOK}print(backend.get_requires_for_build_editable(), backend._compiler_package())"
    environment = {**os.environ, VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    if value == "zig":
        assert core_build.ZIG_REQUIREMENT in done.stdout and done.returncode == 0
    else:  # a line and no stack
        assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("BOTHWAYS_BUILD ('zog') must be")
        assert "Traceback" not in done.stderr
