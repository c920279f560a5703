"""Glob patterns as in .gitignore files, matched without backtracking: the steps grow with the length of a pattern times
the length of a path, whatever the number of stars.

A star takes as few characters as it can: whatever follows it only has less room later, so the first place that fits is
as good as any (the same holds for `**` and folders). gitignore(5) defines the patterns.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bothways.base.errors import InputError, flag, shorten

LONGEST = 1000  # characters of a pattern
STAR = "*"

# The POSIX classes of characters, which are ASCII in git too.
CLASSES: dict[str, Callable[[str], bool]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda one: one in " \t",
    "cntrl": lambda one: one < " " or one == "\x7f",
    "digit": str.isdigit,
    "graph": lambda one: "!" <= one <= "~",
    "lower": str.islower,
    "print": lambda one: " " <= one <= "~",
    "punct": lambda one: "!" <= one <= "~" and not one.isalnum(),
    "space": str.isspace,
    "upper": str.isupper,
    "xdigit": lambda one: one in "0123456789abcdefABCDEF",
}


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One character: of these ranges and classes, or of none of them."""

    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    is_negated: bool = False

    def holds(self, character: str) -> bool:
        found = any(low <= character <= high for low, high in self.ranges) or (
            character.isascii() and any(CLASSES[name](character) for name in self.classes)
        )
        return found != self.is_negated


ANY = CharacterSet(is_negated=True)
Element = str | CharacterSet  # of one character
Piece = str | tuple[Element, ...]  # between two stars; it matches text of its own length
Segment = tuple[Piece, ...]  # a name of a file or folder


@dataclass(frozen=True, slots=True)
class GlobPattern:
    """A line of a .gitignore file.

    runs: the names in a row between one `**` and the next. is_negated: with `!` in front. for_folders: with "/" at the
    end. name: the only one, if it is meant at any depth, as in most patterns.
    """

    runs: tuple[tuple[Segment, ...], ...]
    is_negated: bool = False
    for_folders: bool = False
    name: Segment | None = None

    def matches(self, names: Sequence[str], is_folder: bool, *, least: int = 1) -> bool:
        """Whether the path of these names is meant, by itself. least: names that a `**` at the end stands for."""
        if self.for_folders and not is_folder:
            return False
        if self.name is not None:
            return bool(names) and _matches_name(self.name, names[-1])

        first, *others = self.runs
        if not others:
            return len(names) == len(first) and _run_at(first, names, 0)

        if len(names) < len(first) or not _run_at(first, names, 0):
            return False

        place = len(first)
        *middle, last = others
        for run in middle:
            place = _find_run(run, names, place)
            if place < 0:
                return False
            place += len(run)

        if not last:
            return len(names) >= place + least
        end = len(names) - len(last)
        return end >= place and _run_at(last, names, end)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> "GlobPattern":
        """The pattern of a whole path, by its names."""
        return cls(_runs(names))

    def chooses(self, names: Sequence[str], is_folder: bool) -> bool:
        """Whether the path is meant, or a folder that it is in."""
        return self.matches(names, is_folder) or any(
            self.matches(names[:end], is_folder=True) for end in range(1, len(names))
        )


@dataclass(frozen=True)
class Chooser:
    """The files that patterns of a user choose, as in `find_documents`."""

    patterns: Sequence[GlobPattern]

    @classmethod
    def of(cls, glob: Sequence[str]) -> "Chooser":
        """InputError if one is not a pattern."""
        try:
            return cls(parse_patterns(glob))
        except InputError as error:
            shown = shorten(repr(" ".join(glob)), 100)
            raise InputError(f"{flag('glob')} {shown}: not a pattern ({error}); write it like *.md") from None

    @property
    def needs_match(self) -> bool:
        """Whether only files are chosen that a pattern matches. Without one that is not negated, all the others are."""
        return any(not pattern.is_negated for pattern in self.patterns)

    def chooses(self, relative: str) -> bool:
        """By the last pattern that matches a path, or a folder that it is in. A folder without a match is chosen, as it
        may hold files that are."""
        names, is_folder = split_path(relative)
        matching = (pattern for pattern in reversed(self.patterns) if pattern.chooses(names, is_folder))
        last = next(matching, None)
        return (is_folder or not self.needs_match) if last is None else not last.is_negated


def split_path(path: str) -> tuple[list[str], bool]:
    """The names of a path, and whether it is the path of a folder, which ends in "/"."""
    names = path.split("/")
    if names[-1]:
        return names, False
    return names[:-1], True


def parse_patterns(lines: Iterable[str]) -> list[GlobPattern]:
    """The patterns of some lines; blank lines and comments are none. InputError for a line that is not a pattern."""
    parsed = [parse_pattern(line) for line in lines]
    return [pattern for pattern in parsed if pattern is not None]


def parse_pattern(line: str) -> GlobPattern | None:
    """The pattern of a line. None: a comment or nothing. InputError if it is not a pattern."""
    text = _without_blanks(line)
    if not text or text.startswith("#") or text == "/":
        return None

    if len(text) > LONGEST:
        raise InputError(f"a pattern of {len(text):,} characters, of {LONGEST:,} at most")

    is_negated = text.startswith("!")
    text = text[is_negated:]
    for_folders = text.endswith("/")
    names = text.removesuffix("/").split("/")

    if not any(names):
        raise InputError("nothing to match")

    if len(names) == 1:
        names = ["**", *names]  # at any depth
    elif not names[0]:
        del names[0]
    if names == ["**", "**"]:  # a file of any name, at any depth
        names = ["**", STAR]

    runs = _runs(names)
    is_single = len(names) == 2 and not runs[0] and len(runs[1]) == 1
    return GlobPattern(
        runs=runs,
        is_negated=is_negated,
        for_folders=for_folders,
        name=runs[1][0] if is_single else None,
    )


def _runs(names: Sequence[str]) -> tuple[tuple[Segment, ...], ...]:
    """The names of a pattern in a row between one `**` and the next."""
    runs: list[list[Segment]] = [[]]
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(parse_segment(name))
    return tuple(map(tuple, runs))


def _without_blanks(line: str) -> str:
    """A line without the blanks at its end, unless a backslash is before them."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return line[: len(text) + 1] if backslashes % 2 and len(text) < len(line) else text


def parse_segment(name: str) -> Segment:
    """The pieces of a name between its stars."""
    pieces: list[list[Element]] = [[]]
    place = 0
    while place < len(name):
        character = name[place]
        if character == STAR:
            pieces.append([])
        elif character == "?":
            pieces[-1].append(ANY)
        elif character == "[":
            held, place = _parse_set(name, place)
            pieces[-1].append(held)
        elif character == "\\":
            place += 1
            if place == len(name):
                raise InputError("a backslash at the end, which no character follows")
            pieces[-1].append(name[place])
        else:
            pieces[-1].append(character)
        place += 1
    return tuple(_as_piece(piece) for piece in pieces)


def _as_piece(elements: Sequence[Element]) -> Piece:
    plain = [element for element in elements if isinstance(element, str)]
    return "".join(plain) if len(plain) == len(elements) else tuple(elements)


def _parse_set(name: str, place: int) -> tuple[CharacterSet, int]:
    """The set that begins with "[" at a place, and the place of its end."""
    ranges: list[tuple[str, str]] = []
    classes: list[str] = []
    place += 1
    is_negated = name[place : place + 1] in ("!", "^")
    place += is_negated
    first = place

    while name[place : place + 1] != "]" or place == first:
        if name.startswith("[:", place):
            end = name.find(":]", place)
            kind = name[place + 2 : end] if end > 0 else ""
            if kind not in CLASSES:
                raise InputError(f"[:{kind}:] is no class of characters; there are {', '.join(CLASSES)}")
            classes.append(kind)
            place = end + 2
            continue

        low, place = _set_member(name, place)
        high = low
        if name[place : place + 1] == "-" and name[place + 1 : place + 2] not in ("]", ""):
            high, place = _set_member(name, place + 1)
        ranges.append((low, high))
    return CharacterSet(tuple(ranges), tuple(classes), is_negated), place


def _set_member(name: str, place: int) -> tuple[str, int]:
    """The character of a set at a place, and the place after it."""
    place += name[place : place + 1] == "\\"
    if place >= len(name):
        raise InputError("a bracket that is not closed")
    return name[place], place + 1


# --- matching ---------------------------------------------------------------------------------------------------------


def _run_at(run: Sequence[Segment], names: Sequence[str], place: int) -> bool:
    """Whether the names from a place on begin with a run."""
    return all(_matches_name(segment, names[place + index]) for index, segment in enumerate(run))


def _find_run(run: Sequence[Segment], names: Sequence[str], place: int) -> int:
    """The first place of a run, from a place on; -1 if there is none."""
    ends = range(place, len(names) - len(run) + 1)
    return next((start for start in ends if _run_at(run, names, start)), -1)


def _matches_name(segment: Segment, name: str) -> bool:
    first = segment[0]
    if len(segment) == 1 and isinstance(first, str):
        return name == first
    if len(segment) == 2 and isinstance(first, str) and isinstance(last := segment[1], str):
        return len(name) >= len(first) + len(last) and name.startswith(first) and name.endswith(last)
    others = segment[1:]
    if not others:
        return len(name) == len(first) and _piece_at(first, name, 0)
    if not _piece_at(first, name, 0):
        return False
    place = len(first)
    *middle, last = others
    for piece in middle:
        place = _find_piece(piece, name, place)
        if place < 0:
            return False
        place += len(piece)
    end = len(name) - len(last)
    return end >= place and _piece_at(last, name, end)


def _piece_at(piece: Piece, name: str, place: int) -> bool:
    if isinstance(piece, str):
        return name.startswith(piece, place)
    return len(name) - place >= len(piece) and all(
        name[place + index] == element if isinstance(element, str) else element.holds(name[place + index])
        for index, element in enumerate(piece)
    )


def _find_piece(piece: Piece, name: str, place: int) -> int:
    if isinstance(piece, str):
        return name.find(piece, place)
    ends = range(place, len(name) - len(piece) + 1)
    return next((start for start in ends if _piece_at(piece, name, start)), -1)
