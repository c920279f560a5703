"""`bothways serve` in a separate process."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

READY = re.compile(r"serving (.+) at (http://127\.0\.0\.1:(\d+))")
SECONDS = 250.0  # that a test waits at most for a server: a guard against hangs, far above what it takes


class Server:
    """`bothways serve` with these arguments, on any free port. files: the most that it may have open. `lines`: its
    log."""

    def __init__(self, *arguments, environment=(), files=None):
        command = [sys.executable, "-m", "bothways", "serve", *map(str, arguments), "--port", "0"]
        if files is not None:
            command = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh", *command]
        root = str(Path(__file__).parents[2])
        variables = {**os.environ, "PYTHONPATH": root, "HF_HUB_OFFLINE": "1", **dict(environment)}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        self.lines, self.url, self.port = [], "", 0
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._is_ready.wait(SECONDS) or not self.port:
            self.kill()
            raise AssertionError(f"no server: {self.lines}")

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if ready := READY.match(line):
                self.url, self.port = ready[2], int(ready[3])
                self._is_ready.set()
        self._is_ready.set()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def post(self, path, body, **headers):
        """Status, headers and content of one request on a new connection."""
        connection = self.connect()
        try:
            names = {"content-type": "application/json"} | {
                key.replace("_", "-"): text for key, text in headers.items()
            }
            connection.request("POST", path, json.dumps(body), names)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), json.loads(answer.read())
        finally:
            connection.close()

    def get(self, path):
        connection = self.connect()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def signal(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        """The exit status, when it has ended and its log is read."""
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.process.stderr.close()
        return status

    def kill(self):
        self.process.kill()
        self.wait()


@contextmanager
def serving(*arguments, **options):
    """A server that must still be there at the end, and then ends with status 0."""
    server = Server(*arguments, **options)
    try:
        yield server
        assert server.process.poll() is None, server.lines
        server.signal()
        assert server.wait() == 0, server.lines
    finally:
        server.kill()
