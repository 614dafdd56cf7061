"""Holds the delay lock while the daemon restarts, without a service manager's store (a DaemonSet).

logind shuts down once the last duplicate of the lock is closed: a daemon that crashes in mid-shutdown would
lose its pods' time. ``ebbtide run --keep-lock`` becomes this program. It supports the part of sd_notify(3)
that `actors.edges.service_manager` uses, keeps the child's descriptors for the next child, and kills a child
that hangs. It ends no pods.

It runs as a file and imports no other module: its imports are resident twice on every node.
"""

from __future__ import annotations

import array
import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

FIRST_INHERITED = 3
#: The unit's FileDescriptorStoreMax: a lock, and a second one while it is replaced.
STORED_MAX = 4
#: systemd's limits: a message is at most a page, with at most SCM_MAX_FD descriptors.
MESSAGE_BYTES_MAX = 4096
DESCRIPTORS_MAX = 253
#: Messages in one turn: a flood must not hide the child's end.
MESSAGES_A_TURN = 256
#: `DESCRIPTOR_PREFIX` of `actors.edges.service_manager`.
DESCRIPTOR_PREFIX = "fd:"

DEATH_WINDOW_SECONDS = 60
#: (earlier deaths within the window, seconds until the next start); the last matching row counts.
RESTART_SECONDS = (
    (0, 0.0),  # a shutdown must not lose a second
    (1, 1.0),  # the cause may need a moment to pass, and the shortest budget bears a few of these
    (10, 5.0),  # half a second of processor for each start is then a tenth of one core
)

#: The watchdog's timeout, and its reason, are the unit's WatchdogSec.
SILENT_SECONDS_MAX = 6.0
#: Until the first sign of life: the unit's TimeoutStartSec.
START_SECONDS_MAX = 30.0
#: A look counts no more silence than this: while this process is frozen, the child may be too.
LOOK_SECONDS = 2.0

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNALS = (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD)
WAKE_BYTES_MAX = 64

#: A wrong request: a restart would not help.
WRONG = 2
#: A shell's exit code for a command that did not start.
NOT_STARTED = 127
SIGNAL_BASE = 128
WARNING = 4


def become_supervisor(command: Sequence[str]) -> None:
    """Turns this process into a supervisor; never returns. Raises OSError."""
    flags = ("-I", "-S", os.path.abspath(__file__))
    # exec loses buffers; standard error has none.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *flags, *command])


def pause_seconds(deaths: int) -> float:
    return [seconds for at_least, seconds in RESTART_SECONDS if at_least <= deaths][-1]


def log_to_stderr(level: int, line: str) -> None:
    """If standard error has a reader: the child must not wait for a log."""
    prefix = f"<{level}>" if "JOURNAL_STREAM" in os.environ else ""
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"{prefix}supervisor: {line}\n".encode(errors="replace"))
    except OSError:
        pass


def waited_seconds(pid: int) -> float:
    """How long its main thread has waited for a processor; 0 if unknown."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class DescriptorStore:
    def __init__(self) -> None:
        self.kept: list[tuple[str, int]] = []

    def keep(self, name: str, descriptor: int) -> None:
        """Owns the descriptor from now on; closes one above `STORED_MAX`. Never polls it, as with FDPOLL=0: a
        lock polls an error while logind is down.
        """
        if len(self.kept) < STORED_MAX:
            self.kept.append((name, descriptor))
            return
        log_to_stderr(WARNING, f"a descriptor was not kept: {STORED_MAX} are kept already")
        os.close(descriptor)

    def remove(self, name: str) -> None:
        for kept, descriptor in self.kept:
            if kept == name:
                os.close(descriptor)
        self.kept = [entry for entry in self.kept if entry[0] != name]


class Supervisor:
    """``now`` is monotonic, in seconds."""

    def __init__(
        self,
        command: Sequence[str],
        silent_seconds: float = SILENT_SECONDS_MAX,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._silent_seconds = silent_seconds
        self._now = now
        self._store = DescriptorStore()
        self._deaths: list[float] = []
        self._child = 0
        self._code: int | None = None
        self._patience_seconds = self._waited_seconds = 0.0
        self._heard = False
        self._ready = self._was_ready = self._stopping = self._stop_asked = self._reload_asked = False
        # Without a name: only the child, which inherits the other end, can send or fill the queue.
        self._socket, self._childs_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # With a pipe, a signal between a look and the poll is not lost.
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)

    def run(self) -> int:
        """Until the child ends on purpose. Returns its exit code, or 128 + N for a signal."""
        while True:
            code = self._live()
            # WRONG after a ready start is a crash: leaving would release the lock.
            wrong = code == WRONG and not self._was_ready
            if self._stopping or self._stop_asked or code == 0 or wrong:
                return code if code >= 0 else SIGNAL_BASE - code
            self._pause(code)
            if self._stop_asked:
                return 0

    def _live(self) -> int:
        # The next child reads its configuration: an earlier reload request is done.
        self._code, self._ready, self._reload_asked = None, False, False
        self._patience_seconds, self._waited_seconds, self._heard = START_SECONDS_MAX, 0.0, False
        # Until we have the child's number, and the child its handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # A plain fork: LISTEN_PID needs the child's own number.
            self._child = os.fork()
            if not self._child:
                _exec(self._command, self._store.kept, self._childs_end.fileno(), self._silent_seconds)
        except OSError as error:
            log_to_stderr(WARNING, f"the daemon cannot be started: {error.strerror}")
            return NOT_STARTED
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        while self._code is None:
            before = self._now()
            self._turn(LOOK_SECONDS)
            if self._code is None and not self._stopping:
                self._look(self._now() - before)
        return self._code

    def _look(self, seconds: float) -> None:
        # On an overloaded machine a healthy child waits for a processor.
        before, self._waited_seconds = self._waited_seconds, waited_seconds(self._child)
        silent_seconds = min(seconds, LOOK_SECONDS) - (self._waited_seconds - before)
        self._patience_seconds -= max(0.0, silent_seconds)
        if self._heard:
            self._heard, self._patience_seconds = False, self._silent_seconds
        if self._patience_seconds <= 0:
            log_to_stderr(WARNING, "the daemon gives no sign of life: killing it")
            # No other signal ends a stopped process.
            self._forward(signal.SIGKILL)
            self._patience_seconds = START_SECONDS_MAX

    def _pause(self, code: int) -> None:
        now = self._now()
        self._deaths = [at for at in self._deaths if now - at < DEATH_WINDOW_SECONDS]
        seconds = pause_seconds(len(self._deaths))
        self._deaths.append(now)
        how = f"exit code {code}" if code >= 0 else signal.strsignal(-code)
        when = f"in {seconds:g} s" if seconds else "now"
        line = (
            f"the daemon ended ({how}): starting it again {when}; descriptors kept: {len(self._store.kept)}"
        )
        log_to_stderr(WARNING, line)
        while not self._stop_asked and (left := now + seconds - self._now()) > 0:
            self._turn(min(left, LOOK_SECONDS))

    def _turn(self, seconds: float) -> None:
        # Rounded up, or the last fraction of a millisecond would be a busy loop.
        self._poll.poll(int(seconds * 1000) + 1)
        try:
            numbers = os.read(self._wake, WAKE_BYTES_MAX)
        except BlockingIOError:
            numbers = b""
        for number in numbers:
            if number in STOP_SIGNALS:
                self._stop_asked = True
                self._forward(number)
            self._reload_asked |= number == signal.SIGHUP
        self._forward_reload()
        self._take_messages()
        # The child, and orphans: in a container we are process 1. At each turn, because two SIGCHLD may
        # arrive as one.
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._child:
                    # From here on its number may be another process's.
                    self._child, self._code = 0, os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            pass
        # Its last message may be STOPPING=1.
        if self._code is not None:
            self._take_messages()

    def _forward(self, number: int) -> None:
        if self._child:
            os.kill(self._child, number)

    def _forward_reload(self) -> None:
        """A child that is not ready yet would die of SIGHUP."""
        if self._reload_asked and self._ready:
            self._reload_asked = False
            self._forward(signal.SIGHUP)

    def _take_messages(self) -> None:
        space = socket.CMSG_SPACE(4 * DESCRIPTORS_MAX)
        for _ in range(MESSAGES_A_TURN):
            try:
                flags = socket.MSG_CMSG_CLOEXEC
                data, ancillary, seen, _ = self._socket.recvmsg(MESSAGE_BYTES_MAX, space, flags)
            except OSError:
                # The socket is empty, or the kernel is out of memory.
                return
            descriptors = array.array("i")
            for _, _, content in ancillary:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
            # Only close the descriptors of a truncated message.
            whole = not seen & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
            self._take(data.decode(errors="replace") if whole else "", list(descriptors))

    def _take(self, text: str, descriptors: list[int]) -> None:
        """Closes descriptors that are not stored; for a barrier that is the whole answer."""
        fields = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
        if fields.get("FDSTORE") == "1":
            for descriptor in descriptors:
                self._store.keep(fields.get("FDNAME", "stored"), descriptor)
            return
        if fields.get("FDSTOREREMOVE") == "1" and "FDNAME" in fields:
            self._store.remove(fields["FDNAME"])
        for descriptor in descriptors:
            os.close(descriptor)
        self._stopping |= fields.get("STOPPING") == "1"
        self._ready |= fields.get("READY") == "1"
        self._was_ready |= self._ready
        self._heard |= fields.get("WATCHDOG") == "1"
        self._forward_reload()


def _exec(command: Sequence[str], kept: list[tuple[str, int]], to_us: int, silent_seconds: float) -> None:
    """In the child: becomes the daemon, with descriptors from 3 on (sd_listen_fds(3)) and ``to_us``."""
    try:
        os.setpgid(0, 0)  # or Ctrl-C would reach the daemon twice, once through us
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # After the kept ones. Unlike the original, a duplicate is inherited.
        above = FIRST_INHERITED + len(kept)
        notify = fcntl.fcntl(to_us, fcntl.F_DUPFD, above)
        environment = os.environ | {
            "NOTIFY_SOCKET": f"{DESCRIPTOR_PREFIX}{notify}",
            "WATCHDOG_PID": str(os.getpid()),
            "WATCHDOG_USEC": str(int(silent_seconds * 1e6)),
        }
        if kept:
            # First move them away: a target number may be in use by another one.
            moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for _, descriptor in kept]
            for target, descriptor in enumerate(moved, FIRST_INHERITED):
                os.dup2(descriptor, target)
            names = ":".join(name for name, _ in kept)
            environment |= {"LISTEN_FDS": str(len(kept)), "LISTEN_FDNAMES": names}
            # sd_listen_fds(3) ignores them without it.
            environment["LISTEN_PID"] = str(os.getpid())
        os.execve(command[0], list(command), environment)
    except OSError as error:
        log_to_stderr(WARNING, f"{command[0]}: {error.strerror}")
    finally:
        # This process must not become a second supervisor.
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    # The child widens its `events.bounds` likewise; the command line has checked the number.
    factor = float(os.environ.get("EBBTIDE_BOUNDS_FACTOR") or 1)
    sys.exit(Supervisor(sys.argv[1:], SILENT_SECONDS_MAX * factor).run())
