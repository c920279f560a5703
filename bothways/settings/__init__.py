"""Settings: a frozen dataclass per verb, which also defines the command-line options. No torch.

The classes are attributes of this package; a command imports only the module of its class.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways.settings.base import *  # noqa: F403
    from bothways.settings.deploy import *  # noqa: F403
    from bothways.settings.finetune import *  # noqa: F403
    from bothways.settings.predict import *  # noqa: F403
    from bothways.settings.pretrain import *  # noqa: F403
    from bothways.settings.search import *  # noqa: F403
    from bothways.settings.tools import *  # noqa: F403


def classes() -> Iterator[type[Any]]:
    """All classes of settings, module by module."""
    for module in iter_modules(import_module(__name__).__path__):
        loaded = import_module(f"bothways.settings.{module.name}")
        held = (value for value in vars(loaded).values() if isinstance(value, type))
        yield from (one for one in held if one.__module__ == loaded.__name__)


def __getattr__(name: str) -> Any:
    if name[:1].isupper() and (named := next((one for one in classes() if one.__name__ == name), None)):
        return named
    raise AttributeError(f"module 'bothways.settings' has no attribute {name!r}")
