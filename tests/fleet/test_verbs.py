"""``ebbtide fleet`` on sixty nodes, against the truth and against other verbs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ebbtide import replay
from ebbtide.cli.common.guard import CORRUPT, DONE, NOT_SO, WRONG
from ebbtide.cli.common.saving import write_journal
from ebbtide.config import load_named
from ebbtide.events.decisions import PodEnded
from ebbtide.extras import EXTRAS
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of
from ebbtide.replay.whatif.record import WrongChange
from tests.commands import Ran, Run
from tests.fleet.conftest import Nodes
from tests.fleet.nodes import a_node, shipped, shipped_redacted
from tests.replay.sim import truth
from tests.replay.sim.columns import PAGE

NAMES = ("blue", "green")


def document(ran: Ran) -> Any:
    return json.loads(ran.out)


# --- verify


def test_verify_counts_what_there_is(run: Run, nodes: Nodes) -> None:
    """Each journal once, including the duplicate and the two with a common ID prefix."""
    ran = run("fleet", "verify", "--journals", nodes.folder, "--jobs", "1", "-o", "json")
    assert ran.code == DONE
    found = document(ran)
    assert found["states"] == {"identical": len(nodes.machines)}
    assert found["events"] == sum(len(machine.journal.records) for machine in nodes.machines)
    assert found["notIdentical"] == []


def test_verify_says_whose_begin_is_missing(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    """Intact and identical, but the shutdown is incomplete; unreadable journals have a line."""
    nodes.copied(tmp_path, "node-5")
    min((tmp_path / "node-5").iterdir()).unlink()
    words = ("fleet", "verify", "--journals", tmp_path, "--jobs", "1")
    ran = run(*words, "-o", "json")
    (headless,) = document(ran)["headless"]
    assert (headless["node"], document(ran)["states"]) == ("node-5", {"identical": 1})
    assert f"it begins in the middle of {headless['shutdown']}" in ran.err
    assert headless["shutdown"] in run("replay", "verify", "--journal", tmp_path / "node-5").out


def test_verify_names_what_is_not_whole(run: Run, nodes: Nodes) -> None:
    ran = run("fleet", "verify", "--journals", nodes.hurt, "--jobs", "1")
    assert ran.code == CORRUPT
    lines = [line.split() for line in ran.out.splitlines()]
    assert [line[:2] for line in lines[1:4]] == [["corrupt", "1"], ["torn", "1"], ["identical", "2"]]
    ids = {machine.plan.node: machine.journal.journal_id.hex() for machine in nodes.machines}
    assert [line[:4] for line in lines[6:]] == [
        ["node-2", "torn", ids["node-2"], str(nodes.hurt / "node-2")],
        ["node-3", "corrupt", ids["node-3"], str(nodes.hurt / "node-3")],
    ]


def test_verify_finds_another_decision(
    run: Run, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version with other decisions: diverged, by name, exit code 3."""
    nodes.copied(tmp_path, "node-1")
    monkeypatch.setattr("ebbtide.actors.policy.grace_periods.FLOOR_NS", 3 * 10**9)
    ran = run("fleet", "verify", "--journals", tmp_path, "--jobs", "1", "-o", "json")
    (named,) = document(ran)["notIdentical"]
    assert (ran.code, named["node"], named["state"]) == (3, "node-1", "diverged")
    assert named["why"]


# --- what-if


def expected(nodes: Nodes, config: Path) -> tuple[Counter[str], list[str]]:
    """Pods per change, and the nodes without an answer, one journal at a time."""
    settings = load_named((config,)).settings
    changes, unasked = Counter[str](), list[str]()
    for machine in nodes.machines:
        for shutdown in replay.open(nodes.folder / machine.plan.node).shutdowns():
            try:
                found = replay.what_if(shutdown, settings=settings)
            except WrongChange:
                unasked.append(machine.plan.node)
            else:
                changes.update(side.change for side in found.pods)
    return changes, unasked


def test_what_if_is_the_sum_of_all(run: Run, nodes: Nodes, short: Path) -> None:
    """Saved, lost and uncertain are sums over shutdowns; also by workload, node and night."""
    ran = run("fleet", "what-if", "--journals", nodes.folder, "--config", short, "--jobs", "1", "-o", "json")
    found = document(ran)
    changes, unasked = expected(nodes, short)
    fields = {
        "saved": "saved",
        "lost": "lost",
        "perhaps-saved": "perhapsSaved",
        "perhaps-lost": "perhapsLost",
    }
    assert changes["lost"] > 5
    assert {name: found[field] for name, field in fields.items()} == {name: changes[name] for name in fields}
    assert (found["journals"], found["pods"]) == (len(nodes.machines), changes.total())
    assert sorted(each["node"] for each in found["notAsked"]) == sorted(unasked)
    assert found["shutdowns"] - found["asked"] == len(unasked) == found["notAskedCount"]
    for part in ("workloads", "nodes"):
        for field in fields.values():
            assert sum(each[field] for each in found[part]) == found[field]
    lost = [sum(pod["change"] == "lost" for pod in night["pods"]) for night in found["nights"]]
    assert lost == sorted(lost, reverse=True)
    assert sum(lost) == found["lost"]
    worst = found["nights"][0]
    assert worst["location"] == str(nodes.folder / worst["node"])


def test_a_name_is_a_node_of_its_cluster(run: Run, short: Path, tmp_path: Path) -> None:
    """Equal node names in two clusters of a bucket are different nodes."""
    for cluster, seed in (("blue", 6), ("green", 5)):
        plan = plan_of(SimulationRequest(synthetic=30, calm=True), seed)._replace(node="worker")
        write_journal(tmp_path / cluster, Machine(plan).run().journal.files())
        shipped(tmp_path / cluster, tmp_path / "store", cluster)
    words = ("fleet", "what-if", "--config", short, "--jobs", "1", "--journals")
    found = document(run(*words, tmp_path / "store", "-o", "json"))
    apart = [document(run(*words, tmp_path / "store/v1" / f"cluster={name}", "-o", "json")) for name in NAMES]
    nodes = [each for part in apart for each in part["nodes"]]
    assert [(each["cluster"], each["node"]) for each in nodes] == [(name, "worker") for name in NAMES]
    assert sorted(found["nodes"], key=lambda each: each["cluster"]) == nodes
    assert "CLUSTER" in run(*words, tmp_path / "store").out


def test_a_gate_decides_the_exit_code(run: Run, nodes: Nodes, short: Path) -> None:
    """The maximum per change; the output names the failed gate."""
    words = ("fleet", "what-if", "--journals", nodes.folder, "--config", short, "--jobs", "1")
    ran = run(*words, "--gate", "lost=1000", "--gate", "not-asked=1000")
    assert (ran.code, ran.out.count("\ngate "), "does not hold" in ran.out) == (DONE, 2, False)


def test_no_gate_holds_where_nothing_was_asked(
    run: Run, nodes: Nodes, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own error must not let a rollout pass: it is no unanswerable shutdown."""

    def mistaken(*arguments: object) -> None:
        raise TypeError("a mistake")

    monkeypatch.setattr("ebbtide.replay.whatif.whatif_run.what_if", mistaken)
    words = ("fleet", "what-if", "--journals", nodes.folder, "--config", short, "--jobs", "1")
    ran = run(*words, "--gate", "lost=0", "--gate", "not-asked=1000")
    assert ran.code == NOT_SO
    assert "gate lost=0 does not hold: nothing was asked" in ran.out
    assert "gate not-asked=1000 does not hold: nothing was asked" in ran.out
    assert "TypeError: a mistake" in ran.out


# --- advise


def of_the_fleet(run: Run, url: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = document(run("fleet", "advise", "--journals", url, "-o", "json", *more))
    return found


def test_advice_is_that_of_one_machine(run: Run, nodes: Nodes) -> None:
    alone = document(run("replay", "advise", "--journal", nodes.folder, "-o", "json"))
    found = of_the_fleet(run, nodes.folder, "--jobs", "1")
    known = {name: alone[name] for name in alone if name not in ("kind", "journals")}
    assert {name: found[name] for name in known} == known
    assert found["journals"] == {"intact": len(nodes.machines)}


@pytest.mark.parametrize(
    "words", [("advise", "-o", "yaml"), ("tables", "--to", "{d}/t")], ids=lambda words: words[0]
)
def test_what_cannot_be_used_is_named(run: Run, nodes: Nodes, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The rest is used; the worst verdict is the exit code."""
    verb, *more = (word.format(d=tmp_path) for word in words)
    ran = run("fleet", verb, "--journals", nodes.hurt, "--jobs", "1", *more)
    assert ran.code == CORRUPT
    assert all(name in ran.out + ran.err for name in ("node-2", "node-3"))
    assert not (tmp_path / "t").exists() or len(list((tmp_path / "t").iterdir())) > 5


def test_each_pool_has_the_advice_of_its_nodes(
    run: Run, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if no other pool existed; with the advice for all."""
    (told := tmp_path / "pools.txt").write_text("node-1 <none>\nnode-1* teens\nnode-[2-5]* others\n")
    pools = {"others": tmp_path / "others", "teens": tmp_path / "teens", None: tmp_path / "none"}
    for machine in nodes.machines:
        name = machine.plan.node
        pool = "teens" if name[5] == "1" else "others" if name[5] in "2345" else None
        nodes.copied(pools[pool], name)
    monkeypatch.setattr("ebbtide.fleet.pool.BIN_JOURNALS_MAX", 7)
    found = of_the_fleet(run, nodes.folder, "--pools", str(told), "--jobs", "1")
    apart = {name: of_the_fleet(run, folder, "--jobs", "1") for name, folder in pools.items()}
    assert [each["pool"] for each in found["pools"]] == list(pools)
    for each in found["pools"]:
        expected = apart[each["pool"]]
        assert each == {"pool": each["pool"]} | {name: expected[name] for name in each if name != "pool"}
    assert apart["others"]["configuration"] != apart["teens"]["configuration"]
    told_of = {"pools": found["pools"], "poolsWithoutEvidence": []}
    assert found == of_the_fleet(run, nodes.folder, "--jobs", "1") | told_of
    words = ("fleet", "advise", "--journals", nodes.folder, "--jobs", "1", "--pools", told)
    shown = run(*words).out
    assert shown.index("# pool others") < shown.index("# pool teens") < shown.index("# nodes of no pool")


def test_a_pool_without_evidence_is_said(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    """A document for each pool with evidence; exit code 1 only if none has any."""
    empty = Machine(plan_of(SimulationRequest(synthetic=0), 1)).run()
    write_journal(tmp_path / "fleet/idle", empty.journal.files())
    nodes.copied(tmp_path / "fleet", "node-2")
    (told := tmp_path / "pools.txt").write_text("node-1 idle\nnode-2 busy\n")
    words = ("fleet", "advise", "--journals", tmp_path / "fleet", "--jobs", "1", "--pools", told)
    ran = run(*words, "-o", "json")
    found = document(ran)
    assert (ran.code, [each["pool"] for each in found["pools"]]) == (DONE, ["busy"])
    assert found["poolsWithoutEvidence"] == ["idle"]
    assert "ebbtide: pool idle: no advice: no shutdown that stopped a pod" in ran.err
    shutil.rmtree(tmp_path / "fleet/node-2")
    ran = run(*words)
    assert (ran.code, ran.out) == (NOT_SO, "")


# --- tables


def test_tables_are_those_of_export_parquet(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    """The same rows, and the truth; every journal is listed beside."""
    assert run("export", "parquet", "--journal", nodes.folder, "-o", tmp_path / "one").code == DONE
    ran = run("fleet", "tables", "--journals", nodes.folder, "--to", tmp_path / "all", "--jobs", "1")
    assert ran.code == DONE
    for path in (tmp_path / "one").iterdir():
        tables = [
            pyarrow.parquet.read_table(folder / path.name) for folder in (tmp_path / "one", tmp_path / "all")
        ]
        assert tables[0].schema == tables[1].schema
        sides = [sorted(map(repr, table.to_pylist())) for table in tables]
        assert sides[0] == sides[1] != []
    shutdowns = pyarrow.parquet.read_table(tmp_path / "all/shutdowns.parquet").to_pylist()
    outcomes = Counter((row["kind"], row["outcome"]) for row in shutdowns)
    assert outcomes == truth.outcomes(nodes.machines)
    pods = pyarrow.parquet.read_table(tmp_path / "all/pods.parquet").to_pylist()
    fates = Counter(
        record.event.outcome
        for machine in nodes.machines
        for record in machine.journal.records
        if isinstance(record.event, PodEnded)
    )
    # A rejected pod never ran here, so it did not end.
    assert Counter(row["outcome"] for row in pods if row["outcome"] not in ("", "rejected")) == fates
    journals = pyarrow.parquet.read_table(tmp_path / "all/journals.parquet").to_pylist()
    assert sorted(row["journal_id"] for row in journals) == sorted(
        machine.journal.journal_id.hex() for machine in nodes.machines
    )


# --- redacted


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Four shipped nodes, two segments each: ``store`` has all but node-2 under pseudonyms."""
    for node in (a_node(tmp_path, seed) for seed in (1, 2, 3, 4)):
        shipped(node, tmp_path / "plain")
        (shipped if node.name == "node-2" else shipped_redacted)(node, tmp_path / "store")
    return tmp_path


def test_tables_of_redacted_segments(run: Run, mixed: Path) -> None:
    """The same shutdowns of the same nodes, with the store's public node names and no other names."""
    made: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for side in ("plain", "store"):
        ran = run("fleet", "tables", "--journals", mixed / side, "--to", mixed / f"of-{side}", "--jobs", "1")
        assert ran.code == DONE
        made[side] = {
            path.stem: pyarrow.parquet.read_table(path).to_pylist()
            for path in (mixed / f"of-{side}").iterdir()
        }
    told = ("node", "started", "kind", "outcome", "took_ms", "grant_ms", "pods", "graceful", "killed")
    plain, store = (
        sorted([row[name] for name in told] for row in made[side]["shutdowns"]) for side in ("plain", "store")
    )
    assert store == plain
    assert len(store) == 4
    for name in ("pods", "containers", "hooks"):
        rows = [row for row in made["store"][name] if row["node"] != "node-2"]
        assert len(made["store"][name]) == len(made["plain"][name])
        assert all(row["namespace"].startswith("ns~") and row["pod"].startswith("pod~") for row in rows)
    (before,) = (row for row in made["plain"]["journals"] if row["node"] == "node-1")
    journals = [row for row in made["store"]["journals"] if row["node"] == "node-1"]
    assert [(row["cluster"], row["state"], row["segments"]) for row in journals] == [("c", "intact", 1)] * 2
    assert before["journal_id"] not in {row["journal_id"] for row in journals}
    assert (before["left_out"], [bool(row["left_out"]) for row in journals].count(True)) == ("", 1)


# --- on all processors


def test_any_number_of_processes_says_the_same(
    run: Run, nodes: Nodes, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every verb, to the byte, also in other bins; with two clusters of shipped journals."""
    for at, name in enumerate(("node-1", "node-2", "node-3", "node-4", "node-5")):
        shipped(nodes.folder / name, tmp_path / "fleet", ("one", "two")[at % 2])
    shutil.copytree(nodes.hurt, tmp_path / "fleet/hurt")
    shutil.rmtree(tmp_path / "fleet/hurt/node-2")
    words = {
        "verify": ("-o", "json"),
        "what-if": (*("--config", short, "-o", "json"), *("--html", tmp_path / "risk.html")),
        "advise": ("-o", "json"),
        "tables": ("--to", tmp_path / "tables", "-o", "json"),
    }

    def said(verb: str, jobs: int = 1) -> tuple[int, str, str, dict[str, bytes]]:
        ran = run("fleet", verb, "--journals", tmp_path / "fleet", "--jobs", str(jobs), *words[verb])
        written = [*(tmp_path / "tables").glob("*"), *tmp_path.glob("risk.html")]
        files = {path.name: path.read_bytes() for path in written}
        shutil.rmtree(tmp_path / "tables", ignore_errors=True)
        (tmp_path / "risk.html").unlink(missing_ok=True)
        return ran.code, ran.out, ran.err, files

    alone = {verb: said(verb) for verb in words}
    assert said("what-if", jobs=2) == alone["what-if"]
    monkeypatch.setattr("ebbtide.fleet.pool.BIN_JOURNALS_MAX", 1)
    assert {verb: said(verb) for verb in words} == alone


# --- refused


@pytest.mark.parametrize(
    "verb, url, said",
    [
        ("verify", "s3://key:secret@bucket", "holds credentials: leave them out"),
        ("what-if", "{d}/gone", "is no folder: name one with journals below it"),
        ("tables", "{d}", "no journal below"),
    ],
)
def test_what_names_no_journals_is_refused(
    run: Run, tmp_path: Path, short: Path, verb: str, url: str, said: str
) -> None:
    more = {"what-if": ("--config", short), "tables": ("--to", tmp_path / "t")}.get(verb, ())
    ran = run("fleet", verb, "--journals", url.format(d=tmp_path), *more)
    assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1)
    assert said in ran.err
    assert "secret" not in ran.err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "name the new configuration with --config FILE"),
        (("--pools", "{d}/bad"), "bad:2: write a node's name and its pool, in place of 'node-1'"),
        (("--pools", "{d}/new.yaml"), "new.yaml:1: write a node's name and its pool, in place of"),
        (("--pools", "{d}/bytes"), "bytes is no text"),
        (("--config", "{d}/new", "--html", "{d}/gone/risk.html"), "gone: no such folder: make it first"),
        (("--config", "{d}/new", "--html", "-"), "--html needs a file, such as risk.html"),
        (("--gate", "saved=1"), "is no gate: write NAME=N, with lost, perhaps-lost, not-asked"),
        (("--gate", "lost"), "is no gate: write NAME=N"),
        (("--jobs", "0"), "--jobs"),
        (("--engine", "dask"), "--engine"),
        (("--engine", "spark", "--jobs", "2"), "--jobs counts processes of this machine"),
    ],
)
def test_what_cannot_be_asked_is_refused(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "bad").write_text("node-2 web\nnode-1\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "new.yaml").write_text("terminationGracePeriod: 30s\n")
    ran = run("fleet", "what-if", "--journals", "nowhere", *(word.format(d=tmp_path) for word in words))
    assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1)
    assert said in ran.err


def test_a_verb_of_the_fleet_refuses_what_would_mislead(run: Run, fleet_of_two: Path, tmp_path: Path) -> None:
    """A file has one configuration for all pools; a folder is not mixed with another."""
    (tmp_path / "pools.txt").write_text("node-1 a\n")
    for words, said in (
        (("advise", "--pools", tmp_path / "pools.txt", "-o", "yaml"), "take a pool's from -o json"),
        (("tables", "--to", tmp_path), "name a new directory with --to"),
    ):
        ran = run("fleet", *words, "--journals", fleet_of_two)
        assert (ran.code, ran.out) == (WRONG, "")
        assert said in ran.err


def test_spark_that_is_not_installed_is_named(
    run: Run, fleet_of_two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the extra, and with Java, which no extra installs."""
    monkeypatch.setitem(EXTRAS, "spark", ("pyarrow", "no_such_spark"))
    ran = run("fleet", "verify", "--journals", fleet_of_two, "--engine", "spark")
    assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1)
    assert "fleet verify --engine spark (on Java 17) needs no_such_spark: pip install" in ran.err
    assert "[spark]'" in ran.err


# --- docs/fleet.md: from zero to the first answer in two commands


def test_the_first_answer_takes_two_commands(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = re.search(r"<!-- first-answer -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line, comments=True) for line in block[1].splitlines()]
    assert [words[0] for words in commands] == ["ebbtide", "ebbtide"]
    monkeypatch.chdir(tmp_path)
    for words in commands:
        ran = run(*("1..5" if word == "1..100" else word for word in words[1:]))
        assert ran.code == 0
    assert ran.out.startswith("from 5 shutdowns of 5 nodes: ")
    assert "shutdownGracePeriodByPodPriority:" in ran.out
