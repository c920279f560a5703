"""`bothways VERB --help`: options in groups, nothing lost, an example that parses at the end."""

import re
import shlex

import pytest

from bothways.cli import help as cli_help
from bothways.cli import main
from bothways.verbs import VERBS


@pytest.fixture
def shown(capsys, monkeypatch):
    """shown(verb) -> (tyro's help, ours), each as lines."""

    def show(verb):
        tyros = []
        arrange = cli_help.arrange
        with monkeypatch.context() as patched, pytest.raises(SystemExit):
            patched.setattr(cli_help, "arrange", lambda text, verb: tyros.append(text) or arrange(text, verb))
            main.main([*verb.split(), "--help"])
        return tyros[0].splitlines(), capsys.readouterr().out.splitlines()

    return show


def boxes(lines):
    """{title: lines} of the boxes."""
    title, by_title = None, {}
    for line in lines:
        if match := re.match("╭─ (.+?) ─", line):
            title = match[1]
            assert title not in by_title
        elif line.startswith("│"):
            by_title.setdefault(title, []).append(line)
    return by_title


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_in_groups_and_an_example_ends_the_help(verb, shown):
    original, ours = shown(verb)
    before, after = boxes(original), boxes(ours)
    assert sorted(line for box in after.values() for line in box) == sorted(
        line for box in before.values() for line in box
    )
    options = [line for line in before["options"] if line.startswith("│ -")]
    groups = [title for title in after if title in (*cli_help.GROUPS, cli_help.OTHER)]
    assert groups == sorted(groups, key=[*cli_help.GROUPS, cli_help.OTHER].index)
    assert (len(groups) > 2) == (len(options) > cli_help.FEW) == ("options" not in after)
    if groups:
        assert [line for line in after[cli_help.OTHER] if line.startswith("│ -")] == [
            line for line in options if "--help" in line
        ]
    assert len({len(line) for line in ours if line[:1] in "╭│╰" and line}) == 1
    example = ours[-1].removeprefix(f"example: bothways {verb} ")
    settings = main.parse(verb, shlex.split(example))
    assert type(settings) is VERBS[verb].settings_class and ours[-2] == ""


def test_each_flag_is_in_one_group():
    flags = " ".join(cli_help.GROUPS.values()).split()
    assert len(flags) == len({*flags}) and {*cli_help.EXAMPLES} == {*VERBS}


def test_colours_and_plain_characters_do_not_matter(shown):
    original, ours = shown("predict")
    colour = "\x1b[36;2m{}\x1b[0m".format
    coloured = [re.sub("[╭─╮│╰╯]+", lambda match: colour(match[0]), line) for line in original]
    arranged = cli_help.arrange("\n".join(coloured), "predict")
    assert re.sub(r"\x1b\[[0-9;]*m", "", arranged).splitlines() == ours and arranged.count("\x1b[0m") > 99
    ascii_help = " options \n -------- \n  --json\n"
    assert cli_help.arrange(ascii_help, "predict").startswith(ascii_help.rstrip("\n"))
