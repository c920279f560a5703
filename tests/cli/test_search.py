"""`bothways index` and `bothways search`: what they print, exit status, the cache, refusals."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint

FILES = {
    "fees.md": "# Late fees\n\nA fee of two per cent is charged for late payment. It is due each month.\n\n"
    "# Cats\n\nNone.",
    "opera.txt": "The barber of Seville is an opera.\n\nRossini composed it in 1816.",
    "mails.csv": "text,year\nPlease pay the invoice,2015\nThe annual report,2009\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    root = tmp_path / "documents"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def output_of(capsys):
    def run(*arguments, status=0):
        code = 0
        try:
            main.main([*map(str, arguments)])
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        assert code == status, shown.err
        return shown.out if status == 0 else shown.out + shown.err

    return run


@pytest.fixture
def places_of(output_of):
    """The file and the line of each hit of a search."""

    def run(*arguments):
        hits = [json.loads(line) for line in output_of("search", *arguments, "--json").splitlines()]
        return [(Path(hit["path"]).name, hit["line"]) for hit in hits]

    return run


def test_hits_are_printed_with_their_file_from_here_and_their_line(folder, output_of):
    shown = output_of("search", "who wrote the opera about a barber", folder)
    assert shown.startswith("documents/opera.txt:1")


def test_a_folder_is_searched_at_once(folder, places_of, tmp_path):
    assert places_of("who wrote the opera about a barber", folder)[0] == ("opera.txt", 1)
    (folder / "new.txt").write_text("zebra crossing")
    assert places_of("zebra", folder, "--how", "words") == [("new.txt", 1)]
    assert len([*(tmp_path / "cache" / "search").iterdir()]) == 1


def test_the_index_of_a_folder_is_the_same_from_everywhere(folder, output_of, tmp_path, monkeypatch):
    output_of("search", "fee", folder)
    monkeypatch.chdir(folder)
    output_of("search", "fee")
    assert len([*(tmp_path / "cache" / "search").iterdir()]) == 1


def test_indexes_in_the_cache_are_listed_and_deleted(folder, output_of, tmp_path):
    output_of("search", "fee", folder)
    (one,) = json.loads(output_of("cache", "--json"))["indexes"]
    assert (one["folders"], one["passages"]) == ([str(folder)], 5)
    assert json.loads(output_of("cache", "--clear", "--json"))["deleted_indexes"][0]["path"] == one["path"]
    assert json.loads(output_of("cache", "--json"))["indexes"] == []
    assert not [*(tmp_path / "cache" / "search").iterdir()]


def test_the_cache_is_printed_with_the_passages_of_each_index(folder, output_of):
    output_of("search", "fee", folder)
    assert f"5 passages of {folder}\n" in output_of("cache")


def test_json_lines_have_the_same_keys_always(folder, output_of):
    lines = output_of("search", "late payment", folder, "--json", "--top", 3).splitlines()
    hits = [json.loads(line) for line in lines]
    keys = {"path", "line", "page", "start", "end", "heading", "text", "score", "metadata", "weak", "match", "answer"}
    assert all(hit.keys() == keys for hit in hits)
    hit = hits[0]
    assert (hit["line"], hit["heading"]) == (1, "Late fees")
    assert FILES["fees.md"][hit["start"] : hit["end"]] == hit["text"]
    start, end = hit["match"]
    assert hit["text"][start:end] == "A fee of two per cent is charged for late payment."


def test_files_only_filter_and_glob(folder, output_of):
    assert output_of("search", "report invoice", folder, "-l", "--filter", "year < 2010") == "documents/mails.csv\n"
    assert output_of("search", "fee", folder, "-l", "-g", "*.md") == "documents/fees.md\n"


def test_nothing_found_is_status_1(folder, output_of):
    output_of("search", "fee", folder)  # which indexes, and reports it
    assert output_of("search", "xylophone", folder, "--how", "words", "--json", status=1) == ""


def test_a_line_says_that_nothing_was_found(folder, output_of):
    output_of("search", "fee", folder)
    assert output_of("search", "xylophone", folder, "--how", "words", status=1) == "Nothing was found.\n"


def test_weak_passages_are_printed_below_a_line_that_says_so(folder, output_of):
    output_of("search", "fee", folder)
    first, _, hit, *_ = output_of("search", "boiling point of tungsten", folder).splitlines()
    assert first == "No clear match. The nearest passages:"
    assert hit.endswith(" weak")
    assert " weak" not in output_of("search", "late payment", folder).splitlines()[0]


def test_weak_passages_are_marked_and_no_files_of_matches(folder, output_of):
    query = "boiling point of tungsten"
    output_of("search", "fee", folder)
    assert output_of("search", query, folder, "-l", status=1) == ""
    hits = [json.loads(line) for line in output_of("search", query, folder, "--json").splitlines()]
    assert all(hit["weak"] for hit in hits)
    least = hits[0]["score"] - 1e-6
    (kept,) = [
        json.loads(line) for line in output_of("search", query, folder, "--json", "--min-score", least).splitlines()
    ]
    assert kept == hits[0] | {"weak": False}
    assert output_of("search", query, folder, "--json", "--min-score", 0.9, status=1) == ""
    first = json.loads(output_of("search", "late payment", folder, "--json").splitlines()[0])
    assert not first["weak"]
    assert output_of("search", "opera of a barber", folder, "-l") == "documents/opera.txt\n"


def test_the_matching_sentence_and_words_are_printed_in_color_on_a_terminal(folder, output_of, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = output_of("search", "late payment", folder, "--top", 1)
    assert "\x1b[1mA fee of two per cent is charged for \x1b[0m\x1b[1;31mlate\x1b[0m" in shown
    monkeypatch.delenv("FORCE_COLOR")
    assert "\x1b" not in output_of("search", "late payment", folder, "--top", 1)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b" in output_of("search", "late payment", folder, "--top", 1)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in output_of("search", "late payment", folder, "--top", 1)


def test_the_context_printed_is_of_the_neighbouring_passages(folder, output_of):
    assert "None." in output_of("search", "late payment", folder, "--top", 1, "-C", 1)
    assert "None." not in output_of("search", "late payment", folder, "--top", 1)


def test_an_index_of_its_own(folder, output_of, tmp_path):
    facts = json.loads(output_of("index", folder, "-o", tmp_path / "index", "--no-encoder", "--json"))
    assert (facts["files"], facts["new"], facts["skipped"]) == (3, 3, {})
    again = json.loads(output_of("index", folder, "-o", tmp_path / "index", "--no-encoder", "--json"))
    assert (again["new"], again["unchanged"]) == (0, 3)
    assert output_of("search", "barber", tmp_path / "index", "-l", "--how", "words") == "documents/opera.txt\n"
    for path in folder.iterdir():  # the passages are in the index
        path.unlink()
    hits = [json.loads(line) for line in output_of("search", "barber opera", tmp_path / "index", "--json").splitlines()]
    assert "Rossini" in "".join(hit["text"] for hit in hits)


def test_documents_of_types_without_a_reader_are_counted_and_printed(folder, output_of, tmp_path):
    for name in ("a.DOC", "b.doc", "c.xls", "d.png", "e.exe"):
        (folder / name).write_bytes(b"\0")
    index = ("index", folder, "-o", tmp_path / "index", "--no-encoder")
    assert json.loads(output_of(*index, "--json"))["unread"] == {".doc": 2, ".xls": 1}
    assert "not read: 2 .doc, 1 .xls" in output_of(*index)
    assert json.loads(output_of(*index, "--json", "-g", "!*.doc", "-g", "!*.DOC"))["unread"] == {".xls": 1}


def test_a_folder_that_is_gone_is_removed_from_an_index(folder, output_of, tmp_path):
    index = ("index", "-o", tmp_path / "index", "--no-encoder", "--json")
    output_of(*index, folder)
    folder.rename(tmp_path / "gone")
    facts = json.loads(output_of(*index, "--remove", folder))
    assert (facts["deleted"], facts["files"], facts["passages"]) == (3, 0, 0)
    assert "no folder of the index" in output_of(*index, "--remove", folder, status=1)
    assert "name at least one folder" in output_of(*index, status=2)


def test_a_single_file_is_searched(folder, output_of):
    assert output_of("search", "barber", folder / "opera.txt", "-l", "--how", "words") == "documents/opera.txt\n"


def test_a_folder_with_a_database_of_another_program_is_searched_as_a_folder(folder, output_of):
    with closing(sqlite3.connect(folder / "store.db")) as theirs:
        theirs.execute("CREATE TABLE accounts (name TEXT)")
    assert output_of("search", "barber", folder, "-l", "--how", "words") == "documents/opera.txt\n"


def test_answers_are_exact_and_a_pair_model_orders_anew(folder, output_of, tmp_path, make_model, tokenizer):
    checkpoint.save(
        Checkpoint(make_model("bert", {"spans": 2}, max_position_embeddings=512), tokenizer), tmp_path / "reader"
    )
    checkpoint.save(
        Checkpoint(make_model("bert", {"classes": 1}, max_position_embeddings=512), tokenizer), tmp_path / "ranker"
    )
    lines = output_of("search", "fee", folder, "--answer", tmp_path / "reader", "--json").splitlines()
    answered = [json.loads(line) for line in lines]
    answers = [(hit, answer) for hit in answered if (answer := hit["answer"])]
    for hit, answer in answers:
        assert hit["text"][answer["start"] : answer["end"]] == answer["text"]
        assert 0 < answer["score"] <= hit["score"] + 1e-6
    assert answers
    without = [json.loads(line) for line in output_of("search", "fee", folder, "--json").splitlines()]
    assert [hit | {"answer": None} for hit in answered] == without
    plain = {hit["text"] for hit in without}
    lines = output_of("search", "fee", folder, "--json", "--rerank", tmp_path / "ranker").splitlines()
    hits = [json.loads(line) for line in lines]
    assert {hit["text"] for hit in hits} == plain
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    output_of("search", "fee", folder, "--rerank", tmp_path / "reader", status=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", "fee", "missing"), "no such file or folder"),
        (("search", "fee", "documents", "--filter", "year >"), "filter"),
        (("search", "fee", "documents", "--static", "missing"), "static vectors"),
        (("index", "missing", "-o", "index"), "no such file or folder"),
    ],
)
def test_wrong_use_is_one_line(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main.main([*arguments])
    error = capsys.readouterr().err.splitlines()
    assert message in error[-1]
    assert stopped.value.code == 1


@pytest.mark.slow
def test_a_search_needs_no_torch(folder):
    code = (
        "import sys; from bothways.cli import main; main.main(['search', 'fee', sys.argv[1], '-l'])\n"
        "loaded = {'torch', 'scipy', 'pyarrow', 'rich', 'typeguard'} & {*sys.modules}; assert not loaded, loaded"
    )
    for _ in range(2):  # the first one indexes
        result = subprocess.run([sys.executable, "-c", code, folder], env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
