"""A headless Chromium, driven over a pipe with the DevTools protocol: no driver program and no further package."""

import base64
import fcntl
import json
import os
import select
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
).split()
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
SECONDS = 250.0


class Browser:
    """One tab. `events` has what the browser told since the last `open`, as (method, parameters)."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        (their_in, self._out), (self._in, their_out) = os.pipe(), os.pipe()
        # Above the two numbers that Chromium reads and writes, so that neither is overwritten before it is copied.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (their_in, their_out)]
        os.close(their_in), os.close(their_out)
        quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        actions = [quiet, (os.POSIX_SPAWN_DUP2, high[0], 3), (os.POSIX_SPAWN_DUP2, high[1], 4)]
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(CHROMIUM, command, os.environ, file_actions=actions)
        for end in high:
            os.close(end)
        self._rest, self._number, self._session = b"", 0, None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")
        os.waitpid(self._process, 0)
        os.close(self._in), os.close(self._out)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, (method, heard)
                return heard["result"]
            self.events.append((heard.get("method", ""), heard.get("params", {})))

    def _hear(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0], "Chromium does not answer"
            piece = os.read(self._in, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address: str) -> None:
        """From an empty page, so that a new #part loads the page anew."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (script, answer)
        return answer["result"].get("value")

    def wait(self, script: str, holds: Callable[[Any], bool] = bool) -> Any:
        """The value of an expression, once it holds."""
        until = time.monotonic() + SECONDS
        while not holds(value := self.run(script)):
            assert time.monotonic() < until, f"{script} is still {value!r}"
            time.sleep(0.02)
        return value

    def press(self, key: str) -> None:
        known = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known, **({"text": "\r"} if key == "Enter" else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def look(self, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """The whole page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def requests(self) -> list[str]:
        return [told["request"]["url"] for method, told in self.events if method == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Exceptions and errors, such as violations of the Content-Security-Policy."""
        entries = [told["entry"] for method, told in self.events if method == "Log.entryAdded"]
        errors = [f"{entry['text']} {entry.get('url', '')}" for entry in entries if entry["level"] == "error"]
        errors += [str(told) for method, told in self.events if method == "Runtime.exceptionThrown"]
        return [error for error in errors if "favicon" not in error]
