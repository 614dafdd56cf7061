"""A small client of Chromium's DevTools protocol over a pipe.

Messages are NUL-terminated JSON on the browser's descriptors 3 and 4. A watchdog fails the test when the
browser stays silent.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import WATCHDOG_SECONDS

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")

FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


#: Move both away first: either may already be 3 or 4.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 20) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class BrowserError(RuntimeError):
    """A command or page script failed, or timed out."""


class Browser:
    """A headless Chromium with one page. ``events``: all reports, oldest first."""

    def __init__(self, profile: Path) -> None:
        program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise BrowserError(f"none of {', '.join(PROGRAMS)} is installed")
        self.events: list[dict[str, Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._buffer = b""
        self._last_id = 0
        self._session = ""
        self.profile = profile
        self._start(program, profile)

    def connect(self) -> None:
        """Open a page and enable all its reports. Raises BrowserError."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _start(self, program: str, profile: Path) -> None:
        """Put the pipes on descriptors 3 and 4, then exec the browser."""
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = (program, *FLAGS, *sandbox, f"--user-data-dir={profile}", "about:blank")
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": str(profile)},
        )
        os.close(to_read)
        os.close(to_write)

    # --- the protocol

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Raises BrowserError."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        wanted = self._last_id
        self._until(lambda: wanted in self._answers, method)
        answer = self._answers.pop(wanted)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        while not holds():
            if not select.select([self._from], [], [], WATCHDOG_SECONDS)[0]:
                raise BrowserError(f"the browser sent nothing for {WATCHDOG_SECONDS:.0f} s: {what}")
            data = os.read(self._from, 1 << 20)
            if not data:
                raise BrowserError(f"the browser is gone: {what}")
            *messages, self._buffer = (self._buffer + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]] = message
                else:
                    self.events.append(message)

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of one kind."""
        return [event["params"] for event in self.events if event["method"] == method]

    # --- the page

    def open(self, url: str, *, scripts: bool = True) -> None:
        """Load a page and wait until it is drawn. Drops earlier events."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        self._until(lambda: bool(self.seen("Page.loadEventFired")), f"loading {url}")
        if scripts:
            self.frame()

    def run(self, script: str) -> Any:
        """Evaluate JavaScript, awaiting a promise. Raises BrowserError."""
        made = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in made:
            raise BrowserError(made["exceptionDetails"].get("exception", {}).get("description", script))
        return made["result"].get("value")

    def frame(self) -> None:
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.frame()

    def media(self, **features: str) -> None:
        """``prefers_color_scheme="dark"``."""
        given = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=given)
        self.frame()

    def press(self, key: str, text: str = "") -> None:
        """Press a key; ``text`` is its input."""
        codes = {"Enter": 13, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "Home": 36, "End": 35, " ": 32}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes.get(key, 0)}
        typed = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        for letter in text:
            self.press(letter, letter)
        self.frame()

    def picture(self, path: Path, **clip: float) -> None:
        shot = self.call(
            "Page.captureScreenshot", format="png", **({"clip": {**clip, "scale": 1}} if clip else {})
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, width: float, height: float) -> bytes:
        """Printed on paper of so many inches."""
        paper = self.call("Page.printToPDF", printBackground=True, paperWidth=width, paperHeight=height)
        return base64.b64decode(paper["data"])

    def complaints(self) -> list[str]:
        """Console messages: exceptions, errors, blocked content."""
        thrown = [each["exceptionDetails"]["text"] for each in self.seen("Runtime.exceptionThrown")]
        logged = [each["entry"]["text"] for each in self.seen("Log.entryAdded")]
        said = [str(each["args"]) for each in self.seen("Runtime.consoleAPICalled")]
        return thrown + logged + said

    def requests(self) -> list[str]:
        """All requested addresses, except the page and data URLs."""
        asked = [each["request"]["url"] for each in self.seen("Network.requestWillBeSent")]
        return [url for url in asked[1:] if not url.startswith("data:")]

    def close(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._to)
        os.close(self._from)


@contextmanager
def browser() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(prefix="ebbtide-browser-", ignore_cleanup_errors=True) as profile:
        made = Browser(Path(profile))
        try:
            made.connect()
            yield made
        finally:
            made.close()
