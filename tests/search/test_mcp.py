"""The Model Context Protocol: handshake, tools, results, refusals."""

import json
import subprocess
import sys

import pytest

from bothways.search.indexing import index
from bothways.search.mcp import answer_messages
from bothways.search.store import Store


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


def test_search_and_read(ask):
    result = call(ask, "search", query="late payment", top=1)
    (hit,) = result["structuredContent"]["hits"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert (hit["heading"], hit["line"]) == ("Late fees", 1)
    (row,) = call(ask, "search", query="report", how="words", filter="year < 2010")["structuredContent"]["hits"]
    assert row["metadata"]["year"] == 2009
    passages = call(ask, "read", path=hit["path"], line=1, passages=5)["structuredContent"]["passages"]
    assert [one["heading"] for one in passages] == ["Late fees", "Cats"]


def test_mistakes_in_the_input_are_results_that_say_so(ask):
    assert call(ask, "search", query="x", filter="year >")["isError"]
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
    ],
)
def test_wrong_messages_are_errors(ask, method, params, code):
    assert ask(method, params)["error"]["code"] == code


def test_notifications_have_no_answer_and_what_is_no_message_has(directory):
    with Store(directory) as store:
        lines = ['{"jsonrpc": "2.0", "method": "notifications/initialized"}', "", "no json", "[1]", '{"id": 3}']
        answers = [*map(json.loads, answer_messages(lines, store))]
    assert [answer["error"]["code"] for answer in answers] == [-32700, -32600, -32600]


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
