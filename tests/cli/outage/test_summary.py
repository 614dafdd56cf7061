"""`outage ls` and `outage status` from records, at each moment of two outages."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes import config_maps
from ebbtide.actors.edges.kubernetes.config_maps import PREFIX, ConfigMapStorage
from ebbtide.cli.common.output import show
from ebbtide.cli.outage import outage_status as verbs
from ebbtide.cli.outage.outage_common import Cluster, Leading
from ebbtide.cli.outage.outage_status import (
    Controller,
    NodeNow,
    OutageStatus,
    controller_of,
    list_parts,
    parts,
    summary_of,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import OutageBegan
from ebbtide.events.record.outage_record import LeaderBefore, LeaderRecord, OutageFold, OutageRecord
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.commands import same_as_golden
from tests.otel.outage_story import OutageTeller, recovered, wrong
from tests.replay import outages

GOLDEN = Path(__file__).parent / "golden"
NOW = NodeNow("uid-node", "Unknown", "ours", "3 min ago")


def after(teller: OutageTeller, steps: int | None = None) -> OutageRecord:
    fold: OutageFold | None = None
    for header, records in teller.steps[:steps]:
        for raw in records:
            if raw.tag == OutageBegan.__name__ and fold is None:
                fold = OutageFold(raw.episode, records[0], header, LeaderBefore())
                for earlier in records[: records.index(raw)]:
                    fold.take(earlier, header, None)
            if fold is not None:
                fold.take(raw, header, None)
    assert fold is not None
    return fold.finish()


def now_of(record: OutageRecord) -> int:
    return record.started_wall_ns + 3 * 3600 * NS_PER_SECOND


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    """The leader; one row per moment: the proof, the taint, what hangs, and the reason; the alarms."""
    moments = [*(after(recovered(), steps) for steps in range(2, 18)), after(wrong(), 11)]
    for each in list_parts(Controller("one-5f_1234"), moments, now_of(moments[0])):
        show(each)
    same_as_golden(GOLDEN / "ls.txt", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "record"), [("recovering", after(recovered(), 11)), ("wrong", after(wrong(), 11))]
)
def test_one_node(name: str, record: OutageRecord, capsys: pytest.CaptureFixture[str]) -> None:
    found = OutageStatus(
        node="node-1",
        controller=Controller("a_1234", "no record could be stored for 34 s: 500"),
        now=NOW,
        outage=summary_of(record),
        damaged_journals=[],
    )
    for each in parts(found, record, now_of(record)):
        show(each)
    assert found.outage is not None
    print(found.outage.reminder)
    same_as_golden(GOLDEN / f"status-{name}.txt", capsys.readouterr().out)


LED = replace(after(recovered(), 11), leaders=(LeaderRecord(at_ns=0, replica="one-5f", version="1"),))


@pytest.mark.parametrize(
    ("leading", "stale"),
    [
        (Leading("one-5f_1234"), ""),
        (Leading("one-5f_1234", "no record could be stored for 34 s: 500"), "no record could"),
        (Leading("another_1234"), "the new leader has not read these Nodes yet: node-1"),
        (Leading(""), "no controller leads"),
        (Leading(None), ""),
    ],
)
def test_the_list_begins_with_the_leader(leading: Leading, stale: str) -> None:
    found = controller_of(leading, [LED])
    assert found.stale.startswith(stale) if stale else found.stale == ""
    assert found.leader == leading.holder


@pytest.mark.parametrize("closed", [False, True])
async def test_the_same_list_of_many_journals(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a list of all or of these by name; also with a foreign object between pieces, and with damage."""
    server = ConfigMaps(Draws(1))
    scripts = ["outage-leaders", "outage-recovered", "outage-six-minutes", "outage-recovered"]
    for number, script in enumerate(scripts):
        place = ConfigMapStorage(server, "ebbtide", f"uid-{number}", "writer", node=f"node-{number}")
        await place.acquire("")
        place.at_rest = script == "outage-recovered"
        for name, data in outages.script(script).files.items():
            file = await place.create(name)
            for at in range(0, len(data), 2048):
                await file.write(bytes(data[at : at + 2048]))
    parting = f"{PREFIX}-uid-0-0000000001-x"
    labels = {"ebbtide.dev/node-uid": "strange"}
    server.objects[parting] = {"metadata": {"name": parting, "uid": "x", "labels": labels}}
    del server.objects[f"{PREFIX}-uid-2-0000000004"]
    found = []
    for most in (0, 100):
        monkeypatch.setattr(config_maps, "NAMED_MAX", most)
        found.append(await verbs.read_outages(Cluster(server), "ebbtide", closed=closed))
    together, by_name = found
    assert together == by_name
    assert [(each.node_uid, each.state) for each in together.damaged] == [("uid-2", "corrupt")]
    assert together.journals == len(scripts)
    assert len(together.records) == (4 if closed else 2)
