"""Glob patterns: as git reads them, and in steps that grow with the lengths of pattern and path alone."""

import random
import shutil
import subprocess

import pytest

from bothways.base.errors import InputError
from bothways.text.rows import globs
from bothways.text.rows.globs import LONGEST, Chooser, parse_pattern, parse_patterns, split_path
from tests.steps import count_lines

PATHS = ["a", "b/", "b/a", "b/c/", "b/c/a", "b/c/d.md", "ab", "a b", "a]b", "a*b", "x.md", "b/x.md", ".h", "b/.h"]
PATHS += ["aa.b.md"]


def matched(pattern):
    return [path for path in PATHS if parse_pattern(pattern).matches(*split_path(path))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a", "b/a", "b/c/a"]),
        ("/a", ["a"]),
        ("b/", ["b/"]),
        ("b/a", ["b/a"]),
        ("c/a", []),
        ("**/c/a", ["b/c/a"]),
        ("b/**", ["b/a", "b/c/", "b/c/a", "b/c/d.md", "b/x.md", "b/.h"]),
        ("b/**/a", ["b/a", "b/c/a"]),
        ("/**/a", ["a", "b/a", "b/c/a"]),
        ("*.md", ["b/c/d.md", "x.md", "b/x.md", "aa.b.md"]),
        ("/*.md", ["x.md", "aa.b.md"]),
        ("b/*", ["b/a", "b/c/", "b/x.md", "b/.h"]),
        ("a?b", ["a b", "a]b", "a*b"]),
        ("a[]]b", ["a]b"]),
        ("a[! \\]]b", ["a*b"]),
        ("a[[:space:]]b", ["a b"]),
        ("a\\*b", ["a*b"]),
        ("[a-b]", ["a", "b/", "b/a", "b/c/a"]),
        ("[^b-z]", ["a", "b/a", "b/c/a"]),
        ("a*b*", ["ab", "a b", "a]b", "a*b", "aa.b.md"]),
        ("*a*.*.md", ["aa.b.md"]),
        (".*", [".h", "b/.h"]),
        ("a\\ b  ", ["a b"]),
        ("*/", ["b/", "b/c/"]),
        ("**", PATHS),
    ],
)
def test_a_pattern_matches_what_git_says(pattern, expected):
    assert matched(pattern) == expected


@pytest.mark.parametrize("line", ["", "   ", "# a note", "/"])
def test_a_line_without_a_pattern_is_none(line):
    assert parse_pattern(line) is None


@pytest.mark.parametrize("line", ["!", "//", "a\\", "[a", "[[:none:]]", "[a-", "a" * (LONGEST + 1)])
def test_what_is_not_a_pattern_is_refused(line):
    with pytest.raises(InputError):
        parse_pattern(line)
    with pytest.raises(InputError, match="not a pattern"):
        Chooser.of([line])


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
@pytest.mark.parametrize("seed", range(3))
def test_random_patterns_ignore_what_git_ignores(seed, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    draw = random.Random(seed)
    for _ in range(40):
        lines = [draw_pattern(draw) for _ in range(draw.randint(1, 4))]
        files = {"/".join(draw_name(draw) for _ in range(draw.randint(1, 4))) for _ in range(30)}
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
        # Without the files: git then takes a path for that of a file, and those before it for folders.
        asked = subprocess.run(
            ["git", "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(files), capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert {path for path in files if is_ignored(path, lines)} == {*filter(None, asked.stdout.split("\0"))}, lines


def is_ignored(path, lines):
    """As a walk through the folders finds it."""
    patterns, names = parsed(lines), path.split("/")
    for end in range(1, len(names) + 1):
        matching = [one for one in patterns if one.matches(names[:end], end < len(names))]
        if matching and not matching[-1].is_negated:
            return True
    return False


def parsed(lines):
    """A .gitignore's patterns; what is none is left out."""
    patterns = []
    for line in lines:
        try:
            patterns += parse_patterns([line])
        except InputError:
            continue
    return patterns


def draw_name(draw):
    name = "".join(draw.choice("ab.]-c") for _ in range(draw.randint(1, 3)))
    return name if name.strip(".") else f"{name}a"  # "." and ".." are other folders


def draw_pattern(draw):
    """Two stars are a whole name only: what git does with others depends on what is in front of them."""
    parts = ["a", "b", "*", "?", "[a-b]", "[!a]", "[]-]", "\\a", ".", "c"]
    names = [
        draw.choice(["**", *["".join(draw.choice(parts) for _ in range(draw.randint(1, 3))).replace("**", "*")] * 3])
        for _ in range(draw.randint(1, 4))
    ]
    return draw.choice(["", "", "", "!", "/"]) + "/".join(names) + draw.choice(["", "", "/", "  "])


# --- steps ------------------------------------------------------------------------------------------------------------


def steps_of(pattern, path):
    chooser = Chooser.of([pattern])
    return count_lines(globs, lambda: chooser.chooses(path))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (lambda n: "*a" * n + "b", lambda n: "a" * 2 * n),
        (lambda n: "*?" * n + "b", lambda n: "a" * 2 * n),
        (lambda n: "*[a-c]" * n + "b", lambda n: "a" * 2 * n),
        (lambda n: "*" * n + "b", lambda n: "a" * 2 * n),
        (lambda n: "**/a/" * n + "b", lambda n: "a/" * 2 * n + "c"),
        (lambda n: "**/*a*/" * n + "b", lambda n: "aa/" * 2 * n + "c"),
        (lambda n: "**/" * n + "b", lambda n: "a/" * 2 * n + "c"),
        (lambda n: "a" * n + "*" + "?" * n, lambda n: "a" * 3 * n),
    ],
)  # fmt: skip
def test_steps_grow_with_the_lengths_and_not_with_a_power_of_the_stars(pattern, path):
    small, large = (steps_of(pattern(n), path(n)) for n in (8, 32))
    # Four times the pattern and four times the path, for each folder of a path: with a path in a folder, 64 times.
    assert 0 < large <= 64 * small < 10**7
    assert large < 4 * 10**5
