"""A plugin of pytest: no test depends on another.

Each test has a place of its own: working directory, HOME, cache of Bothways, and an environment without variables of
Bothways or of the user's libraries. After each test, the process must be as it was before, or the test fails with one
line for each difference: environment, working directory, threads and processes, handlers of signals, loggers, random
state, settings of torch, and all that modules of the package hold (registries, defaults, caches).

Directories that a fixture of a module or session makes with `tmp_path_factory` are shared by tests, so they are
read-only: their files, with sizes and times, are compared after each test. `watch(directory)` adds another one.

Caches of values that can be computed again are listed in CACHES and excepted.
"""

import gc
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bothways.base.registry import Registry

ROOT = Path(__file__).parent.parent
PACKAGE = "bothways"

# Variables that tests read themselves, or that tests/conftest.py sets for all.
KEPT = {"BOTHWAYS_DATA", "BOTHWAYS_GPU_TESTS", "HF_HUB_OFFLINE"}
# Beginnings of variables that change what the package or a library does.
FOREIGN = ("BOTHWAYS_", "HF_", "HUGGINGFACE_", "XDG_", "AWS_", "GOOGLE_", "AZURE_", "RAY_", "TRANSFORMERS_")
FOREIGN_NAMES = {
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NO_COLOR",
    "RANK",
    "WORLD_SIZE",
}

# Names that hold values which can be computed again: a test may fill them, and no result depends on whether they are.
CACHES = {
    "bothways.core.library.find_core",
    "bothways.scale.object_storage._open_store",
    "bothways.base.device._blas",
    "bothways.base.device._threads",  # State compares the number that it comes to
    "bothways.base.device.measure_peak_flops",
    "bothways.base.device.processor_name",
    "bothways.base.errors.id_column",
    "bothways.base.registry.read_entry_points",
    "bothways.measure.metrics.intervals._draw_few",
    "bothways.model.disentangled._table_rows",
    "bothways.model.int8.fast_int8",
    "bothways.model.layout.varlen_options",
    "bothways.model.layout.window_mask",
    "bothways.search.spaces._encoder",
    "bothways.search.spaces._static",
    "bothways.text.retrieval.words._unicode_word",
    "bothways.text.retrieval.words.background_shares",
    "bothways.settings.options._bodies",
    "bothways.tasks.offsets.with_positions",
    "bothways.text.rows.text_encodings.has_ascii_newlines",
    "bothways.text.tokenizer.characters._class_by_char",
    "bothways.text.tokenizer.characters._lower_by_char",
    "bothways.text.tokenizer.characters._parts_by_char",
    "bothways.text.tokenizer.characters.unstripped_marks",
    "bothways.text.tokenizer.sentencepiece._message",
    "bothways.training.run_lock.machine",
}

# Threads and processes of libraries that serve all that comes after, by part of a name or command.
LIBRARY_THREADS = (
    "QueueFeederThread",  # of joblib's pool
    "ExecutorManagerThread",
    "tqdm_monitor",
    "process_request_thread",  # of the object storage that tests/cloud starts, one for each connection
)
LIBRARY_PROCESSES = ("joblib.externals.loky", "multiprocessing.resource_tracker", "multiprocessing.forkserver")
# Variables that libraries set for the process when they are imported or first used.
LIBRARY_VARIABLES = ("KMP_", "PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "TORCH_")
# The places of such caches, below the user's HOME.
LIBRARY_CACHES = {
    "CUDA_CACHE_PATH": ".nv/ComputeCache",
    "MPLCONFIGDIR": ".cache/matplotlib",
    "TRITON_CACHE_DIR": ".triton/cache",
}
# Libraries that draw from `random` when they are imported.
DRAWS_AT_IMPORT = {"rich", "sklearn"}
# What is written into the folder of the repository by tools, and not by tests.
TOOL_FOLDERS = {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build"}

GUARD = 60  # seconds that threads and processes which were told to end have for it; not a measure

_watched: dict[Path, dict[str, tuple[int, int]]] = {}
_unwatched: set[Path] = set()
_last_modules: list[Any] = []  # what the package's modules held after the last test, if no shared fixture came since
_being_set_up: list[pytest.FixtureDef[Any]] = []
_made: dict[pytest.FixtureDef[Any], list[Path]] = {}  # the directories of each shared fixture


# --- a place for each test --------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """What fixtures of modules and sessions see: a HOME and a cache that exist, are empty, and stay so."""
    shared = Path(tempfile.mkdtemp(prefix="bothways-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(shared, ignore_errors=True))
    for name in [*os.environ]:
        if name not in KEPT and (name.startswith(FOREIGN) or name in FOREIGN_NAMES):
            del os.environ[name]

    # Generators are seeded by this plugin.
    if hasattr(config.option, "randomly_reset_seed"):
        config.option.randomly_reset_seed = False

    # What libraries compile or list once for a machine, and read again.
    for name, path in LIBRARY_CACHES.items():
        os.environ.setdefault(name, str(Path.home() / path))

    home = shared / "home"
    cache = shared / "cache"
    for directory in (home, cache):
        directory.mkdir()
        watch(directory)
    os.environ["HOME"] = str(home)
    os.environ["BOTHWAYS_CACHE"] = str(cache)
    # As the command sets them (bothways/cli/main.py): tests call it in their own process.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    note_directories(pytest.TempPathFactory)


@pytest.fixture(autouse=True)
def own_place(request: pytest.FixtureRequest) -> Iterator[Path]:
    """HOME of the test, with the working directory `work`; afterwards the process must be as it was."""
    place = Path(tempfile.mkdtemp(prefix="bothways-test-"))
    (place / "work").mkdir()
    environment = dict(os.environ)
    directory = os.getcwd()
    os.environ["HOME"] = str(place)
    os.environ["BOTHWAYS_CACHE"] = str(place / "cache")
    os.chdir(place / "work")
    seed_generators(request.node)
    before = State(_last_modules[0] if _last_modules else None)

    yield place

    after = State()
    _last_modules[:] = [after.modules]
    changes = before.differences(after)
    changes += [f"{path} is shared and was changed: {what}" for path, what in changed_directories()]
    restore_environment(environment)
    os.chdir(directory)
    shutil.rmtree(place, ignore_errors=True)
    if changes:
        pytest.fail("the test leaves traces, which later tests see:\n" + "\n".join(changes), pytrace=False)


def restore_environment(before: dict[str, str]) -> None:
    """Set the variables that have changed, each alone: to clear all and set them again takes much longer."""
    now = dict(os.environ)
    for name in now.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if now.get(name) != value:
            os.environ[name] = value


# --- the state of the process -----------------------------------------------------------------------------------------


class State:
    """What a test must leave as it was. modules: what they hold, if it is known already."""

    def __init__(self, modules: "dict[str, Holdings] | None" = None) -> None:
        self.values = {
            "the working directory": os.getcwd(),
            "sys.path": [path for path in sys.path if "site-packages" not in path],  # imports of libraries extend it
            "sys.argv": tuple(sys.argv),
            "sys.excepthook": sys.excepthook,
            "threading.excepthook": threading.excepthook,
            "the files of the repository": frozenset(os.listdir(ROOT)) - TOOL_FOLDERS,
        }
        self.values |= {
            f"${name}": value for name, value in os.environ.items() if not name.startswith(LIBRARY_VARIABLES)
        }
        self.values |= {f"the handler of {number.name}": signal.getsignal(number) for number in SIGNALS}
        if device := sys.modules.get(f"{PACKAGE}.device"):
            self.values["the number of threads that compute"] = device.num_threads()
        self.values |= logging_state()
        self.values |= torch_state()
        self.modules = package_holdings() if modules is None else modules
        self.threads = set(threading.enumerate())
        self.processes = child_processes()

    def differences(self, after: "State") -> list[str]:
        """A line for each difference."""
        missing = "(nothing)"
        changes = [
            f"{name} is {shown(after.values.get(name, missing))}, and was {shown(self.values.get(name, missing))}"
            for name in sorted({*self.values, *after.values})
            if self.values.get(name, missing) != after.values.get(name, missing)
            and not (name.startswith(FIRST_SEEN) and name not in self.values)
        ]
        for name, holdings in after.modules.items():
            if name in self.modules and holdings is not self.modules[name]:
                changes += self.modules[name].differences(holdings)
        changes += [f"the thread {thread.name} goes on" for thread in left_threads(after.threads - self.threads)]
        changes += [f"the process {command} goes on" for command in left_processes(after.processes - self.processes)]
        return changes


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD]
# Values that appear when a test is the first to import a library.
FIRST_SEEN = ("torch", "the logger", "the number of threads")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def logging_state() -> dict[str, object]:
    """Level, handlers and propagation of the root's and the package's loggers."""
    loggers = {"root": logging.root, PACKAGE: logging.getLogger(PACKAGE)}
    return {
        f"the logger {name}": (logger.level, tuple(map(id, logger.handlers)), logger.propagate, logger.disabled)
        for name, logger in loggers.items()
        if name == "root" or f"{PACKAGE}.base.log" in sys.modules  # which adds its handler
    }


def torch_state() -> dict[str, object]:
    """Global settings of torch, if it has been imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {}
    return {
        "torch's number of threads": torch.get_num_threads(),
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": torch.get_default_device(),
        "torch's gradients": torch.is_grad_enabled(),
        "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch's precision of matrix products": torch.get_float32_matmul_precision(),
    }


def random_states() -> dict[str, object]:
    """The states of the global generators."""
    states: dict[str, object] = {"random": random.getstate()}
    if numpy_random := sys.modules.get("numpy.random"):
        _, keys, *rest = numpy_random.get_state()
        states["numpy.random"] = (keys.tobytes(), *rest)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    """A test has random numbers of its own, the same in each run, and leaves the generators alone."""
    seed_generators(pyfuncitem)
    before = random_states()
    imported = DRAWS_AT_IMPORT & sys.modules.keys()
    result = yield
    if "global_seed" in pyfuncitem.fixturenames or DRAWS_AT_IMPORT & sys.modules.keys() != imported:
        return result
    after = random_states()
    if changed := [name for name, state in before.items() if after.get(name, state) != state]:
        pytest.fail(
            f"the test leaves the global generators of {', '.join(changed)} in another state: use a generator of the "
            "test's own, or the fixture global_seed",
            pytrace=False,
        )
    return result


@pytest.fixture
def global_seed() -> None:
    """For a test that must draw from the global generators, since a library that it compares with does."""


def seed_generators(item: pytest.Item) -> None:
    """Seed the global generators by the name of the test. The seed of the run is that of the order alone."""
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        # torch.manual_seed notes a traceback for each kind of device, which takes a millisecond and more.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


# --- what the package's modules hold ----------------------------------------------------------------------------------


class Holdings:
    """The names of a module with their values, and copies of its containers and of those of its classes."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module.__name__
        self.values = vars(module).copy()
        self.containers: dict[str, Any] = {}
        self.caches: dict[str, Any] = {}
        for name, value in self.values.items():
            if name.startswith("__"):
                continue
            if type(value) in CONTAINERS:
                self.containers[name] = value
            elif isinstance(value, Registry):
                self.containers[name] = value.entries
            elif hasattr(value, "cache_info") and value.__module__ == self.module:
                self.caches[name] = value
            elif isinstance(value, type) and value.__module__ == self.module:
                self.containers |= {
                    f"{name}.{attribute}": held
                    for attribute, held in vars(value).items()
                    if type(held) in CONTAINERS and not attribute.startswith("_")
                }
        self.contents = {name: value.copy() for name, value in self.containers.items()}
        self.sizes = self.cache_sizes()

    def cache_sizes(self) -> dict[str, int]:
        return {name: function.cache_info().currsize for name, function in self.caches.items()}

    def is_now(self, module: ModuleType) -> bool:
        """Whether nothing has changed. This is called for each module after each test, so it has to be fast."""
        if not same_items(self.values, vars(module)):
            return False
        if self.containers:
            for name, held in self.containers.items():
                if not same_items(self.contents[name], held):
                    return False
        return not self.caches or self.sizes == self.cache_sizes()

    def differences(self, after: "Holdings") -> list[str]:
        changed = {
            name
            for name in {*self.values, *after.values}
            if self.values.get(name) is not after.values.get(name)
            # A submodule that is imported for the first time becomes a name of its package.
            and (name in self.values or f"{self.module}.{name}" not in sys.modules)
        }
        changed -= {name for name in changed if name.startswith("__")}
        changed |= {
            name
            for name in self.contents.keys() & after.contents.keys()
            if not same_items(self.contents[name], after.contents[name])
        }
        changed |= {name for name in self.sizes if self.sizes[name] != after.sizes.get(name)}
        names = [f"{self.module}.{name}" for name in sorted(changed)]
        return [f"{name} was changed" for name in names if name not in CACHES]


CONTAINERS = (dict, list, set)
MANY = 2000  # of a container with more items, a table, only their number is compared
_holdings: dict[str, Holdings] = {}


def package_holdings() -> dict[str, Holdings]:
    """What each module of the package holds, by its name."""
    modules = package_modules(len(sys.modules))
    for name in modules:
        module = sys.modules.get(name)
        known = _holdings.get(name)
        if module is not None and (known is None or not known.is_now(module)):
            _holdings[name] = Holdings(module)
    return {name: _holdings[name] for name in modules if name in _holdings}


@lru_cache(maxsize=1)
def package_modules(number: int) -> list[str]:
    """The names of the package's modules, as long as the number of all modules is the same."""
    return [name for name in sys.modules.copy() if name == PACKAGE or name.startswith(f"{PACKAGE}.")]


def same_items(one: Any, other: Any) -> bool:
    """Whether two containers of one type hold equal things. What cannot be compared is not the same."""
    if len(one) != len(other):
        return False
    try:
        return len(one) > MANY or bool(one == other)
    except Exception:  # of arrays, which have no single truth
        return False


# --- threads and processes --------------------------------------------------------------------------------------------


def left_threads(threads: set[threading.Thread]) -> list[threading.Thread]:
    """The threads that do not end."""
    left = [thread for thread in threads if not any(known in thread.name for known in LIBRARY_THREADS)]
    if any(thread.is_alive() for thread in left):
        gc.collect()  # a pool ends its threads when nothing refers to it
    end = time.monotonic() + GUARD
    for thread in left:
        thread.join(max(0.0, end - time.monotonic()))
    return [thread for thread in left if thread.is_alive()]


def child_processes() -> set[int]:
    """The ids of processes that this one has started, where the system lists them."""
    children: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            children.update(map(int, task.read_text().split()))
    return children


def left_processes(processes: set[int]) -> list[str]:
    """The commands of processes that do not end."""
    left = processes
    end = time.monotonic() + GUARD
    while left := {process for process in left if is_running(process) and not is_of_library(process)}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return sorted(map(command_of, left))


def is_running(process: int) -> bool:
    """False as well for one that has ended and is not waited for."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def is_of_library(process: int) -> bool:
    return any(known in command_of(process) for known in LIBRARY_PROCESSES)


def command_of(process: int) -> str:
    """The command of a process; "" in the moment in which it begins, and if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


# --- directories that tests share -------------------------------------------------------------------------------------


def watch(directory: Path) -> None:
    """From now on, a test that changes a file below the directory fails."""
    if directory not in _unwatched:
        _watched[directory] = digest(directory)


def unwatch(directory: Path) -> None:
    """For a directory in which a program of the tests keeps files of its own, such as a browser."""
    _unwatched.add(directory)
    _watched.pop(directory, None)


def digest(directory: Path) -> dict[str, tuple[int, int]]:
    """Each file below a directory with its size and time of change; folders too, without them."""
    found: dict[str, tuple[int, int]] = {}
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                found[entry.path] = (0, 0)
                found |= digest(Path(entry.path))
            else:
                stat = entry.stat(follow_symlinks=False)
                found[entry.path] = (stat.st_size, stat.st_mtime_ns)
    return found


def changed_directories() -> list[tuple[Path, str]]:
    """Watched directories that have changed, with their first difference; they are watched anew as they are."""
    changes = []
    for directory, before in [*_watched.items()]:
        after = digest(directory)
        if after != before:
            names = sorted({*before.items()} ^ {*after.items()})
            changes.append((directory, str(Path(names[0][0]).relative_to(directory))))
            _watched[directory] = after
    return changes


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
    """Directories that a shared fixture makes are watched as soon as it is ready. It may fill those of another one."""
    if fixturedef.scope != "function":
        _last_modules.clear()  # it may change them
    _being_set_up.append(fixturedef)
    try:
        return (yield)
    finally:
        _being_set_up.pop()
        if fixturedef.scope != "function":
            for directory in [*_watched, *_made.get(fixturedef, ())]:
                watch(directory)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any]) -> None:
    if fixturedef.scope != "function":
        _last_modules.clear()
    for directory in _made.pop(fixturedef, ()):
        _watched.pop(directory, None)


def note_directories(factory: type[pytest.TempPathFactory]) -> None:
    """Has a factory of directories note which shared fixture each directory is made for."""
    make = factory.mktemp

    def mktemp(self: pytest.TempPathFactory, basename: str, numbered: bool = True) -> Path:
        directory = make(self, basename, numbered)
        shared = [fixture for fixture in _being_set_up if fixture.scope != "function"]
        if shared:
            _made.setdefault(shared[0], []).append(directory)
        return directory

    factory.mktemp = mktemp  # type: ignore[method-assign]
