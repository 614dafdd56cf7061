"""A fake daemon for its supervisor: speaks the protocol and records events.

``child.py FOLDER WORDS [/ WORDS]...``: the words of each life; the last ones repeat. A line of ``FOLDER/log``
is ``NANOSECONDS LIFE WHAT``.
"""

from __future__ import annotations

import array
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

#: Only a defect takes longer (`tests.waiting.WATCHDOG_SECONDS`; this file runs alone).
ANSWER_MS_MAX = 300_000
SIGN_SECONDS = 0.5


class Kept:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notify = socket.socket(fileno=int(os.environ["NOTIFY_SOCKET"].removeprefix("fd:")))
        self.notify.set_inheritable(False)
        lives = folder / "lives"
        self.life = len(lives.read_bytes()) if lives.exists() else 0
        with lives.open("ab") as file:
            file.write(b".")

    def note(self, what: str) -> None:
        with (self.folder / "log").open("a") as log:
            log.write(f"{time.monotonic_ns()} {self.life} {what}\n")

    def send(self, data: bytes, *descriptors: int) -> None:
        passed = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        self.notify.sendmsg([data], passed)

    def do_say(self, text: str) -> None:
        self.send(text.encode())

    def do_store(self, name: str) -> None:
        """Store the writing end of ``FOLDER/NAME``; then only the supervisor has it."""
        descriptor = os.open(self.folder / name, os.O_WRONLY)
        self.send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0".encode(), descriptor)
        os.close(descriptor)

    def do_remove(self, name: str) -> None:
        self.send(f"FDSTOREREMOVE=1\nFDNAME={name}".encode())

    def do_barrier(self, _: str) -> None:
        ours, theirs = os.pipe()
        self.send(b"BARRIER=1", theirs)
        os.close(theirs)
        poll = select.poll()
        poll.register(ours)
        self.note("confirmed" if poll.poll(ANSWER_MS_MAX) else "no answer")
        os.close(ours)

    def do_fds(self, _: str) -> None:
        """Returned descriptors, if meant for this process, by content."""
        names = os.environ.get("LISTEN_FDNAMES", "").split(":")
        count = int(os.environ.get("LISTEN_FDS", "0"))
        mine = os.environ.get("LISTEN_PID") == str(os.getpid())
        places = [Path(os.readlink(f"/proc/self/fd/{3 + index}")).name for index in range(count)]
        same = places == names[:count]
        self.note(f"fds {' '.join(places) or 'none'} {'mine' if mine and same else 'not-mine'}")

    def do_await(self, name: str) -> None:
        """Until the test has made ``FOLDER/NAME``."""
        while not (self.folder / name).exists():
            time.sleep(0.002)

    def do_signals(self, _: str) -> None:
        """Record every signal; SIGTERM and SIGINT end it, as in the daemon."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        self.send(b"READY=1\nSTATUS=armed")
        self.note(f"up {os.getpid()}")
        while True:
            number = signal.sigwait(numbers)
            self.note(signal.Signals(number).name)
            if number != signal.SIGHUP:
                return

    def do_alive(self, until: str) -> None:
        """Signs of life until ``FOLDER/UNTIL`` exists, and one more."""
        while True:
            self.send(b"WATCHDOG=1")
            if not until or (self.folder / until).exists():
                return
            time.sleep(SIGN_SECONDS)

    def do_hang(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def do_crash(self, _: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_exit(self, code: str) -> None:
        sys.exit(int(code))


def main(folder: str, *words: str) -> None:
    kept = Kept(Path(folder))
    kept.note("life")
    lives = " ".join(words).split("/")
    for word in lives[min(kept.life, len(lives) - 1)].split():
        verb, _, value = word.partition("=")
        getattr(kept, f"do_{verb}")(value)


if __name__ == "__main__":
    main(*sys.argv[1:])
