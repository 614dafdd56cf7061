"""Sources of proof in the cluster itself: statements on the Node, and the node's kubelet.

A statement becomes a fact when it appears and when it is removed (`StatementsEdge`), and at each reading
(`StatementSource`).
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Mapping

import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said
from ebbtide.actors.interfaces import Clock, Edge, Effect, Outlet, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.outage_events import EvidenceRead, Source

NOT_SAFE = "pods or mounts were left when it was written"
OTHER_NODE, OTHER_BOOT = "it is about another Node of that name", "it is about another boot"
TAKEN_BACK, OVER = "it was taken back", "its time is over"
#: The core believes a contradiction for ten minutes.
AGAIN_SECONDS = 300.0

#: A contradiction first: else a proof would be accepted and voided at once.
STATED: tuple[Source, ...] = ("peer", "cloud-taint", "certificate", "declared")
#: Read whatever the pool believes: a contradiction only delays the cure.
CONTRADICT: tuple[Source, ...] = ("peer",)


class StatementSource:
    """``name``: the person. ``told``: the last facts, by name."""

    def __init__(self, source: Source, view: ClusterView, node: str, node_uid: str) -> None:
        self.source, self.told = source, dict[str, Said]()
        self._view, self._node, self._uid = view, node, node_uid

    @property
    def name(self) -> str:
        node = self._view.of(self._node).node
        if node is None:
            return ""
        said = {"declared": node.declared, "peer": node.alive}.get(self.source)
        return said.by if said is not None else ""

    async def read(self, machine: Machine) -> Said | None:
        if (said := self.said()) is not None:
            self.told[self.name] = said
        return said

    def said(self) -> Said | None:
        """None: no such statement, or another Node."""
        observed, source = self._view.of(self._node), self.source
        node = observed.node
        if node is None or node.uid != self._uid:
            return None
        if source == "cloud-taint" and node.cloud_off:
            mark, status_mark = observed.cloud_marks
            return Said("off", "nodeUID", node.uid, mark=mark, status_mark=status_mark)
        if source == "certificate" and (made := node.certificate) is not None:
            if not made.safe:
                return Said("unknown", boot_id=made.boot_id, error=NOT_SAFE)
            return Said("off", "nodeUID", node.uid, boot_id=made.boot_id)
        if source == "declared" and (said := node.declared) is not None:
            if said.problem:
                return Said("unknown", error=said.problem)
            return Said("off", "nodeUID", said.node_uid, said.boot_id, said.mark, said.seconds, said.at)
        if source == "peer" and (said := node.alive) is not None:
            # ``off`` only ends the contradiction.
            if said.problem or said.node_uid != node.uid:
                return Said("unknown", error=said.problem or OTHER_NODE)
            if said.boot_id not in ("", node.boot_id):
                return Said("unknown", error=OTHER_BOOT)
            if observed.alive_until <= trio.current_time():
                return Said("off", error=OVER)
            return Said("on", "nodeUID", node.uid, said.boot_id)
        return None


class StatementsEdge(Edge):
    """A removed statement becomes ``unknown``, a removed contradiction ``off``.

    Each is recorded, and a kubelet can write a hundred a second. A contradiction and the end of a proof come
    at once: a taint must not rest on the statement. Before one repeats, its opposite waits for its time.
    """

    def __init__(self, sources: list[StatementSource], view: ClusterView, node: str, clock: Clock) -> None:
        self._sources, self._view, self._node, self._clock = sources, view, node, clock
        self.effects: Mapping[type[Order], Effect] = {}

    async def run(self, outlet: Outlet) -> None:
        await self._view.listed()
        told_at = on_at = -math.inf
        while True:
            now, begun_ns, observed = trio.current_time(), self._clock.mono_ns(), self._view.of(self._node)
            news, next_at, wakes = observed.news, told_at + observed.report_seconds, [math.inf]
            # Reversed: a proof ends before a contradiction.
            told = {(each, name): was for each in self._sources[::-1] for name, was in each.told.items()}
            found = {(each, each.name): said for each in self._sources if (said := each.said())}
            opposed = any(said.verdict == "on" for said in told.values())
            for who in found | told:
                (source, name), last, contradicts = who, told.get(who), who[0].source in CONTRADICT
                said = found.get(who, Said("off", error=TAKEN_BACK) if contradicts else Said("unknown"))
                again = said.verdict == "on" and (not opposed or on_at + AGAIN_SECONDS <= now)
                if said == last and not again:
                    continue
                if next_at <= now:
                    told_at = now
                elif not again:
                    wakes.append(next_at)
                    if contradicts or last is None or last.verdict != "off":
                        continue
                    said = Said("unknown")
                source.told.pop(name, None)
                if who in found:
                    source.told[name] = said
                fact = EvidenceRead(source=source.source, name=name, begun_ns=begun_ns, **said._asdict())
                await outlet.put(fact)
                on_at = now if said.verdict == "on" else on_at
            wakes += [on_at + AGAIN_SECONDS for said in found.values() if said.verdict == "on"]
            wakes.append(observed.alive_until)
            with trio.move_on_at(min(at for at in wakes if at > now)):
                await news.wait()


#: In DER: the type commonName, then a UTF8String or a PrintableString with its length.
_COMMON_NAME = re.compile(rb"\x06\x03\x55\x04\x03[\x0c\x13](.)", re.DOTALL)


def certified_nodes(der: bytes) -> set[str]:
    """A kubelet's own certificate has the name ``NODE@TIME``, one from the API ``system:node:NODE``."""
    names = [der[at.end() :][: at[1][0]].decode(errors="replace") for at in _COMMON_NAME.finditer(der)]
    return {each.removeprefix("system:node:").partition("@")[0] for each in names}


class KubeletSource:
    """A kubelet that answers can only contradict a proof. Silence is no proof.

    A TLS handshake is enough and needs no rights. The certificate is not verified: a false answer only delays
    the cure. Any kubelet may list this Node's address, so an answer there counts unless the certificate names
    only such another Node (an authority's name may be a Node's).
    """

    source: Source = "kubelet"
    name = ""

    def __init__(self, view: ClusterView, node: str) -> None:
        self._view, self._node = view, node
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def read(self, machine: Machine) -> Said | None:
        """None: the Node names no address."""
        node = self._view.of(self._node).node
        if node is None or node.uid != machine.node_uid or not node.addresses:
            return None
        seconds = bounds.now.source_kubelet_seconds / len(node.addresses)
        error = ""
        for address in node.addresses:
            try:
                with trio.fail_after(seconds):
                    plain = await trio.open_tcp_stream(address, node.port)
                    try:
                        stream = trio.SSLStream(plain, self._context)
                        await stream.do_handshake()
                        named = certified_nodes(stream.getpeercert(binary_form=True) or b"")
                    finally:
                        await trio.aclose_forcefully(plain)
            except trio.TooSlowError:
                error = "no answer"
            except (OSError, trio.BrokenResourceError) as failure:
                error = error_text(failure.__cause__ or failure)
            else:
                # A later machine may have got the address.
                others = {each.name for each in self._view.there() if address in each.addresses} - {node.name}
                if node.name in named or named.isdisjoint(others):
                    return Said("on", "nodeUID", machine.node_uid)
                error = "another Node has its address"
        return Said("unknown", error=error)
