"""The shape of the package: what is measured, and that the package has no circle and no long function."""

import pytest

from tools import house

SECOND = '''class C:
    def second(self):
        """A docstring,

        which does not count.
        """
        # Neither does a comment.
        return (
            1,

            2,
        )
'''


@pytest.fixture
def package(tmp_path):
    files = {
        "a/__init__.py": "",
        "a/one.py": f"def first():\n    return 1\n\n\n{SECOND}",
        "a/two.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.b.three import z\n",
        "b/three.py": "def f():\n    from pack.a import two\nz = 1\n",
        "top.py": "",
        "sample/data.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / "pack" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / name).write_text(text)
    return tmp_path / "pack"


def test_blank_lines_comments_docstrings_and_lone_brackets_are_no_logical_lines(package):
    measured = house.measure(package)
    assert measured.longest_function == 4  # def, return, 1, 2
    assert (measured.lines, measured.files, measured.doors) == (23, 6, 2)
    assert measured.faults() == []


def test_a_circle_is_found_wherever_the_import_is(package):
    (package / "a" / "two.py").write_text("def g():\n    from pack.b.three import z\n")
    measured = house.measure(package)
    assert {*measured.circle} == {"a/two.py", "b/three.py"}
    assert len(measured.faults()) == 1


@pytest.mark.parametrize(("statements", "is_long"), [(59, False), (60, True)])
def test_a_function_of_more_than_sixty_logical_lines_is_named(package, statements, is_long):
    (package / "top.py").write_text("def long():\n" + "    x = 1\n\n" * statements)
    measured = house.measure(package)
    assert measured.long_functions == ({"top.py: long": 61} if is_long else {})
    assert len(measured.faults()) == is_long


@pytest.fixture(scope="module")
def measured():
    """The package, which takes seconds to read."""
    return house.measure(house.PACKAGE)


def test_the_package_has_no_circle_and_no_long_function(measured):
    assert measured.faults() == []


def test_options_are_printed_by_verb(measured, monkeypatch, capsys):
    monkeypatch.setattr(house, "measure", lambda package: measured)
    house.main()
    printed = capsys.readouterr().out
    for verb, names in house.options_by_verb().items():
        assert f"{verb} {len(names)}" in printed


def test_a_fault_is_an_exit_status(monkeypatch, package):
    (package / "top.py").write_text("def long():\n" + "    x = 1\n" * 60)
    monkeypatch.setattr(house, "PACKAGE", package)
    with pytest.raises(SystemExit, match=r"^top.py: long has 61 logical lines"):
        house.main()
