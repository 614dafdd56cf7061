"""A snapshot of this machine's node, for every verb that judges it (doctor, plan, status, uninstall), and a
shutdown of it now.

Each part is read once, on first use: all answers of a verb are about the same node. The running daemon's
configuration, mode, sockets, identity and journal count, but options of the command line win.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ebbtide.control import ControlError, ask
from ebbtide.events import bounds
from ebbtide.options import JOURNAL_PATH, RunOptions

if TYPE_CHECKING:
    from ebbtide.actors.policy.planning import Plan, PlanWarning
    from ebbtide.config import Loaded
    from ebbtide.doctor.gather import FoundPods
    from ebbtide.doctor.rules import JournalState, LogindState, NodeSnapshot
    from ebbtide.events.segment import Header
    from ebbtide.events.values import Pod, ShutdownKind, TerminationMode


#: In messages about a refused value.
RUNNING_DAEMON = "the running daemon"


class Status(NamedTuple):
    """``document``: the daemon's answer; None with the ``error``. ``foreign``: the named journal is another
    machine's.
    """

    document: dict[str, Any] | None
    error: str = ""
    foreign: bool = False
    answers: bool = True

    @property
    def mode(self) -> str:
        return str((self.document or {}).get("mode", ""))


class LocalNode:
    """``named``: options of the command line."""

    def __init__(self, named: RunOptions) -> None:
        self._named = named

    @cached_property
    def status(self) -> Status:
        from ebbtide.host import journal_identity

        try:
            document = ask("status", self._named.control_socket)
        except ControlError as error:
            header = self._named_header
            if header is None or header.identity.machine_id == journal_identity("").machine_id:
                return Status(None, str(error))
            why = f"not shown: the journal {self._named.journal} is another machine's"
            return Status(None, why, foreign=True, answers=False)
        own, header = document["journal"], None
        if not Path(own["location"] or "/").is_relative_to(self._named.journal):
            header = self._named_header
        if header is not None and header.journal_id.hex() != own["id"]:
            why = f"not shown: the daemon here writes another journal than {self._named.journal}"
            return Status(None, why, foreign=True)
        return Status(document)

    @property
    def _named_header(self) -> Header | None:
        from ebbtide.cli.common.guard import Refused
        from ebbtide.cli.common.reading import sources_of
        from ebbtide.events.reader import History

        if self._named.journal == JOURNAL_PATH:
            return None
        try:
            segments = History(sources_of([self._named.journal])).segments
        except (OSError, Refused):
            return None
        return next((each.header for each in segments if each.header is not None), None)

    @cached_property
    def _running(self) -> dict[str, Any]:
        """Empty without a daemon, or from an older one."""
        # A second question would wait for a second timeout.
        if self.status.document is None:
            return {}
        try:
            answer: dict[str, Any] = ask("configuration", self._named.control_socket)
        except ControlError:
            # It does not know the request, or has no configuration yet.
            return {}
        return answer

    @cached_property
    def options(self) -> RunOptions:
        """The named journal, else the daemon's own, unless its path exists only in the daemon's container."""
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
        # A named file wins: it may not be installed yet.
        if self._named.config or not running:
            return load_named(self._named.config)
        return configuration_from_values(running["values"], running["sources"], RUNNING_DAEMON)

    def check_files(self) -> None:
        """Reads the files of the daemon's next start or reload. Raises ConfigError."""
        from ebbtide.config import load_named

        # In the daemon's own container they may have other paths.
        theirs = [path for path in map(Path, self._running.get("files", ())) if path.exists()]
        load_named(self._named.config or theirs)

    @property
    def source(self) -> str:
        """Whose configuration, for people; empty without a daemon."""
        if not self._running:
            return ""
        if self._named.config:
            return "with the named configuration, not with the running daemon's"
        return "with the running daemon's configuration"

    @cached_property
    def pods(self) -> FoundPods:
        """Raises ConfigError, PermissionError."""
        from ebbtide.doctor.gather import look_at_pods

        return look_at_pods(self.options, self.configuration.config.node, self.status.mode)

    @cached_property
    def logind(self) -> tuple[LogindState | None, str]:
        """None with the reason."""
        from ebbtide.doctor.gather import look_at_logind

        return look_at_logind()

    @cached_property
    def journal(self) -> JournalState:
        from ebbtide.doctor.gather import look_at_journal

        return look_at_journal(self.options.journal)

    def grant_ns(self, named_ns: int | None) -> int | None:
        """None without logind."""
        return named_ns if named_ns is not None else logind_grant_ns()


def logind_grant_ns() -> int | None:
    """``InhibitDelayMaxUSec``; None without an answer in time."""
    import trio

    from ebbtide.actors.edges.linux.bus import BusError, ask_once, system_bus_address
    from ebbtide.actors.edges.logind_reading import read_grant_ns

    async def look() -> int | None:
        with trio.move_on_after(bounds.now.logind_look_seconds):
            return await ask_once(system_bus_address(), read_grant_ns)
        return None

    try:
        return trio.run(look)
    except BusError:
        return None


#: Halt goes with poweroff, kexec and soft-reboot with reboot, unless configured otherwise.
SHUTDOWN_KINDS: tuple[ShutdownKind, ...] = ("poweroff", "halt", "reboot", "kexec", "soft-reboot")


class KindTermination(NamedTuple):
    kind: str
    means: str
    reason: str


class NodeTermination(NamedTuple):
    """``handover``: under ``api``, pods that no delete ends."""

    mode: str
    node: str
    means: list[KindTermination]
    handover: list[Pod]


class ShutdownNow(NamedTuple):
    """``termination`` None: the pods are no Kubernetes node's."""

    plan: Plan
    pods: list[Pod]
    termination: NodeTermination | None = None


def plan_shutdown(node: LocalNode, files: Sequence[str], grant_ns: int | None) -> ShutdownNow:
    """``files``: manifests in place of this node's pods. Raises ConfigError, ManifestError."""
    from ebbtide.manifests import load_manifests, plan_of

    notes: list[PlanWarning] = []
    # A plan for files does not read this node's pods.
    seen, settings, grant_ns = None, node.configuration.settings, node.grant_ns(grant_ns)
    by: TerminationMode = ""
    if files:
        zero = settings.gate("PodLifecycleSleepActionAllowZero")
        manifests = load_manifests(files, allow_zero_sleep=zero, notes=notes)
    else:
        manifests, seen = list(node.pods.counted(node.logind[0])), node.pods.seen
        by = node.pods.termination_mode(node.logind[0])
    made, pods = plan_of(settings, manifests, grant_ns, means=by), [manifest.pod for manifest in manifests]
    if made.enabled:
        no_daemon = not (files or manifests or seen) and node.status.document is None
        unknown = _unknown(seen, node.options.runtime if no_daemon else None, grant_ns)
        notes += unknown
    # At the end: the first warnings belong to ``warned_pods``.
    made = replace(made, warnings=(*made.warnings, *notes))
    if seen is None:
        return ShutdownNow(made, pods)
    from ebbtide.actors.policy.grace_periods import deletable
    from ebbtide.actors.policy.termination_mode import NodeHealth, choose_mode

    bus, _ = node.logind
    lock = bus is not None and bus.kubelet_lock
    health = NodeHealth(seen.kubelet.active, not seen.runtime.problem, seen.api.answers)
    means = [
        KindTermination(kind, *choose_mode(seen.mode, kind, settings.means, lock, health))
        for kind in SHUTDOWN_KINDS
    ]
    # The runtime ends them after the last wave. Without the taint every DaemonSet recreates its pod.
    left = [pod for pod in pods if not deletable(pod, taints=seen.api.taint is not False)]
    return ShutdownNow(made, pods, NodeTermination(seen.mode, seen.name, means, left))


def _unknown(
    seen: NodeSnapshot | None, without_daemon: Path | None, grant_ns: int | None
) -> Iterator[PlanWarning]:
    """Without this data, an empty plan would look like good news."""
    if seen is not None and (seen.missing or seen.runtime.problem):
        why = f"packages are missing: {', '.join(seen.missing)}" if seen.missing else seen.runtime.problem
        yield "no-pods", f"the container runtime's pods are not known: {why}; see 'ebbtide doctor'"
    elif seen is not None and not seen.api.answers:
        text = "the API server does not answer: priorities are those of the daemon's cache and of manifests"
        yield "priorities-unknown", text
    if without_daemon is not None:
        where = f"no daemon was found in {without_daemon}"
        yield "no-pods", f"{where}: no pod is planned; start it, or name pods with --pods"
    if grant_ns is None:
        text = "logind does not answer: the plan assumes that everything is granted"
        yield "grant-unknown", f"{text}; name a limit with --grant"
