"""An S3 server on loopback (moto), behind a proxy that can fail; a bucket for each test."""

import http.client
import random
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import urlsplit

import pytest

from bothways.scale import object_storage as cloud

pytest.importorskip("obstore")
moto_server = pytest.importorskip("moto.server")
BUCKETS = count()


class Proxy(ThreadingHTTPServer):
    """Passes requests on to the server. plan: called with method and path; says how a request fails, or "" for not."""

    daemon_threads = True

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.plan, self.requests, self.faults = target, lambda method, path: "", [], 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, address):
        pass  # the client has closed its connection


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or the body waits for an acknowledgement

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        fault = self.server.plan(self.command, self.path)
        self.server.faults += bool(fault)
        if fault.isdigit():
            self.reply(int(fault), [], b"<Error><Code>Stub</Code></Error>")
            return
        if fault == "reset":
            self.close_connection = True
            return
        connection = http.client.HTTPConnection(self.server.target)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if fault == "lost":  # done, but its answer does not arrive
            self.close_connection = True
            return
        self.reply(answer.status, answer.getheaders(), content, cut=fault == "cut")

    def reply(self, status, headers, content, cut=False):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), None)
        self.send_header("Content-Length", str(length if self.command == "HEAD" and length else len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = cut

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def proxy():
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    proxy = Proxy(f"{host}:{port}")
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    yield proxy
    proxy.shutdown()
    proxy.server_close()
    server.stop()
    server._server.server_close()


@pytest.fixture
def bucket(proxy, monkeypatch, tmp_path):
    """The URL of an empty bucket."""
    name = f"bucket-{next(BUCKETS)}"
    values = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1", "ENDPOINT_URL": proxy.url}
    for variable, value in values.items():
        monkeypatch.setenv(f"AWS_{variable}", value)
    monkeypatch.setattr(cloud.LocalCopy, "urls", {})
    monkeypatch.setattr(cloud, "PAUSE", 0.002)
    monkeypatch.setitem(cloud.BACKOFF, "init_backoff", timedelta(milliseconds=2))
    monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path / "cache"))
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc)
    connection.request("PUT", f"/{name}")
    connection.getresponse().read()
    connection.close()
    proxy.requests.clear()
    yield f"s3://{name}"
    proxy.plan = lambda method, path: ""


def at_random(seed, faults, share=0.2):
    """A plan that lets a share of the requests fail, each in one of these ways."""
    draws = random.Random(seed)
    return lambda method, path: draws.choice(faults) if draws.random() < share else ""
