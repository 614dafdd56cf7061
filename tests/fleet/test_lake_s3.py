"""A lake on a real S3 server: a folder's rows, any number of writers, minimal rights."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from ebbtide.cli.common.guard import DONE, WRONG
from ebbtide.fleet import lake as lakes
from ebbtide.fleet.fleet_journals import StoreFailed, store
from ebbtide.fleet.fleet_journals import journals as planned
from ebbtide.fleet.fleet_rows import table_batches
from ebbtide.fleet.lake import Lake
from tests.beds.rootfs import Unavailable
from tests.commands import Run
from tests.fleet.conftest import Nodes
from tests.fleet.nodes import shipped
from tests.fleet.test_lake import Tables, ordered, whole
from tests.fleet.test_lake import there as found_in
from tests.store.gateway import BUCKET, NODE, ROOT, Gateway, allow, gateway, put_policy

pytestmark = pytest.mark.backend

JOURNALS = f"s3://{BUCKET}/journals/v1"
TWO_MONTHS_SECONDS = 60 * 86_400


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    try:
        with gateway(tmp_path_factory.mktemp("s3"), "journals") as found:
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


As = Callable[[tuple[str, str]], None]


@pytest.fixture
def become(s3: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[As]:
    """Switch identity by environment; older clients keep theirs."""

    def call(who: tuple[str, str]) -> None:
        for name, value in s3.environ(who).items():
            monkeypatch.setenv(name, value)
        store.cache_clear()

    monkeypatch.setenv("HOME", "/nonexistent")
    call(ROOT)
    yield call
    store.cache_clear()


@pytest.fixture(scope="module")
def folder(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight nodes' shipped journals: a row for each table."""
    made = tmp_path_factory.mktemp("shipped")
    for number in range(1, 9):
        shipped(nodes.folder / f"node-{number}", made)
    return made


@pytest.fixture
def journals(folder: Path, become: As) -> str:
    to = store(f"s3://{BUCKET}/journals")
    for path in folder.rglob("*.ebj"):
        obstore.put(to, str(path.relative_to(folder)), path.read_bytes())
    return JOURNALS


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/lake/{request.node.name.partition('[')[0]}-{time.monotonic_ns()}"


def there(place: str) -> Tables:
    return found_in(place, aws_conditional_put="etag")


def expected(folder: Path) -> Tables:
    return ordered(whole(folder), ("row", "location", "fingerprint"))


def ingest(run: Run, journals: str, place: str) -> dict[str, Any]:
    ran = run("fleet", "ingest", "--journals", journals, "--lake", place, "--jobs", "1", "-o", "json")
    assert (ran.code, ran.err) == (DONE, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


@pytest.mark.parametrize("unsafe", ["", "true"])
def test_a_commit_never_replaces_another(
    folder: Path, journals: str, place: str, monkeypatch: pytest.MonkeyPatch, unsafe: str
) -> None:
    """A commit between another writer's read and commit; also if the environment weakens delta-rs."""
    if unsafe:
        monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", unsafe)
    refs = planned(journals)
    halves = [table_batches(part, settled=True) for part in (refs[:4], refs[4:])]
    real, met = lakes.DeltaTable, list[str]()

    class Meeting(real):  # type: ignore[misc, valid-type]
        """Another writer writes the table just before our first merge."""

        def merge(self, *words: Any, **more: Any) -> Any:
            if not met:
                met.append(self.table_uri)
                list(Lake(place).add([halves[1]]))
            return super().merge(*words, **more)

    monkeypatch.setattr(lakes, "DeltaTable", Meeting)
    list(Lake(place).add([halves[0]]))
    assert len(met) == 1
    assert ordered(there(place), ("row", "location", "fingerprint")) == expected(folder)


# --- who may


def may_put(s3: Gateway, where: str) -> None:
    """A node may list, read, and put these names, but not delete."""
    bucket, objects = allow(NODE, "ListBucket", BUCKET), allow(NODE, "GetObject", f"{BUCKET}/*")
    put_policy(s3.endpoint, bucket, objects, allow(NODE, "PutObject", f"{BUCKET}/{where}"))


def test_no_right_to_delete_is_needed(
    run: Run, s3: Gateway, folder: Path, journals: str, place: str, become: As
) -> None:
    """List, read and put suffice; a repeat reads no object."""
    may_put(s3, "lake/*")
    become(NODE)
    first = ingest(run, journals, place)
    rows = expected(folder)
    assert first["new"] == {name: len(found) for name, found in rows.items()}
    again = ingest(run, journals, place)
    assert (again["read"], set(again["new"].values())) == (0, {0})
    become(ROOT)
    assert ordered(there(place), ("row", "location", "fingerprint")) == rows


def test_nothing_is_deleted_when_logs_are_old(
    s3: Gateway, journals: str, place: str, become: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta writers delete month-old logs at each checkpoint: every hundred commits, here two."""

    class Often(lakes.DeltaTable):  # type: ignore[misc, valid-type]
        @classmethod
        def create(cls, *words: Any, **more: Any) -> Any:
            return super().create(*words, **more, configuration={"delta.checkpointInterval": "2"})

    monkeypatch.setattr(lakes, "DeltaTable", Often)
    may_put(s3, "lake/*")
    become(NODE)
    logs = s3.data / place.removeprefix("s3://") / "pods" / "_delta_log"
    for count, ref in enumerate(planned(journals), 1):
        batches = table_batches([ref], settled=True)
        rows = Counter[str]()
        for name, batch in batches:
            rows[name] += batch.num_rows
        assert list(Lake(place).add([batches])) == [rows]
        assert len(list(logs.glob("*.json"))) == 1 + count
        for path in logs.iterdir():
            os.utime(path, times=(time.time() - TWO_MONTHS_SECONDS,) * 2)
    assert list(logs.glob("*.checkpoint.parquet"))


@pytest.mark.parametrize("may", ["nothing", "data"])
def test_only_a_conflict_is_tried_again(
    s3: Gateway, journals: str, place: str, become: As, monkeypatch: pytest.MonkeyPatch, may: str
) -> None:
    """A missing right is reported at once, with the store's text."""
    batches = table_batches(planned(journals)[:1], settled=True)
    for _ in Lake(place).add([]):
        pass
    may_put(s3, {"nothing": "nothing", "data": "lake/*/part-*"}[may])
    become(NODE)
    tried = list[str]()
    real = lakes.DeltaTable

    class Counting(real):  # type: ignore[misc, valid-type]
        def merge(self, *words: Any, **more: Any) -> Any:
            tried.append(self.table_uri)
            return super().merge(*words, **more)

    monkeypatch.setattr(lakes, "DeltaTable", Counting)
    with pytest.raises(StoreFailed, match="privileges") as failed:
        list(Lake(place).add([batches]))
    assert len(tried) == 1
    assert place in str(failed.value)


@pytest.mark.parametrize("wrong", ["secret", "bucket", "server"])
def test_a_lake_that_cannot_be_written(
    run: Run, folder: Path, become: As, monkeypatch: pytest.MonkeyPatch, wrong: str, place: str
) -> None:
    become((ROOT[0], "another") if wrong == "secret" else ROOT)
    if wrong == "bucket":
        place = "s3://no-such-bucket/lake"
    if wrong == "server":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ran = run("fleet", "ingest", "--journals", folder, "--lake", place, "--jobs", "1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1), ran.err
    assert place in ran.err
    assert not {"another", ROOT[1]} & {word.strip("'\",;:") for word in ran.err.split()}
