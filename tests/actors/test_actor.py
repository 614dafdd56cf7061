"""The transition table: its refusals, and detection of a wrong row."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal, get_args

import pytest

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Machines,
    Result,
    Row,
    State,
    Transitions,
    UndeclaredTransition,
    ignored,
)
from ebbtide.actors.config_reconciler import CONFIG, ConfigState
from ebbtide.actors.fallback import Phase
from ebbtide.actors.kubelet import KUBELET, KubeletState
from ebbtide.actors.logind import enter_shutdown_phase, lock_phase, shutdown_phase
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, System
from ebbtide.events.base import Event, Stamp
from ebbtide.events.decisions import ActorFailed, ConfigAdopted, Leave
from ebbtide.events.facts import SettingsLoaded
from ebbtide.events.values import Settings


class Light(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: str = "red"


def _to(phase: str, *decisions: Event) -> Any:
    def handle(state: Light, event: Event, now: int) -> Result:
        return Light(phase=phase), decisions

    return handle


def _table(*rows: Row | tuple[Row, ...]) -> Transitions:
    return Transitions(("red", "green"), lambda state: state.phase, *rows)


def _system(transitions: Transitions) -> System:
    """In which the first actor has this table."""
    system = System()
    slot = system.slots[(CONFIG.name, "")]
    slot.kind = ActorType(CONFIG.name, Light, transitions, deadline=lambda state: NEVER_NS)
    slot.transitions = transitions
    slot.state = Light()
    return system


def _failures(system: System) -> list[str]:
    records = system.step(SettingsLoaded(settings=Settings()), Stamp(1, 1))
    return [record.event.error for record in records if isinstance(record.event, ActorFailed)]


def test_a_pair_has_one_row() -> None:
    with pytest.raises(ValueError, match="SettingsLoaded in phase 'green' has two rows"):
        _table(Row(EVERY, SettingsLoaded, _to("red")), *ignored("green", SettingsLoaded))


@pytest.mark.parametrize(
    "row",
    [
        Row("blue", SettingsLoaded, _to("red")),
        Row("", SettingsLoaded, _to("red")),
        Row("=", SettingsLoaded, _to("red")),
        Row("red", SettingsLoaded, _to("red"), "blue"),
        Row("red", SettingsLoaded, _to("red"), ""),
    ],
)
def test_an_unknown_phase_is_refused(row: Row) -> None:
    """In either column, and if none is named."""
    with pytest.raises(ValueError, match="are not phases: known are red, green"):
        _table(row)


def test_a_row_of_one_region_stands_for_every_phase_of_the_other() -> None:
    """The region without a phase in its result stays."""
    table = Transitions(
        (("red", "green"), ("night", "day")),
        lambda state: state.phase,
        Row("red", SettingsLoaded, _to("green+day"), "green"),
        Row("green", SettingsLoaded, _to("red+day"), "= red day"),
    )
    assert table.phases == ("red+night", "red+day", "green+night", "green+day")
    assert list(table.rows) == [(phase, SettingsLoaded) for phase in table.phases]
    assert table.targets("red+night", SettingsLoaded) == ("green+night",)
    assert sorted(table.targets("green+night", SettingsLoaded)) == [
        "green+day",
        "green+night",
        "red+day",
        "red+night",
    ]
    with pytest.raises(UndeclaredTransition, match=r"has led to 'green\+day': its row says green\+night"):
        table.check(SettingsLoaded, Light(phase="red+night"), Light(phase="green+day"), ())


def test_rows_of_two_regions_may_not_meet() -> None:
    """An event belongs to one region; otherwise two rows would match."""
    with pytest.raises(ValueError, match=r"SettingsLoaded in phase 'red\+night' has two rows"):
        Transitions(
            (("red", "green"), ("night", "day")),
            lambda state: state.phase,
            Row("red", SettingsLoaded, _to("red")),
            Row("night", SettingsLoaded, _to("red")),
        )


def test_the_row_of_the_phase_is_carried_out() -> None:
    """The phase decides an event's effect; an ignored event has no effect."""
    system = _system(
        _table(Row("red", SettingsLoaded, _to("green"), "green"), ignored("green", SettingsLoaded))
    )
    states = []
    for _ in range(2):
        assert _failures(system) == []
        states.append(system.slots[(CONFIG.name, "")].state)
    assert states == [Light(phase="green")] * 2
    assert states[0] is states[1]


def test_an_absent_pair_is_refused() -> None:
    """The actor receives the event in another phase only: a shutdown must not be the first to reach this."""
    with pytest.raises(ValueError, match="without a row: SettingsLoaded in phase 'red'; write one"):
        _table(Row("green", SettingsLoaded, _to("red")))


def test_a_phase_that_nobody_has_named_is_a_failed_actor() -> None:
    """Its state stays, and the failure is a record."""
    system = _system(_table(*ignored(EVERY, SettingsLoaded)))
    system.slots[(CONFIG.name, "")].state = Light(phase="blue")
    assert _failures(system) == ["KeyError"]
    assert system.slots[(CONFIG.name, "")].state == Light(phase="blue")


def test_a_phase_that_the_row_does_not_name_is_found() -> None:
    """The check bites: the handler leads elsewhere."""
    rest = ignored("green", SettingsLoaded)
    system = _system(_table(Row("red", SettingsLoaded, _to("green")), rest))
    with pytest.raises(UndeclaredTransition, match="has led to 'green': its row says red"):
        _failures(system)


def test_a_decision_that_the_row_does_not_name_is_found() -> None:
    """The check bites: the handler decides something else."""
    row = Row("red", SettingsLoaded, _to("red", Leave(reason="")), decides=(ConfigAdopted,))
    with pytest.raises(UndeclaredTransition, match="has decided Leave: its row does not say so"):
        _failures(_system(_table(row, ignored("green", SettingsLoaded))))


def test_a_daemon_does_without_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong row must not cost a shutdown."""
    monkeypatch.setattr(System, "checked", False)
    row = Row("red", SettingsLoaded, _to("green", Leave(reason="")))
    system = _system(_table(row, ignored("green", SettingsLoaded)))
    assert _failures(system) == []
    assert system.slots[(CONFIG.name, "")].state == Light(phase="green")


@pytest.mark.parametrize("actor", ACTOR_TYPE_BY_NAME.values(), ids=lambda actor: actor.name)
def test_deleting_a_row_is_found(actor: ActorType) -> None:
    """A missing row makes the table invalid, or drops an event, which changes the pictures from the tables
    (tests/test_docs.py).
    """
    table = actor.transitions
    for machine in table.machines if isinstance(table, Machines) else (table,):
        own = dict.fromkeys(map(id, machine.rows.values()))
        assert [row for row in machine.table if id(row) not in own] == []


BOTH = (False, True)
#: The fields that determine an actor's phases, with their values.
FIELDS: dict[str, dict[str, tuple[object, ...]]] = {
    "LogindActor": {
        "phase": ("off", "arming", "armed", "listening", "waiting"),
        "retry_at_ns": (1, NEVER_NS),
        **dict.fromkeys(("refused", "enabled", "in_episode", "released", "finishing", "leaving"), BOTH),
    },
    "KubeletActor": {
        "mode": ("", "auto"),
        "means": ("", "observe", "api", "cri"),
        "stop_key": ("", "k"),
        "start_key": ("", "k"),
        "retry_at_ns": (1, NEVER_NS),
        **dict.fromkeys(("handed_over", "cancelled", "stopped"), BOTH),
    },
    "NodeStatusActor": {
        "flush_by_ns": (0, NEVER_NS),
        **dict.fromkeys(("in_episode", "kubelet_stopped", "kubelet_stopping", "asked"), BOTH),
    },
    "ProofActor": {
        "reading": ("idle", "asking", "pausing"),
        "on": ({}, {"peer node-2": 1}),
        "proof": ("", "cloud"),
    },
    "FallbackActor": {"phase": get_args(Phase)},
}


def states(actor: str) -> list[Any]:
    kind, fields = ACTOR_TYPE_BY_NAME[actor].state, FIELDS[actor]
    return [kind(**dict(zip(fields, values, strict=True))) for values in product(*fields.values())]


@pytest.mark.parametrize("actor", FIELDS)
def test_every_state_is_in_one_phase_of_each_region(actor: str) -> None:
    """Checkpoints and digests need a phase for any state; and each phase has a state."""
    table = ACTOR_TYPE_BY_NAME[actor].transitions
    for machine in table.machines if isinstance(table, Machines) else (table,):
        assert {machine.phase_of(state) for state in states(actor)} == set(machine.phases)


def test_a_made_default_is_found() -> None:
    """msgspec omits a default by identity, so it would encode this one."""
    row = Row("red", SettingsLoaded, _to("".join(["r", "ed"])))
    with pytest.raises(UndeclaredTransition, match="has made phase='red', which equals its default"):
        _failures(_system(_table(row, ignored("green", SettingsLoaded))))


@pytest.mark.parametrize(
    "state, phase",
    [
        (ConfigState(), "up+at-rest"),
        (ConfigState(order_open="k"), "up+ordered"),
        (ConfigState(retry_at_ns=1), "up+retry-due"),
        (ConfigState(in_episode=True), "in-shutdown+at-rest"),
        (ConfigState(in_episode=True, order_open="k", retry_at_ns=1), "in-shutdown+ordered"),
        (ConfigState(in_episode=True, retry_at_ns=NEVER_NS - 1), "in-shutdown+retry-due"),
        (KubeletState(), "no-node+untouched"),
        (KubeletState(mode="auto"), "idle+untouched"),
        (KubeletState(mode="auto", means="api"), "api+untouched"),
        (KubeletState(mode="auto", means="api", handed_over=True, stop_key="k"), "handed-over+stopping"),
        (KubeletState(mode="auto", means="cri", stopped=True, cancelled=True), "cancelled+stopped"),
        (KubeletState(mode="auto", stopped=True, retry_at_ns=1), "idle+start-due"),
        (KubeletState(mode="auto", stopped=True, start_key="k"), "idle+starting"),
        (KubeletState(mode="auto", means="cri", start_key="k", stop_key="l"), "cri+stopping"),
    ],
)
def test_each_state_is_in_one_phase_per_region(state: State, phase: str) -> None:
    """An open order comes before the time of the next one; a stop of the kubelet waits for an open start."""
    transitions = CONFIG.transitions if isinstance(state, ConfigState) else KUBELET.transitions
    assert transitions.phase_of(state) == phase
    assert phase in transitions.phases


@pytest.mark.parametrize("phase", ["up", "cancelled", "preparing"])
def test_logind_enters_the_phase_that_follows_from_its_state(
    phase: Literal["up", "cancelled", "preparing"],
) -> None:
    """From every phase, except overtime, which ends with the process, and a node that is switched off."""
    for state in states("LogindActor"):
        entered = enter_shutdown_phase(state, phase)
        assert lock_phase(entered) == lock_phase(state)
        if state.enabled and not state.leaving:
            assert shutdown_phase(entered) == phase
