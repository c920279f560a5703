"""The Model Context Protocol: handshake, tools, results, refusals."""

import json
import os
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from bothways.search.indexing import index
from bothways.search.mcp import answer_messages
from bothways.search.reranking import rerank
from bothways.search.store import Store
from tests.search.test_documents import odt, pptx, shape
from tests.search.test_readers import docx, pdf


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("mcp")
    folder = root / "documents"
    folder.mkdir()
    (folder / "fees.md").write_text("# Late fees\n\nA fee is charged for late payment.\n\n# Cats\n\nA cat sat.")
    (folder / "rows.csv").write_text("text,year\nthe annual report,2009\n")
    index([folder], root / "store", static_model="bothways-en-static", encoder=None)
    return root / "store"


@pytest.fixture
def ask(directory):
    def send(method, params=None, **message):
        with Store(directory) as store:
            line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}, **message})
            (answer,) = map(json.loads, answer_messages([line], store))
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
        return answer

    return send


@pytest.fixture
def answers_to(directory):
    def send(*messages):
        lines = [one if isinstance(one, str | bytes) else json.dumps({"jsonrpc": "2.0", **one}) for one in messages]
        with Store(directory) as store:
            return [*map(json.loads, answer_messages(lines, store))]

    return send


def call(ask, name, **arguments):
    return ask("tools/call", {"name": name, "arguments": arguments})["result"]


def test_handshake_and_tools(ask):
    result = ask("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}})["result"]
    assert (result["protocolVersion"], result["serverInfo"]["name"]) == ("2024-11-05", "bothways")
    assert ask("initialize", {"protocolVersion": "1999-01-01"})["result"]["protocolVersion"] == "2025-06-18"
    assert ask("ping")["result"] == {}
    tools = ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["search", "read"]
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools)
    described = tools[0]["inputSchema"]["properties"]["filter"]["description"]
    assert described.endswith("path, page, heading, row, year")


def test_search_and_read(ask):
    result = call(ask, "search", query="late payment", top=1)
    (hit,) = result["structuredContent"]["hits"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert (hit["heading"], hit["line"]) == ("Late fees", 1)
    (row,) = call(ask, "search", query="report", how="words", filter="year < 2010")["structuredContent"]["hits"]
    assert row["metadata"]["year"] == 2009
    missed = call(ask, "search", query="boiling point of tungsten")["structuredContent"]
    assert (missed["relevant"], {one["weak"] for one in missed["hits"]}) == (False, {True})
    some = call(ask, "search", query="late payment")["structuredContent"]
    assert (some["relevant"], {one["weak"] for one in some["hits"]}) == (True, {False, True})
    assert call(ask, "search", query="boiling point", min_score=0.9)["structuredContent"]["hits"] == []
    passages = call(ask, "read", path=hit["path"], line=1, passages=5)["structuredContent"]["passages"]
    assert [one["heading"] for one in passages] == ["Late fees", "Cats"]


@pytest.mark.parametrize("top", [1, 2, 3])
def test_what_is_found_is_reranked_on_request(directory, make_predictor, top):
    ranker = make_predictor(heads={"classes": 1})
    call = {"name": "search", "arguments": {"query": "the annual fee", "top": top}}
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
    with Store(directory) as store:
        expected = rerank("the annual fee", store.search("the annual fee", top=10), ranker)
        (answer,) = map(json.loads, answer_messages([line], store, reranker=ranker))
    hits = answer["result"]["structuredContent"]["hits"]
    assert [hit["text"] for hit in hits] == [hit.text for hit in expected[:top]] and len(expected) == 3


def test_mistakes_in_the_input_are_results_that_say_so(ask):
    assert call(ask, "search", query="x", filter="year >")["isError"]
    result = call(ask, "search", query="x", filter="yeer > 2010")
    assert result["isError"] and "did you mean 'year'" in result["content"][0]["text"]
    assert call(ask, "read", path="missing.md")["isError"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("magic", {}, -32601),
        ("tools/call", {"name": "delete"}, -32602),
        ("tools/call", {"name": "search", "arguments": {}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": 3}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "top": 1000}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "how": "magic"}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "folder": "/"}}, -32602),
        ("tools/call", {"name": "search", "arguments": []}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": None}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "top": 2.5}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "top": True}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "min_score": 2}}, -32602),
        ("tools/call", {"name": "search", "arguments": {"query": "x", "min_score": "1"}}, -32602),
        ("tools/call", {"name": ["search"]}, -32602),
        ("tools/call", [1], -32602),
        ("tools/call", "search", -32602),
        ("initialize", [1], -32602),
    ],
)
def test_wrong_messages_are_errors(ask, method, params, code):
    assert ask(method, params)["error"]["code"] == code


def test_notifications_have_no_answer_and_what_is_no_message_has(directory):
    with Store(directory) as store:
        lines = ['{"jsonrpc": "2.0", "method": "notifications/initialized"}', "", "no json", "[1]", '{"id": 3}']
        answers = [*map(json.loads, answer_messages(lines, store))]
    assert [answer["error"]["code"] for answer in answers] == [-32700, -32600, -32600]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[" * 100_000, -32700),
        ('{"method": "ping", "id": 1, "params": {"a": ' + "[" * 100_000, -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}', -32700),
        ('{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700),
        ('{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": [1], "method": "ping"}', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', -32601),
    ],
)
def test_a_broken_line_ends_nothing(answers_to, line, code):
    broken, pong = answers_to(line, {"id": "after", "method": "ping"})
    assert broken["error"]["code"] == code
    assert pong == {"jsonrpc": "2.0", "id": "after", "result": {}}


def test_half_characters_are_searched_without_them_and_name_no_file(ask):
    hits = call(ask, "search", query="late payment \ud800", glob="*", filter="path != '\udfff'")["structuredContent"][
        "hits"
    ]
    assert hits[0]["heading"] == "Late fees"
    assert call(ask, "read", path="\udcff.md")["isError"]


def test_a_file_whose_name_is_not_utf8_is_found_by_it_in_text_that_is(tmp_path):
    path = tmp_path / "documents" / os.fsdecode(b"\xe9.txt")
    path.parent.mkdir()
    try:
        path.write_text("late fees")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    index([path.parent], tmp_path / "store", static_model="bothways-en-static", encoder=None)
    call = {"name": "search", "arguments": {"query": "fees", "filter": f"path = '{path.name}'"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    with Store(tmp_path / "store") as store:
        (answer,) = map(json.loads, answer_messages([line], store))
    text = answer["result"]["content"][0]["text"]
    assert text.encode() and json.loads(text)["hits"][0]["path"] == str(path)


def test_a_fault_of_a_model_is_an_answer(directory):
    def broken(space, model):
        raise RuntimeError("no memory")

    line = (
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "x"}}}'
    )
    with Store(directory) as store:
        (answer,) = map(json.loads, answer_messages([line], store, broken))
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)


def test_whole_floats_are_integers_and_null_is_not_given(ask):
    one = call(ask, "search", query="cat fee", top=1.0, how=None, glob=None, filter=None)
    assert len(one["structuredContent"]["hits"]) == 1
    assert (
        "from 1 to 100"
        in ask("tools/call", {"name": "search", "arguments": {"query": "x", "top": 0}})["error"]["message"]
    )


@pytest.mark.parametrize(
    ("version", "is_supported"), [("2025-03-26", True), ("2025-06-18", False), ("2024-11-05", False)]
)
def test_batches_are_those_of_one_version(answers_to, version, is_supported):
    first = {"id": 1, "method": "initialize", "params": {"protocolVersion": version}}
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    batch = json.dumps([{"jsonrpc": "2.0", "id": 2, "method": "ping"}, notice, 3])
    _, answer, *more = answers_to(first, batch, json.dumps([notice]), "[]")
    if is_supported:
        assert [(one["id"], "error" in one) for one in answer] == [(2, False), (None, True)]
    codes = [one["error"]["code"] for one in ([] if is_supported else [answer]) + more]
    assert codes == ([-32600] if is_supported else [-32600] * 3)


WORDS = " ".join(f"fee{number}" for number in range(900))
LONG_ROW = json.dumps({"title": "Fees", "text": WORDS, "year": 1})


@pytest.fixture(scope="module")
def files_of_all_readers(tmp_path_factory):
    pytest.importorskip("pypdfium2")
    folder = tmp_path_factory.mktemp("readers")
    contents = {
        "one-line.txt": WORDS,
        "code.py": "\n".join(WORDS.split()),
        "front.md": f"---\ntitle: fees\n---\n\n# Fees\n\n{WORDS}\n\n{WORDS}",
        "page.html": f"<h1>Fees</h1><p>{WORDS}</p><p>{WORDS}</p>",
        "mail.eml": f"Subject: fee\n\n{WORDS}",
        "notebook.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": WORDS}] * 2}),
        "rows.csv": f'title,text\n"A\nfee","{WORDS}"\nB,{WORDS}\n',
        "rows.tsv": f"text\tyear\n{WORDS}\t1\nfee\t2\n",
        "rows.jsonl": f"{LONG_ROW}\n" * 5,
    }
    for name, content in contents.items():
        (folder / name).write_text(content)
    (folder / "pages.pdf").write_bytes(pdf(WORDS, WORDS))
    odt(folder / "text.odt", f"<text:p>{WORDS}</text:p>" * 2)
    pptx(folder / "slides.pptx", shape(WORDS), shape(WORDS))
    docx(folder / "word.docx", f"<w:p><w:r><w:t>{WORDS}</w:t></w:r></w:p>" * 2)
    pyarrow.parquet.write_table(pyarrow.table({"title": ["a", "b"], "text": [WORDS, WORDS]}), folder / "rows.parquet")
    index([folder], folder / "store", static_model="bothways-en-static", encoder=None)
    return folder / "store", {path.name for path in folder.iterdir() if path.is_file()}


def test_each_hit_is_the_first_passage_that_is_read_at_its_place(files_of_all_readers):
    directory, names = files_of_all_readers
    with Store(directory) as store:
        hits = store.search("fee", how="vectors", top=store.passages)
        assert {hit.path.name for hit in hits} == names
        assert len(hits) == store.passages > 50
        for hit in hits:
            (first,) = store.passages_from(str(hit.path), hit.line, 1, page=hit.page, start=hit.start)
            assert (first.text, first.line, first.page, first.start) == (hit.text, hit.line, hit.page, hit.start)


def test_a_line_or_a_page_alone_is_read_from_its_beginning(files_of_all_readers):
    directory, _ = files_of_all_readers
    with Store(directory) as store:
        by_name = {hit.path.name: str(hit.path) for hit in store.search("fee", how="vectors", top=store.passages)}

        def place(name, line=None, **options):
            (first, *_) = store.passages_from(by_name[name], line, 3, **options)
            return first.line, first.page, first.start

        assert place("one-line.txt", 1) == place("one-line.txt") == (1, None, 0)
        assert place("pages.pdf", page=2) == (None, 2, 0)
        assert place("rows.jsonl", 4) == (4, None, 0)
        assert place("page.html", 4) == (None, None, 0)
        assert place("code.py", 10**6)[0] > 700
        assert place("front.md", 1)[0] == 5


@pytest.mark.slow
def test_the_command_speaks_over_standard_streams(directory):
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": "cat"}},
        },
    ]
    result = subprocess.run(
        [sys.executable, "-m", "bothways", "mcp", str(directory)],
        input="".join(f"{json.dumps(message)}\n" for message in messages),
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["id"] == 1
    assert second["result"]["structuredContent"]["hits"][0]["heading"] == "Cats"
