"""A verb of the command line: its settings, its function, and its help."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from bothways.base.errors import packages_named
from bothways.base.paths import with_copies
from bothways.base.progress import working
from bothways.base.registry import load_name

if TYPE_CHECKING:
    from bothways.tasks import TaskEntry


@dataclass(frozen=True)
class Verb:
    """A verb of the command line. Modules are imported when it runs, so that --help is fast.

    settings: "module:Class" of its settings, such as "bothways.settings.predict:Predict"
    function: "module:function" that takes settings and returns a Result, or None if it prints while it runs
    help: its line in `bothways --help`
    trains: whether `bothways.train` accepts the settings
    waits: whether it runs until it is stopped, so that elapsed time is not progress
    example: arguments, for --help
    words: other words that people type for it
    """

    settings: str
    function: str
    help: str
    trains: bool = False
    waits: bool = False
    example: str = ""
    words: str = ""

    @property
    def settings_class(self) -> type[Any]:
        loaded: type[Any] = load_name(self.settings)
        return loaded

    def load(self, name: str) -> Callable[..., Any]:
        """Import the function. name: of the verb, for messages."""
        with packages_named(name):
            function: Callable[..., Any] = load_name(self.function)
        named = wraps(function)(packages_named(name)(function))
        if self.waits:
            return named
        return wraps(function)(working(name)(with_copies(named)))


def task_verb(task: "TaskEntry") -> Verb:
    """The verb that fine-tunes a model for a task."""
    return Verb(
        task.settings,
        task.run,
        task.help,
        trains=True,
        example=task.example,
    )
