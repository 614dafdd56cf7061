"""A pod as an inventory shows it: what the runtime has of it, and over that what the API server told of it.

It is put together when it is looked at, so that what is learned of a pod later counts. A container that has
ended well adds nothing to a pod that goes down; one that ended badly, or nobody knows how, is shown as not
running: with it the pod's end is no success, whatever its other containers do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from actors.edges.cri.annotations import hook_of
from actors.edges.cri.table import ContainerEntry, PodEntry
from actors.edges.kubernetes.calling import Known, Lookup
from events.model import Container, Pod

RUNNING = "Running"


def known_of(pod: PodEntry, lookup: Lookup | None) -> Known | None:
    """By its UID; a static pod also by its name, since nobody but the runtime may know its UID."""
    if lookup is None:
        return None
    found = lookup.find(pod.uid)
    return lookup.find_named(pod.namespace, pod.name) if found is None and pod.static else found


def view(pod: PodEntry, known: Known | None = None) -> Pod:
    """What is known wins over what the runtime's labels and annotations say."""
    sidecars: Sequence[str] = tuple(pod.sidecars)
    ended: dict[str, int] = {}
    priority, grace_seconds = pod.priority, pod.grace_seconds
    if known is not None:
        sidecars, ended = known.sidecars, known.ended
        priority = priority if known.priority is None else known.priority
        grace_seconds = grace_seconds if known.grace_seconds is None else known.grace_seconds
    made = [_container(entry, entry.spec.name in sidecars) for entry in pod.containers.values()]
    made += _failed(ended, pod.containers)
    order = known.sidecars + known.containers if known is not None else ()
    return Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        priority=priority,
        grace_seconds=grace_seconds,
        containers=_sorted([each for each in made if each is not None], order),
        static=pod.static or (known is not None and known.static),
        daemon=known is not None and known.daemon,
        tolerates_all=known is not None and known.tolerates_all,
        volumes=known is not None and known.volumes,
        owner=known.owner if known is not None else "",
    )


def _container(entry: ContainerEntry, sidecar: bool) -> Container | None:
    if not entry.running and entry.end.exit_code == 0:
        return None
    spec = entry.spec
    return Container(
        name=spec.name,
        hook=hook_of(spec.pre_stop) if entry.running else None,
        stop_signal=spec.stop_signal,
        sidecar=sidecar,
        running=entry.running,
    )


def _failed(ended: dict[str, int], but: Iterable[str]) -> list[Container | None]:
    return [Container(name=name, running=False) for name, code in ended.items() if code and name not in but]


def _sorted(made: Sequence[Container], order: Sequence[str]) -> tuple[Container, ...]:
    """Sidecars first, then as in the manifest; what is not in it stays behind, in the order of its making."""
    places = {name: place for place, name in enumerate(order)}
    return tuple(sorted(made, key=lambda each: (not each.sidecar, places.get(each.name, len(places)))))


def cached(known: Known) -> Pod | None:
    """A pod that only the API server, or its cache, tells of: its hooks are not known. None: nothing runs."""
    running = [name for name in known.containers if name not in known.ended]
    if known.phase != RUNNING or not running or not known.uid:
        return None
    return told_of(known, (*known.sidecars, *running))


def told_of(known: Known, names: Iterable[str]) -> Pod:
    """A pod of which the runtime shows nothing, with these containers."""
    made: list[Container | None] = [Container(name=name, sidecar=name in known.sidecars) for name in names]
    made += _failed(known.ended, ())
    return Pod(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        priority=known.priority,
        grace_seconds=known.grace_seconds,
        containers=tuple(each for each in made if each is not None),
        static=known.static,
        daemon=known.daemon,
        tolerates_all=known.tolerates_all,
        volumes=known.volumes,
        owner=known.owner,
    )


def with_more(pod: Pod, names: Collection[str], known: Known) -> Pod:
    """The pod as the runtime shows it, and these containers of it that run as well (with unknown hooks)."""
    kept = [each for each in pod.containers if each.name not in names]
    more = [Container(name=name, sidecar=name in known.sidecars) for name in names]
    return replace(pod, containers=_sorted([*kept, *more], known.sidecars + known.containers))
