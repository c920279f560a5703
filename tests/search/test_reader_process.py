"""Readers: a file that hangs, crashes or fills the memory costs only itself; the process ends with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bothways.base.errors import InputError, MissingFile, command_line
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart, read_parts

FOLDER = str(Path(__file__).parent)


@pytest.fixture
def faulty(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    with Readers(reader="faulty_readers:by_name", memory_limit=1 << 28) as readers:
        yield readers


def process_id(readers):
    return int(readers.read(Path("ok.pdf"))[0].text)


@pytest.mark.slow
def test_files_are_read_as_without_a_process(tmp_path):
    for name, content in (
        ("a.md", "---\na: 1\n---\n# one"),
        ("a.html", "<title>one</title>t\ud800wo"),
        ("a.jsonl", '{"text": "one \\ud800", "n": 1, "f": 1.5, "t": true, "s": "x"}'),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8", errors="replace")
    with Readers() as readers:
        for path in sorted(tmp_path.iterdir()):
            assert readers.read(path) == [*read_parts(path)] != []
        with pytest.raises(MissingFile):
            readers.read(tmp_path / "none.pdf")


def test_text_needs_no_process(tmp_path):
    (tmp_path / "a.md").write_text("one", encoding="utf-8")
    with Readers(reader="no.such:module") as readers:
        assert readers.read(tmp_path / "a.md") == [DocumentPart("one", is_markdown=True)]
        with pytest.raises(InputError, match="did not start"):
            readers.read(tmp_path / "a.pdf")


def test_paths_follow_the_current_folder(tmp_path, monkeypatch):
    with Readers() as readers:
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "page.html").write_text(name, encoding="utf-8")
            monkeypatch.chdir(tmp_path / name)
            assert [part.text for part in readers.read(Path("page.html"))] == [name]


@pytest.mark.parametrize(
    ("name", "reason"), [("crash", "SIGSEGV"), ("exit", "exit status 7"), ("memory", "256 MiB of memory")]
)
def test_a_process_that_ends_is_replaced(faulty, name, reason):
    before = process_id(faulty)
    with pytest.raises(InputError, match=reason) as raised:
        faulty.read(Path(f"{name}.pdf"))
    assert f"{name}.pdf" in str(raised.value) and "\n" not in str(raised.value)
    assert process_id(faulty) != before


@pytest.mark.slow
def test_a_file_that_hangs_is_given_up(faulty):
    before = process_id(faulty)
    faulty.time_limit = 0.2
    with pytest.raises(InputError, match=r"hang\.pdf: not read after 0\.2 seconds"):
        faulty.read(Path("hang.pdf"))
    faulty.time_limit = 30.0
    assert process_id(faulty) != before


def test_errors_leave_the_process_running(faulty):
    before = process_id(faulty)
    with pytest.raises(InputError, match="KeyError") as raised:
        faulty.read(Path("bug.pdf"))
    assert "\n" not in str(raised.value)
    with command_line(), pytest.raises(InputError, match="refused; give its --encoding"):
        faulty.read(Path("refused.pdf"))
    assert len(faulty.read(Path("chatter.pdf"))) == 1
    assert process_id(faulty) == before


def test_a_process_that_was_killed_between_files_is_replaced(faulty):
    before = process_id(faulty)
    os.kill(before, signal.SIGKILL)
    faulty._process.wait()
    assert process_id(faulty) != before


def test_an_interrupt_leaves_no_answer_behind(faulty, monkeypatch):
    process_id(faulty)

    def interrupt(process):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bothways.search.reader_process._receive", interrupt)
        faulty.read(Path("refused.pdf"))
    assert len(faulty.read(Path("ok.pdf"))) == 1


def test_closing_ends_the_process(faulty):
    process_id(faulty)
    process = faulty._process
    faulty.close()
    assert process.returncode == 0 and faulty._process is None


def test_the_process_imports_no_torch(faulty, tmp_path):
    (tmp_path / "modules.jsonl").write_text('{"text": "one"}', encoding="utf-8")
    loaded = faulty.read(tmp_path / "modules.pdf")[1].text.split()
    assert "bothways.text.rows.rows" in loaded and not {"torch", "numpy", "pyarrow", "__mp_main__"} & {*loaded}


@pytest.mark.slow
def test_the_process_ends_when_its_parent_is_killed(tmp_path, monkeypatch):
    pipe = tmp_path / "hold.pdf"
    os.mkfifo(pipe)
    code = (
        f"import sys; sys.path.insert(0, {FOLDER!r}); from pathlib import Path; from bothways.search.reader_process "
        f"import Readers; Readers(reader='faulty_readers:by_name').read(Path({str(pipe)!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    with pipe.open("rb") as held:  # returns when the process opens its end
        parent.kill()
        parent.wait()
        assert held.read() == b""  # returns when the process has ended
