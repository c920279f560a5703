"""A verb: a text in capital letters."""

from dataclasses import dataclass

from bothways.cli.verb import Verb
from bothways.settings.base import Checked, Printed, settings
from bothways.settings.fields import argument, option


@settings
class Shout(Checked, Printed):
    """Print a text in capital letters."""

    text: str = argument("TEXT")
    """The text."""
    times: int = option("task", default=1, least=1)
    """How often it is printed."""


@dataclass(frozen=True)
class Shouted:
    text: str
    times: int

    def to_json(self):
        return {**vars(self)}

    def lines(self):
        return [self.text] * self.times


def run(settings):
    return Shouted(settings.text.upper(), settings.times)


VERB = Verb("acme.shout:Shout", "acme.shout:run", "print a text in capital letters", example='"fire" --times 2')
