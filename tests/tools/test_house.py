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
    counts = measured.counts
    assert (counts["lines"], counts["files"], counts["doors"]) == (23, 6, 2)
    assert measured.faults() == []


def test_tokens_comments_and_blank_lines_are_those_of_a_count_by_hand(package):
    (package / "a" / "two.py").unlink()
    (package / "b" / "three.py").write_text("z = 1\n")
    counts = house.measure(package).counts
    # def first ( ) : return 1 / class C : def second ( self ) : return ( 1 , 2 , ) / z = 1 / x = 1
    assert counts["code tokens"] == 7 + 16 + 3 + 3
    assert counts["tokens a logical line"] == round(29 / 10, 2)
    assert counts["comments a thousand lines"] == round(1000 / 18, 1)
    assert counts["blank lines in functions, %"] == round(100 / 7, 1)  # of return 1, and of six lines of second


def test_tokens_and_functions_of_c_are_those_of_a_count_by_hand(package):
    assert "tokens of C" not in house.measure(package).counts
    (package / "a" / "sum.c").write_text(
        "// Not counted: f() {\n"
        "typedef struct { int x; } Pair;  /* nor\nthis */\n"
        "static int sum(const Pair *p) { if (p->x >= 1) { return p->x; } return 0; }\n"
    )
    counts = house.measure(package).counts
    # typedef ... Pair ; / static ... { / if ( p -> x >= 1 ) { return p -> x ; } / return 0 ; }
    assert (counts["tokens of C"], counts["functions of C"]) == (9 + 10 + 15 + 4, 1)


@pytest.mark.parametrize(
    ("line", "is_packed"),
    [
        ("a, b = c, d", True),
        ("a, b = b, a", False),
        ("a, b = f()", False),
        ("a = b = c", False),
        ("x.a, y = 1, 2", True),
    ],
)
def test_an_assignment_of_unrelated_values_is_counted_and_a_swap_is_not(package, line, is_packed):
    (package / "top.py").write_text(f"{line}\n")
    assert house.measure(package).counts["assignments of unrelated values on one line"] == is_packed


@pytest.mark.parametrize(
    ("arguments", "is_wide"), [("1, 2, 3, 4, 5", False), ("1, 2, 3, 4, 5, 6", True), ("*a, b=1", False)]
)
def test_calls_with_many_positional_arguments_are_counted(package, arguments, is_wide):
    (package / "top.py").write_text(f"f({arguments})\n")
    assert house.measure(package).counts["calls with 6 or more positional arguments"] == is_wide


def test_doors_that_use_each_other_are_a_fault_even_if_their_files_do_not(package):
    (package / "a" / "one.py").write_text("from pack.b.three import z\n")
    (package / "b" / "three.py").write_text("z = 1\n")
    (package / "b" / "four.py").write_text("def f():\n    from pack.a import two\n")
    measured = house.measure(package)
    assert measured.circle == [] and {*measured.door_circle} == {"a", "b"}
    assert len(measured.faults()) == 1


def test_a_use_in_types_alone_makes_no_circle_of_doors(package):
    (package / "b" / "three.py").write_text("from pack.a import one\nz = 1\n")
    assert house.measure(package).faults() == []  # a/two imports b/three for type checking


def test_a_circle_is_found_wherever_the_import_is(package):
    (package / "a" / "two.py").write_text("def g():\n    from pack.b.three import z\n")
    measured = house.measure(package)
    assert {*measured.circle} == {"a/two.py", "b/three.py"}
    assert len(measured.faults()) == 2  # of files, and of their doors


@pytest.mark.parametrize(("statements", "is_long"), [(59, False), (60, True)])
def test_a_function_of_more_than_sixty_logical_lines_is_named(package, statements, is_long):
    (package / "top.py").write_text("def long():\n" + "    x = 1\n\n" * statements)
    measured = house.measure(package)
    assert measured.long_functions == ({"top.py: long": 61} if is_long else {})
    assert len(measured.faults()) == is_long


@pytest.mark.soak
def test_the_package_has_no_circle_and_no_long_function():
    """`make check` says so too."""
    assert house.measure(house.PACKAGE).faults() == []


def test_options_are_printed_by_verb(package, monkeypatch, capsys):
    measured = house.measure(package)
    monkeypatch.setattr(house, "measure", lambda package: measured)
    house.main([])
    printed = capsys.readouterr().out
    for verb, names in house.options_by_verb().items():
        assert f"{verb} {len(names)}" in printed


def test_a_fault_is_an_exit_status(package):
    (package / "top.py").write_text("def long():\n" + "    x = 1\n" * 60)
    with pytest.raises(SystemExit, match=r"^top.py: long has 61 logical lines"):
        house.main([str(package)])
