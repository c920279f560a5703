"""What is printed or logged for people is asserted only by tests of the wording, which say so by their name.

A line for people may be worded better at any time. So what a verb finds out is asserted through its result, through
`--json` or through the files that it writes, and where the wording itself is the promise (a warning, a hint, a help
page), the name of the test has one of WORDS.

Prose is captured output (`capsys`, `capfd`), records of logging (`caplog`) and the log of a run (`run.log`), read where
they are or by way of variables of the same test. What goes through `json.loads` is a value, and so is nothing at all.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
WORDS = {"print", "prints", "printed", "message", "messages", "warns", "warning", "logged", "help", "hint", "wording"}
WORDS |= {"line", "lines", "shown", "bar"}
LOGGED = {"text", "messages", "records", "record_tuples"}  # attributes of `caplog`
VALUES = {"json.loads", "len"}  # functions whose results are no prose
METHODS = {"startswith", "endswith", "count", "find", "index"}  # of a text, called with words to look for
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer"}  # of `re`
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class Follower(ast.NodeVisitor):
    """Follows prose through the variables of a function. compared: whether an assert compares it with words."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.compared = False

    def is_prose(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.names
            case ast.Call(func=ast.Attribute(attr="readouterr")):
                return True
            case ast.Call(func=function, args=arguments):
                is_map = isinstance(function, ast.Name) and function.id == "map" and arguments
                if ast.unparse(arguments[0] if is_map else function) in VALUES:
                    return False
                parts = [*arguments, *(keyword.value for keyword in node.keywords)]
                parts += [function.value] if isinstance(function, ast.Attribute) else []
                return any(map(self.is_prose, parts))
            case ast.Attribute(value=ast.Name(id="caplog"), attr=name):
                return name in LOGGED
            case ast.Attribute(value=value, attr="log"):
                return ast.unparse(value) != "bothways"  # whose module it is
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self.bind_loops(node)
                results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
                return any(map(self.is_prose, results))
        return any(map(self.is_prose, ast.iter_child_nodes(node)))

    def bind(self, target: ast.AST, value: ast.AST) -> None:
        """Note which names hold prose from here on."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, of_one in zip(target.elts, value.elts, strict=True):
                self.bind(one, of_one)
            return
        names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        self.names = self.names | names if self.is_prose(value) else self.names - names

    def bind_loops(self, node: Comprehension) -> None:
        for loop in node.generators:
            self.bind(loop.target, loop.iter)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.bind(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.bind(node.target, ast.BinOp(node.target, node.op, node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.bind(node.target, node.value)

    def visit_For(self, node: ast.For) -> None:
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.generic_visit(node)  # assigns what `:=` does
        for part in ast.walk(node.test):
            if isinstance(part, Comprehension):
                self.bind_loops(part)
        self.compared |= any(map(self.is_comparison, ast.walk(node.test)))

    def is_comparison(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                return any(map(self.is_prose, sides)) and any(map(has_words, sides))
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments) if name in METHODS:
                return self.is_prose(value) and any(map(has_words, arguments))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name), args=arguments) if name in SEARCHES:
                return any(map(self.is_prose, arguments))
        return False


def has_words(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, str | bytes) and part.value for part in ast.walk(node)
    )


def reads_prose(function: ast.FunctionDef) -> bool:
    follower = Follower()
    follower.visit(function)
    return follower.compared


def unnamed(code: str) -> list[str]:
    """The tests in a file that assert prose without saying so."""
    tests = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    return [
        test.name
        for test in tests
        if test.name.startswith("test_") and not WORDS & {*test.name.split("_")} and reads_prose(test)
    ]


def test_every_test_of_printed_or_logged_words_says_so_by_its_name():
    files = sorted(TESTS.rglob("test_*.py"))
    assert len(files) > 150
    assert [f"{file.relative_to(TESTS)}:{name}" for file in files for name in unnamed(file.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "body",
    [
        'assert "7 rows" in capsys.readouterr().out',
        'output = capfd.readouterr()\n    assert output.err.count("\\n") == 1',
        'out, err = capsys.readouterr()\n    assert err.startswith("warning: ")',
        'for line in capsys.readouterr().out.splitlines():\n        assert line.endswith(" rows")',
        'lines = capsys.readouterr().out.splitlines()\n    assert [line.split()[0] for line in lines] == ["7"]',
        'assert f"cut {number}" in caplog.text',
        'first, *_ = caplog.messages\n    assert first == "cut 1"',
        "assert any('cut' in record.getMessage() for record in caplog.records)",
        'assert re.search(r"[0-9]+ rows", run.log)',
        'text = (capsys.readouterr().out + "").lower()\n    assert not re.findall("row", text)',
        'if shown := capsys.readouterr().out:\n        assert b"row" in shown.encode()',
    ],
)
def test_a_test_that_compares_what_is_printed_or_logged_is_found(body):
    planted = f"def test_rows_are_counted(capsys, capfd, caplog, run, number):\n    {body}\n"
    assert unnamed(planted) == ["test_rows_are_counted"]
    assert unnamed(planted.replace("are_counted", "are_printed")) == []
    assert unnamed(planted.replace("are_counted", "are_lineless")) == ["test_rows_are_lineless"]  # words are whole


@pytest.mark.parametrize(
    "body",
    [
        'assert json.loads(capsys.readouterr().out)["label"] == "x"',
        'rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]\n    assert rows[0]["label"] == "x"',
        'first, second = map(json.loads, capsys.readouterr().out.splitlines())\n    assert first["label"] == "x"',
        'text = capsys.readouterr().out\n    text = json.loads(text)\n    assert text["label"] == "x"',
        'assert capsys.readouterr().out == "" and not caplog.messages',
        'assert len(caplog.messages) == 2 and status == "stopped"',
        'assert np.log(3) == pytest.approx(scores["x"].log())',
    ],
)
def test_a_test_of_values_or_of_silence_is_not_found(body):
    assert unnamed(f"def test_rows_are_counted(capsys, caplog, status, scores):\n    {body}\n") == []
