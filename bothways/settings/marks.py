"""Marks of tyro, which the command line reads; without tyro they mean nothing, and settings work from Python."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, create_mutex_group
else:
    try:
        from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg, create_mutex_group
    except ModuleNotFoundError:

        class Positional:
            def __class_getitem__(cls, held):
                return held

        def arg(**options):
            return None

        FlagCreatePairsOff, UseAppendAction, create_mutex_group = None, Positional, arg

__all__ = ["FlagCreatePairsOff", "Positional", "UseAppendAction", "arg", "create_mutex_group"]
