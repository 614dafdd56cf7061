"""``ebbtide replay verify``: identical, or the first difference explained; exit code order."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ebbtide.cli.common.guard import PRECEDENCE, worst
from ebbtide.events.base import Fact, Record, shutdown_trace_id
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from tests.cli.bed import Node, whole_shutdown, write
from tests.cli.test_journal import damage
from tests.commands import Run


class FromTheFuture(Fact):
    """An unregistered event of a later version."""

    what: str


def node_after_shutdown() -> Node:
    node = Node()
    node.start()
    node.shut_down()
    return node


def tamper(records: list[Record], kind: str, **changes: object) -> int:
    """Change the last decision of a kind; returns its number."""
    at = max(at for at, record in enumerate(records) if type(record.event).__name__ == kind)
    changed = msgspec.structs.replace(records[at].event, **changes)
    records[at] = msgspec.structs.replace(records[at], event=changed)
    return records[at].seq


def test_identical(run: Run, tmp_path: Path) -> None:
    """The promised shape, and 0."""
    whole_shutdown(tmp_path)
    ran = run("replay", "verify", "--journal", tmp_path, "-o", "json")
    document = json.loads(ran.out)
    assert ran.code == 0
    assert document.pop("seconds") > 0
    assert document.pop("events") == len(node_after_shutdown().records)
    assert document == {
        "kind": "Verification",
        "version": 1,
        "episodes": 1,
        "identical": True,
        "divergence": None,
        "head": head_of(tmp_path),
    }


def test_a_difference_is_explained(run: Run, spoiled: Path) -> None:
    """Record, actor, both versions, the causes down to the fact, and the actor's earlier state."""
    records = node_after_shutdown().records
    seq = tamper(records, "PodEnded", reason="made up")
    write(spoiled, records)
    ran = run("replay", "verify", "--journal", spoiled, "-o", "json")
    document = json.loads(ran.out)
    divergence = document["divergence"]
    assert (ran.code, document["identical"]) == (3, False)
    assert (divergence["seq"], divergence["field"]) == (seq, "reason")
    assert divergence["actor"].startswith("HookActor:")
    assert divergence["expected"]["data"]["reason"] == "made up"
    assert divergence["produced"]["data"]["reason"] == "exit code 0"
    assert [cause["type"] for cause in divergence["causes"]] == ["ContainerExited"]
    assert divergence["causes"][-1]["actor"] == "edge"
    assert divergence["state"]["pod"]["namespace"] == "shop"
    assert divergence["differences"] == [{"path": "reason", "left": "made up", "right": "exit code 0"}]
    assert {"path": "over", "left": None, "right": True} in divergence["stateChanges"]
    assert [reason["name"] for reason in divergence["reasons"]] == ["edited", "other-version"]


# --- whose it is: a head that was noted elsewhere


def head_of(folder: Path) -> str:
    """An externally stored head, as in the format's page: the last record's number and hash."""
    *_, last = History([DirectorySource(folder)]).raw()
    return f"{last.seq}:{last.hash.hex()}"


def test_heads(run: Run, tmp_path: Path) -> None:
    """Each record confirms all before it: an earlier head stays valid, and a cut end does not hide."""
    whole_shutdown(tmp_path)
    raws = list(History([DirectorySource(tmp_path)]).raw())
    (began, *_) = [raw for raw in raws if raw.seq == raw.episode]
    noted, trace = raws[7].hash.hex(), shutdown_trace_id(began.hash)
    for head, code, said in (
        *((head, 0, "as noted: record ") for head in (f"{raws[7].seq}:{noted}", noted.upper(), trace)),
        (f"9999:{'a' * 64}", 5, "its end is lost: it ends at record "),
        ("a" * 64, 5, "no record has that hash"),
        ("a" * 32, 5, "no record has that trace id"),
        *((head, 2, "NUMBER:HASH") for head in ("x", f"0:{'a' * 64}", f"5:{'a' * 32}", "g" * 64)),
    ):
        ran = run("replay", "verify", "--journal", tmp_path, "--head", head)
        assert ran.code == code, head
        assert said in (ran.err if code else ran.out)
        assert "not authentic" not in ran.out


def test_what_differs_after_an_episode_says_nothing_against_it(run: Run, spoiled: Path) -> None:
    """A later episode's difference is not the earlier one's; each is found by ID."""
    node = Node()
    node.start()
    node.shut_down()
    node.cancel()
    node.records, kept = [], node.records
    node.shut_down()
    tamper(node.records, "PlanMade", pods=77)
    write(spoiled, [*kept, *node.records])
    listed = json.loads(run("journal", "ls", "--journal", spoiled, "-o", "json").out)["episodes"]
    assert len(listed) == 2
    assert run("replay", "verify", listed[0]["id"], "--journal", spoiled).code == 0
    assert run("replay", "verify", listed[1]["id"], "--journal", spoiled).code == 3
    assert run("replay", "verify", "--journal", spoiled).code == 3


def test_an_unknown_event_is_6(run: Run, spoiled: Path) -> None:
    """A later version's event type prevents execution; reading still works."""
    records = node_after_shutdown().records
    seq = records[-1].seq + 1
    future = msgspec.structs.replace(
        records[-1], seq=seq, cause=0, actor="edge", event=FromTheFuture(what="x")
    )
    write(spoiled, [*records, future])
    ran = run("replay", "verify", "--journal", spoiled, "-o", "json")
    assert (ran.code, json.loads(ran.out)["identical"]) == (6, False)
    assert "use a newer ebbtide" in ran.err
    shown = run("journal", "show", "--journal", spoiled, "-o", "json")
    assert shown.code == 0
    assert json.loads(shown.out.splitlines()[-1])["type"] == "FromTheFuture"


@pytest.mark.parametrize("command", ["journal ls", "replay verify"])
def test_a_payload_that_does_not_fit_its_type_is_5(run: Run, spoiled: Path, command: str) -> None:
    """An edited journal counts as corrupt: one line and no verdict."""
    records = node_after_shutdown().records
    tamper(records, "InventoryTaken", as_of_ns="yesterday")
    write(spoiled, records)
    ran = run(*command.split(), "--journal", spoiled)
    assert ran.code == 5
    assert ran.err.count("\n") == 1
    assert "InventoryTaken" in ran.err
    assert "identical" not in ran.out


def test_what_cannot_be_read_is_not_called_identical(run: Run, spoiled: Path) -> None:
    """Records after corruption were not compared; JSON has the reason."""
    damage(write(spoiled, node_after_shutdown().records), "corrupt")
    assert run("replay", "verify", "--journal", spoiled).out.startswith("not verified: ")
    document = json.loads(run("replay", "verify", "--journal", spoiled, "-o", "json").out)
    assert (document["identical"], document["divergence"]) == (False, None)
    assert "the journal is corrupt" in document["reason"]


def test_another_logic_is_6(run: Run, tmp_path: Path) -> None:
    """Unknown logic is not guessed; reading still works."""
    write(tmp_path, node_after_shutdown().records, logic="shutdown-2")
    for words in (("verify",), ("state", "--at", "20"), ("what-if", "--grant", "3s")):
        ran = run("replay", *words, "--journal", tmp_path)
        assert (ran.code, "unknown logic 'shutdown-2'" in ran.err) == (6, True), words
    assert run("journal", "show", "--journal", tmp_path).code == 0


@pytest.mark.parametrize("how, code", [("torn", 3), ("corrupt", 5)])
def test_corrupt_before_diverged_before_torn(run: Run, spoiled: Path, how: str, code: int) -> None:
    """6 before 5 before 3 before 4."""
    records = node_after_shutdown().records
    tamper(records, "Armed", attempt=9)
    damage(write(spoiled, records), how)
    assert run("replay", "verify", "--journal", spoiled).code == code


def test_precedence_of_all_codes() -> None:
    """6, 5, 3, 4, then the rest; 0 only without a problem."""
    assert [worst(codes) for codes in ([4, 3, 5, 6, 0], [4, 3, 5], [4, 3], [0, 4], [])] == [6, 5, 3, 4, 0]
    assert sorted(PRECEDENCE) == list(range(7))


@pytest.mark.parametrize("verb", ["timeline", "verify"])
def test_a_shutdown_that_damage_took_away_is_no_wrong_request(run: Run, spoiled: Path, verb: str) -> None:
    """A request for a shutdown after the damage returns the damage's code and names both."""
    segment = write(spoiled, node_after_shutdown().records)
    data = bytearray(segment.read_bytes())
    data[1500] ^= 1
    segment.write_bytes(data)
    ran = run("replay", verb, "last", "--journal", spoiled)
    assert ran.code == 5
    assert "no shutdown 'last' in this journal" in ran.err
    assert "corrupt" in ran.err
