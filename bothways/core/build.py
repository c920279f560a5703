"""Compile the C sources of this folder to one library, whose name says from which sources it was made.

The build of the package loads this file by its path, before the package is installed: it imports the standard library
alone. After a change of the C code, `python bothways/core/build.py` compiles again. At each start of a program the
library is found by the name that is made here: what only compiling needs is imported where it is used.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "BOTHWAYS_BUILD"  # what compiles: empty for a compiler of the machine, or one of:
ZIG = "zig"
NONE = "none"
ZIG_REQUIREMENT = "ziglang>=0.17.1"  # the version that all targets were compiled with

SUFFIXES = {  # of the library, by the system
    "linux": ".so.1",  # a file that ends in .so would be an extension module, which tools import
    "macos": ".dylib",
    "windows": ".dll",
}
COMMON_FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fvisibility=hidden", "-g0")
COMPILERS = ("cc", "gcc", "clang")
LONGEST_REASON = 200  # characters of a compiler's message
COMPILE_SECONDS = 900  # of one call, which only a compiler that hangs reaches: the first of zig takes three minutes
# The oldest system that a library of this machine's compiler is for, and that of the targets of zig.
MACOS = {
    "aarch64": "11.0",
    "x86_64": "10.13",
}
MACOS_OF_ZIG = "11.0"

# The flags of each instruction set. A compiler that does not know one of a set's leaves the set out.
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
AVX512_BF16 = (*AVX512, "-mavx512vnni", "-mavx512bf16")
AMX = (*AVX512_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")
INSTRUCTION_SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx2": AVX2,
        "avx512": AVX512,
        "avx512_bf16": AVX512_BF16,
        "amx": AMX,
    },
    "aarch64": {
        "neon": (),
    },
}

# A compiler works if it makes a library of this, for the processor of the target.
TRIAL = """
#include <math.h>
#include <pthread.h>
#if !defined(__{architecture}__)
#error "compiles for another processor"
#endif
int trial(void) {{ return 0; }}
"""


class BuildError(Exception):
    """The library cannot be built. The message is one line."""


@dataclass(frozen=True)
class Target:
    """A platform that the library is compiled for.

    architecture: key of INSTRUCTION_SETS.
    system: "linux", "macos" or "windows".
    tag: the platform in the name of a wheel, such as "manylinux_2_17_x86_64".
    zig: name of the target for zig; "" for a compiler of the machine.
    """

    architecture: str
    system: str
    tag: str
    zig: str = ""

    @property
    def suffix(self) -> str:
        return SUFFIXES[self.system]


# What `python -m tools.wheels` makes, by the name of the target for zig.
TARGETS = {
    target.zig: target
    for target in (
        Target("x86_64", "linux", "manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
        Target("aarch64", "linux", "manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17"),
        Target("x86_64", "linux", "musllinux_1_2_x86_64", "x86_64-linux-musl"),
        Target("aarch64", "linux", "musllinux_1_2_aarch64", "aarch64-linux-musl"),
        Target("aarch64", "macos", "macosx_11_0_arm64", f"aarch64-macos.{MACOS_OF_ZIG}"),
        Target("x86_64", "macos", "macosx_11_0_x86_64", f"x86_64-macos.{MACOS_OF_ZIG}"),
        Target("x86_64", "windows", "win_amd64", "x86_64-windows-gnu"),
    )
}


def chosen(environment: Mapping[str, str] = os.environ) -> str:
    """What compiles, by the environment: "" for a compiler of the machine, ZIG, or NONE."""
    value = environment.get(VARIABLE, "")
    if value not in ("", ZIG, NONE):
        raise BuildError(f"{VARIABLE} ({value!r}) must be {ZIG!r}, {NONE!r} or not set")
    return value


def without_library(reason: str) -> str:
    """The line for a person whose installation has no library."""
    return (
        f"bothways: installed without its C library, so it computes more slowly: {reason}. "
        f"The way out: the wheel of your platform, or {VARIABLE}={ZIG} for the installation, which fetches a compiler."
    )


def this_system() -> str:
    """Key of SUFFIXES. Systems that are not in it, such as BSD, have the suffix of Linux."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def this_machine(*, zig: bool = False) -> Target:
    """The platform of this Python. zig: as one of the targets of zig."""
    import platform
    import sysconfig

    machine = platform.machine().lower()
    architecture = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if architecture not in INSTRUCTION_SETS or sys.maxsize < 2**32:
        raise BuildError(f"there is no C code for this processor ({machine}, {sys.maxsize.bit_length() + 1} bits)")
    if sys.platform not in ("linux", "darwin", "win32"):
        raise BuildError(f"there is no wheel with C code for this system ({sys.platform})")

    system = this_system()
    if not zig:
        tag = {
            "linux": f"linux_{machine}",
            "macos": f"macosx_{MACOS[architecture].replace('.', '_')}_{machine}",
            "windows": sysconfig.get_platform().replace("-", "_"),
        }[system]
        return Target(architecture, system, tag)

    c_library = "gnu.2.17" if platform.libc_ver()[0] == "glibc" else "musl"
    name = {
        "linux": f"{architecture}-linux-{c_library}",
        "macos": f"{architecture}-macos.{MACOS_OF_ZIG}",
        "windows": f"{architecture}-windows-gnu",
    }[system]
    if name not in TARGETS:
        raise BuildError(f"there is no target {name} among {', '.join(TARGETS)}")
    return TARGETS[name]


def sources(folder: Path) -> list[Path]:
    """The C files of the folder, sorted by name."""
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")], key=lambda path: path.name)


def digest(folder: Path) -> str:
    """12 hex digits that depend on the names and the bytes of the C files."""
    hashed = hashlib.sha256()
    for path in sources(folder):
        content = path.read_bytes()
        # With the lengths, so that no byte can pass from a name or a file to the next.
        hashed.update(f"{path.name}\n{len(content)}\n".encode())
        hashed.update(content)
    return hashed.hexdigest()[:12]


def library_name(folder: Path, suffix: str) -> str:
    """The name of the library that these sources make. suffix: one of SUFFIXES."""
    return f"libcore-{digest(folder)}{suffix}"


def build(
    folder: Path,
    target: Target | None = None,
    *,
    reuse: bool = True,
    on_left_out: Callable[[str], None] = lambda line: None,
) -> Path:
    """Compile the C files of a folder to one library in the folder, and delete the libraries of other sources.

    folder: has processor.c, which is compiled once, and encode.c, which is compiled once for each instruction set.
    target: one of TARGETS, which zig compiles; else this machine's, with its own compiler.
    reuse: a library of these sources which is there already is not compiled again.
    on_left_out: is called with a line for each instruction set that the compiler does not know.

    BuildError if there is no compiler, or it does not compile, or the folder cannot be written.
    """
    import tempfile

    target = target or this_machine()
    name = library_name(folder, target.suffix)
    library = folder / name

    if not (reuse and library.is_file()):
        compiler = zig_compiler(target) if target.zig else find_compiler(target)
        try:
            with tempfile.TemporaryDirectory(prefix="bothways-core-") as temporary:
                compiled = Path(temporary, name)
                _compile(folder, compiled, compiler, target, on_left_out)
                _move(compiled, library)
        except OSError as error:
            raise BuildError(f"{error.filename or folder}: {error.strerror or error}") from error

    _delete_others(folder, name)
    return library


def find_compiler(target: Target | None = None) -> list[str]:
    """The command of a C compiler of this machine that works: that of the variable CC, else cc, gcc or clang.

    BuildError with the reason of each that does not work.
    """
    import shlex
    import shutil

    target = target or this_machine()
    from_environment = shlex.split(os.environ.get("CC", ""))
    candidates = [from_environment] if from_environment else [[name] for name in COMPILERS]

    reasons = []
    for name, *arguments in candidates:
        path = shutil.which(name)
        if path is None:
            reasons.append(f"{name}: not found")
            continue
        reason = _try([path, *arguments], target)
        if not reason:
            return [path, *arguments]
        reasons.append(f"{name}: {reason}")
    raise BuildError(f"no C compiler works ({'; '.join(reasons)})")


def zig_compiler(target: Target) -> list[str]:
    """The command of zig's C compiler, which the package ziglang brings. Without a target it would use all that this
    processor can do, also in code that other processors run."""
    from importlib.util import find_spec

    if find_spec("ziglang") is None:
        raise BuildError(f"zig is not installed (python -m pip install '{ZIG_REQUIREMENT}')")
    return [sys.executable, "-m", "ziglang", "cc", "-target", target.zig]


def _try(compiler: list[str], target: Target) -> str:
    """Why a compiler does not work; "" if it does."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="bothways-core-") as temporary:
        source = Path(temporary, "trial.c")
        source.write_text(TRIAL.format(architecture=target.architecture), encoding="ascii")
        flags = [*_compile_flags(target), *_link_flags(target, "trial")]
        return _run([*compiler, *flags, source.name, "-o", "trial.so", *_libraries(target)], source.parent)


def _compile(
    folder: Path,
    library: Path,
    compiler: list[str],
    target: Target,
    on_left_out: Callable[[str], None],
) -> None:
    """Compile the objects beside the library, then link them to it."""
    from concurrent.futures import ThreadPoolExecutor

    flags = [*compiler, *_compile_flags(target)]
    base = library.with_name("processor.o")
    if reason := _run([*flags, "-c", "processor.c", "-o", str(base)], folder):
        raise BuildError(f"processor.c does not compile: {reason}")

    sets = INSTRUCTION_SETS[target.architecture]
    objects = {name: library.with_name(f"encode-{name}.o") for name in sets}
    commands = [
        [*flags, *sets[name], f"-DISA={name}", "-c", "encode.c", "-o", str(path)] for name, path in objects.items()
    ]
    with ThreadPoolExecutor(2) as pool:
        reasons = dict(zip(objects, pool.map(lambda command: _run(command, folder), commands), strict=True))

    for name, reason in reasons.items():
        if reason:
            on_left_out(f"{name} is left out: {reason}")
    inputs = [str(path) for name, path in objects.items() if not reasons[name]]
    if not inputs:
        raise BuildError(f"encode.c does not compile: {next(iter(reasons.values()))}")

    command = [*compiler, *_link_flags(target, library.name), str(base), *inputs, "-o", str(library)]
    if reason := _run([*command, *_libraries(target)], folder):
        raise BuildError(f"the library cannot be linked: {reason}")


def _compile_flags(target: Target) -> Iterator[str]:
    yield from COMMON_FLAGS
    if target.system != "windows":  # where all code is position-independent
        yield "-fPIC"
    yield from _macos_flags(target)


def _link_flags(target: Target, name: str) -> Iterator[str]:
    """name: of the library, which macOS writes into it, with its folder unless it is given."""
    yield "-shared"
    if target.system == "macos":
        yield f"-Wl,-install_name,@rpath/{name}"
    else:
        yield "-s"
    if target.system == "windows":  # whose files have the time of the build, unless the linker leaves it out
        yield "-Wl,-Brepro" if target.zig else "-Wl,--no-insert-timestamp"
    yield from _macos_flags(target)


def _macos_flags(target: Target) -> Iterator[str]:
    """A Python for both processors has a compiler for both; the system's own version would be the oldest that runs."""
    if target.system == "macos" and not target.zig:
        yield from ("-arch", "arm64" if target.architecture == "aarch64" else "x86_64")
        yield f"-mmacosx-version-min={MACOS[target.architecture]}"


def _libraries(target: Target) -> list[str]:
    """After the objects: some linkers look only for what the files before them lack."""
    return [] if target.system == "macos" else ["-lpthread", "-lm"]


def _run(command: list[str], folder: Path) -> str:
    """Why a command fails, in one line; "" if it does not."""
    import subprocess

    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())[:LONGEST_REASON]
    if done.returncode == 0:
        return ""

    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return [*errors, *lines, f"exit status {done.returncode}"][0][:LONGEST_REASON]


def _move(compiled: Path, library: Path) -> None:
    """Copy into the folder, then rename: who loads the library meanwhile finds all of it or none."""
    import shutil
    import tempfile

    number, name = tempfile.mkstemp(prefix=".libcore-", dir=library.parent)
    os.close(number)
    temporary = Path(name)
    try:
        shutil.copyfile(compiled, temporary)
        temporary.chmod(0o644)
        os.replace(temporary, library)
    finally:
        temporary.unlink(missing_ok=True)


def _delete_others(folder: Path, name: str) -> None:
    """Delete the libraries of other sources. Windows keeps one that is in use; the next build deletes it."""
    digest_of_name = name.partition(".")[0]
    for path in folder.glob("libcore-*"):
        if path.name.partition(".")[0] != digest_of_name:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue


def main() -> int:
    """Build the library in this folder, if it is not there. Prints a line if that cannot be done."""
    try:
        compiler = chosen()
    except BuildError as error:
        _write_line(str(error))
        return 2
    if compiler == NONE:
        return 0

    try:
        build(Path(__file__).parent, this_machine(zig=True) if compiler == ZIG else None, on_left_out=_write_line)
    except BuildError as error:
        _write_line(without_library(str(error)))
        return 1
    return 0


def _write_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
