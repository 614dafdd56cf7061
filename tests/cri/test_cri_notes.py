"""What an operator is told of a runtime and its pods, once each time."""

from __future__ import annotations

from actors.edges.cri.notes import NAMED_MAX, NOTICE, WARNING, Notes
from events.model import Pod


def pod(name: str, priority: int | None = None) -> Pod:
    return Pod(uid=name, namespace="ns", name=name, priority=priority)


def told() -> tuple[Notes, list[tuple[int, str]]]:
    said: list[tuple[int, str]] = []
    return Notes(lambda level, line: said.append((level, line))), said


def test_pods_whose_priority_nobody_knows() -> None:
    """They are named, a few of them, with what would help."""
    notes, said = told()
    notes.without_priority([pod("a"), pod("b", 5)], informed=False)
    many = [pod(f"p{number}") for number in range(NAMED_MAX + 2)]
    notes.without_priority(many, informed=True)
    notes.without_priority([pod("b", 0)], informed=True)
    assert said == [
        (WARNING, "1 of 2 pods have no annotation ebbtide/priority and count as priority 0: ns/a"),
        (
            WARNING,
            "7 of 7 pods have no known priority (nor an annotation ebbtide/priority) and count as priority 0:"
            " ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 2 more",
        ),
    ]


def test_a_runtime_that_goes_and_comes() -> None:
    """Each is said once; one that answers from the start is no news."""
    notes, said = told()
    notes.back()
    for _ in range(2):
        notes.away(OSError("nobody there"))
    for _ in range(2):
        notes.back()
    assert said == [
        (WARNING, "container runtime: nobody there; pods that appear are not seen"),
        (NOTICE, "container runtime: it answers again"),
    ]
