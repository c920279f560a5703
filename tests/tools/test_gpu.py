"""The GPU command: a dry run of its steps on the CPU, its time limits, its wheels, and its page."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.gpu import __main__ as command
from tools.gpu import page, steps

ROOT = Path(__file__).parent.parent.parent
FIGURES = json.loads((Path(__file__).parent / "gpu.json").read_text(encoding="utf-8"))
THERE = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux", "python_version": "3.12"}
THERE |= {"python_full_version": "3.12.3", "extra": ""}


@pytest.mark.slow
@pytest.mark.soak
def test_a_dry_run_writes_figures_and_a_page_that_it_prints(tmp_path):
    run = [sys.executable, "-m", "tools.gpu", "-o", str(tmp_path), "--small", "--steps", "machine", "correct"]
    done = subprocess.run(run, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert figures["small"] and figures["steps"]["machine"]["teraflops_float32"] > 0
    assert figures["steps"]["correct"]["passed"] > 0 == figures["steps"]["correct"]["failed"]
    written = (tmp_path / "gpu.md").read_text()
    assert written.startswith("A dry run with small sizes, which says nothing about speed.") and written in done.stdout
    assert not (tmp_path / "site").exists()  # nothing was missing
    insert = [sys.executable, "-m", "tools.gpu.page", str(tmp_path / "gpu.json"), str(tmp_path / "gpu.md")]
    refused = subprocess.run(insert, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 1 and "only a full run belongs on the page" in refused.stderr


def test_without_a_gpu_the_command_says_why(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: SimpleNamespace(returncode=0, stdout="no driver\n"))
    monkeypatch.setattr(sys, "argv", ["gpu", "-o", str(tmp_path)])
    with pytest.raises(SystemExit, match="cannot use a GPU: no driver; --small is a dry run without one"):
        command.main()
    assert not (tmp_path / "gpu.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numerics", "pretraining", "embedding", "feeding"])
def test_each_step_measures(name, tmp_path, global_seed):
    report = steps.Report(tmp_path / "step.json", small=True)
    steps.STEPS[name](report)
    figures = json.loads(report.file.read_text())
    assert figures == report.figures
    if name == "numerics":
        assert figures["float32"]["lowest_cosine"] > 0.99999
    else:
        rates = [row["rate"] if isinstance(row, dict) else row for row in figures.values() if not isinstance(row, str)]
        assert len(rates) >= 3 and min(rates) > 0
    assert len(page.page({"date": "", "small": True, "steps": {name: figures}}).splitlines()) > 8


def test_a_step_that_is_stopped_or_fails_keeps_what_it_has_measured(tmp_path, monkeypatch):
    wait = subprocess.Popen.wait

    def wait_for_figures(process, timeout=None):
        while timeout and not (tmp_path / "one.json").exists():
            time.sleep(0.01)
        return wait(process, timeout and 0.0) if timeout == 5 else wait(process)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_for_figures)
    for limit, ending, error in ((5, "sleep 1000", "stopped after 5 s"), (6, "echo no room; exit 3", "3: no room")):
        script = f"echo '{{\"rate\": 7}}' > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/one.json; {ending}"
        step = command.run_step("one", tmp_path, limit, {**os.environ}, ["sh", "-c", script])
        assert step["rate"] == 7 and step["error"].endswith(error)
    fine = command.run_step("one", tmp_path, 6, {**os.environ}, ["sh", "-c", f"echo '{{}}' > {tmp_path}/one.json"])
    assert fine.keys() == {"seconds"}


def test_pre_training_is_measured_with_each_python_that_is_named(tmp_path, monkeypatch):
    """One after another, each in a process; the first is the figure of the page, and one that fails costs no other."""
    pythons = []
    for number, (version, rate) in enumerate({"2.11.0": 500.0, "2.13.0": 410.0}.items()):
        figures = {"torch": version, "size": "tiny", "batch_tokens": 128, "teraflops": 1.0}
        figures["bothways, 64 tokens"] = {"rate": rate, "lowest": rate - 1, "highest": rate + 1}
        python = tmp_path / f"python-{number}"
        python.write_text(f"#!/bin/sh\necho {number} $* >> {tmp_path}/calls\necho '{json.dumps(figures)}' > $4\n")
        python.chmod(0o755)
        pythons.append(str(python))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no torch\nexit 1\n")
    broken.chmod(0o755)

    monkeypatch.setattr(sys, "argv", ["gpu", "-o", str(tmp_path / "out"), "--small", "--steps", "pretraining"])
    monkeypatch.setenv("BOTHWAYS_TORCHES", str(tmp_path / "none"))
    with pytest.raises(SystemExit, match="BOTHWAYS_TORCHES: .*/none: no such program"):
        command.main()

    monkeypatch.setenv("BOTHWAYS_TORCHES", ":".join([*pythons, str(broken)]))
    assert command.main() == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call[0] for call in calls] == ["0", "1"] and all(call.endswith("--small") for call in calls)
    measured = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert [run.get("torch") for run in measured["torches"]] == ["2.11.0", "2.13.0", None]
    assert measured["steps"]["pretraining"]["bothways, 64 tokens"]["rate"] == 500.0
    assert measured["torches"][2]["error"].endswith("no torch")
    written = (tmp_path / "out" / "gpu.md").read_text()
    assert "| torch 2.11.0 | torch 2.13.0 |" in written and "410 (409 to 411), 0.82" in written


def test_what_one_system_cannot_do_is_a_figure(tmp_path):
    report = steps.Report(tmp_path / "step.json", small=True)
    report.attempt("peer", lambda: [].pop())
    assert json.loads(report.file.read_text()) == {"peer": {"error": "IndexError: pop from empty list"}}


def test_the_wheels_are_what_a_machine_with_pytorch_lacks():
    """All packages that these need, at the versions of constraints.txt."""
    listed = dict(line.split("==") for line in command.required_packages())
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    assert {name: pins.get(name) for name in listed} == listed
    own = re.search(r"\ndependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL).group(1)
    needed = [Requirement(line) for line in re.findall(r'"(.*?)"', own)] + [*map(Requirement, listed)]
    with_torch = {"torch"}
    for names in (with_torch, {one.name for one in needed} - with_torch):
        waiting = [*names]
        while waiting:
            for line in distribution(waiting.pop()).requires or []:
                one = Requirement(line)
                name = canonicalize_name(one.name)
                if name not in names | with_torch and (one.marker is None or one.marker.evaluate(THERE)):
                    names.add(name)
                    waiting.append(name)
        names |= {"torch"} if names is with_torch else set()
    assert {canonicalize_name(name) for name in names} - with_torch == {*listed} - with_torch


def test_a_missing_package_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "required_packages", lambda: ["numpy==1", "no-such-package==2.0"])
    assert command.missing_packages(command.required_packages()) == ["no-such-package==2.0"]
    with pytest.raises(SystemExit, match=r"no-such-package==2\.0: missing; pip install them, or make gpu-wheels"):
        command.install(tmp_path, tmp_path / "site")
    (tmp_path / "no_such_package-2.0-py3-none-any.whl").write_bytes(b"")
    with pytest.raises(SystemExit, match=r"the wheels in .* cannot be installed: .*no_such_package"):
        command.install(tmp_path, tmp_path / "site")
    calls = []
    monkeypatch.setattr(
        subprocess, "run", lambda run, **options: calls.append(run) or SimpleNamespace(returncode=0, stderr="")
    )
    command.install(tmp_path, tmp_path / "site")
    assert "--no-index" in calls[0] and calls[0][-3:] == [
        "--target", str(tmp_path / "site"), str(tmp_path / "no_such_package-2.0-py3-none-any.whl"),
    ]  # fmt: skip


def test_the_page_shows_what_was_measured_and_what_was_not():
    section = page.page(FIGURES)
    for line in (
        "`make gpu`, 2000-01-01.",
        "| device | Invented Card |",
        "Tests marked `gpu`: 47 passed, 1 failed, 2 skipped.",
        "- failed: gpu.test_x: 1 is not 2",
        "| lowest cosine with the CPU's float32 | 0.9999999 | 0.99999 |",
        "Attention with one split: the same bits alone as in a batch, 1,234 calls/s.",
        "| bothways, 512 tokens | 500,000 (490,000 to 510,000) | 35.0% | 97.0% | 2 | 30.5 | 600 |",
        "transformers, 512 tokens: OutOfMemoryError: no room",
        "| 6 x 384: bothways, texts | 40,000 (39,000 to 41,000) |  | 2.5 |  |",
        "| texts tokenized, one process | 20,000 |",
        "- feeding: stopped after 35 s",
    ):
        assert line in section.splitlines()
    document = f"# Results\n\n{page.BEGIN}\n\nold\n{page.END}\n\n## Next\n"
    once = page.insert(section, document)
    assert once == page.insert(section, once) and "old" not in once and once.endswith("\n\n## Next\n")
    with pytest.raises(SystemExit, match="has no place for the figures"):
        page.insert(section, "# Results\n")


def test_results_have_a_place_for_the_figures():
    text = (ROOT / "docs/RESULTS.md").read_text(encoding="utf-8")
    assert "Invented" not in text and page.insert("new", text).count(page.BEGIN) == 1
