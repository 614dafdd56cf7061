"""One snapshot of this machine's node, for every verb that judges it: doctor, plan, status, uninstall.

Each part is looked at when it is first asked for, and once, so that all of a verb's answers are about the
same node, and ``status`` pays for one question on the control socket and no more.

What counts is the node as it runs. Where a daemon answers, its configuration counts and not the default file,
which may have changed since it was read; so do its mode, its sockets, its identity for the API and its
journal. What the command line names goes before all of that, since who names something wants to know about
that. Where no daemon answers, everything is as a daemon that starts now would have it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.control import ControlError, ask
from ebbtide.events import bounds
from ebbtide.options import JOURNAL_PATH, RunOptions

if TYPE_CHECKING:
    from ebbtide.config import Loaded
    from ebbtide.doctor.gather import FoundPods
    from ebbtide.doctor.snapshot import JournalState, LogindState


#: What a daemon's configuration is called where one of its values is refused.
RUNNING_DAEMON = "the running daemon"


class Status(NamedTuple):
    """``document`` is the daemon's answer; None with the ``error`` when there was none."""

    document: dict[str, Any] | None
    error: str = ""

    @property
    def mode(self) -> str:
        """Empty where no daemon answers."""
        return str((self.document or {}).get("mode", ""))


class LocalNode:
    """``named``: what the command line says; empty or None where it says nothing."""

    def __init__(self, named: RunOptions) -> None:
        self._named = named

    @cached_property
    def status(self) -> Status:
        try:
            return Status(ask("status", self._named.control_socket))
        except ControlError as error:
            return Status(None, str(error))

    @cached_property
    def _running(self) -> dict[str, Any]:
        """What the daemon runs with; nothing where none answers, or one of an older version."""
        # A second question to a daemon that did not answer the first would be a second wait.
        if self.status.document is None:
            return {}
        try:
            answer: dict[str, Any] = ask("configuration", self._named.control_socket)
        except ControlError:
            # It knows no such request, or has not read a configuration yet: as if there were none to ask.
            return {}
        return answer

    @cached_property
    def options(self) -> RunOptions:
        """What is named, else what the daemon was started with. A journal that is not here (the daemon's own
        container has it under another path) is not taken over.
        """
        named, running = self._named, self._running
        journal = Path(running.get("journal") or named.journal)
        if named.journal != JOURNAL_PATH or not journal.is_dir():
            journal = named.journal
        cri = running.get("cri")
        return named._replace(
            journal=journal,
            cri=named.cri or (Path(cri) if cri else None),
            kubeconfig=named.kubeconfig or running.get("kubeconfig"),
            node_name=named.node_name or running.get("nodeName"),
        )

    @cached_property
    def configuration(self) -> Loaded:
        """Raises ConfigError."""
        from ebbtide.config import configuration_from_values, load_named

        running = self._running
        # Whoever names a file wants to know about that file: before it is installed, say.
        if self._named.config or not running:
            return load_named(self._named.config)
        return configuration_from_values(running["values"], running["sources"], RUNNING_DAEMON)

    def check_files(self) -> None:
        """Read the files that the daemon's next start or reload will read. Raises ConfigError."""
        from ebbtide.config import load_named

        # In the daemon's own container they may have other paths than here.
        theirs = [path for path in map(Path, self._running.get("files", ())) if path.exists()]
        load_named(self._named.config or theirs)

    @property
    def source(self) -> str:
        """Whose configuration this is, for people; empty where no daemon runs."""
        if not self._running:
            return ""
        if self._named.config:
            return "with the named configuration, not with the running daemon's"
        return "with the running daemon's configuration"

    @cached_property
    def pods(self) -> FoundPods:
        """Those that a shutdown would end. Raises ConfigError, PermissionError."""
        from ebbtide.doctor.gather import look_at_pods

        return look_at_pods(self.options, self.configuration.config.node, self.status.mode)

    @cached_property
    def logind(self) -> tuple[LogindState | None, str]:
        """All that logind says, or why it says nothing."""
        from ebbtide.doctor.gather import look_at_logind

        return look_at_logind()

    @cached_property
    def journal(self) -> JournalState:
        """By a whole reading."""
        from ebbtide.doctor.gather import look_at_journal

        return look_at_journal(self.options.journal)

    def grant_ns(self, named_ns: int | None) -> int | None:
        """``named_ns``, or logind's limit; None where there is no logind to ask."""
        return named_ns if named_ns is not None else logind_grant_ns()


def logind_grant_ns() -> int | None:
    """logind's ``InhibitDelayMaxUSec``; None where it does not answer in time."""
    import trio

    from ebbtide.actors.edges.linux.bus import BusError, ask_once, system_bus_address
    from ebbtide.actors.edges.logind.manager import read_grant_ns

    async def look() -> int | None:
        with trio.move_on_after(bounds.now.logind_look_seconds):
            return await ask_once(system_bus_address(), read_grant_ns)
        return None

    try:
        return trio.run(look)
    except BusError:
        return None
