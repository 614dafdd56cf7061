"""Real shipping to a real S3 server, with rights for first writes only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
import trio

from ebbtide.otel.sending import Refused
from ebbtide.shipping.shipping_destination import Store, load_shipped, node_prefix
from ebbtide.shipping.store_sink import ObjectStore
from ebbtide.side_process import EXIT_DONE, EXIT_KEPT, Report, StoreJob, encode_line
from tests.beds.rootfs import Unavailable
from tests.cli.test_bombs import a_store_of_long_answers
from tests.store.gateway import BUCKET, READER, Gateway, gateway, signed_put
from tests.store.segments import NODE, lay_out_segments

pytestmark = pytest.mark.backend

STORE = Store(url=f"s3://{BUCKET}/pre", cluster="prod")
#: The shipping process fails long before.
ENDLESS_MB = 1_000_000
PREFIX = f"pre/{node_prefix('prod', NODE)}"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> object:
    try:
        with gateway(tmp_path_factory.mktemp("s3"), PREFIX) as found:
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def emptied(s3: Gateway) -> Gateway:
    for path in (s3.data / BUCKET).rglob("*.ebj"):
        path.unlink()
    return s3


def test_an_error_without_an_end_costs_the_process(tmp_path: Path) -> None:
    """The store's client keeps the whole body. The daemon starts another process later."""
    lay_out_segments(tmp_path, 3)
    with a_store_of_long_answers(500, ENDLESS_MB, lists=False) as endpoint:
        end(start(tmp_path, Gateway(endpoint, tmp_path), before=MEASURED))
    code, peak_kib = map(int, (tmp_path / "measured").read_text().split())
    assert code == -signal.SIGABRT
    assert peak_kib < 256 * 1024
    assert load_shipped(tmp_path, STORE).segments == {}


#: Runs a command from a small process, since the kernel counts the parent's memory before the exec as the
#: child's. Writes the exit code and the peak in KiB.
MEASURED = (
    *(sys.executable, "-c"),
    "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
    "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=open('measured', 'w'))",
)


def start(
    folder: Path, on: Gateway, store: Store = STORE, *more: Path, before: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [*before, sys.executable, "-P", "-m", "ebbtide.follower"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | on.environ(),
    )
    assert process.stdin is not None
    locations = tuple(map(str, (folder, *more)))
    process.stdin.write(encode_line(StoreJob(store=store, locations=locations)))
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    assert process.stdout is not None
    assert process.stdin is not None
    said = process.stdout.read()
    code = process.wait()
    process.stdin.close()
    process.stdout.close()
    reports = [msgspec.json.decode(line, type=Report) for line in said.splitlines()]
    return code, [report.text for report in reports if report.text]


def hold_all(folder: Path, names: list[str], on: Gateway) -> bool:
    """The store has exactly these segments' bytes."""
    return sorted(on.objects().values()) == sorted((folder / name).read_bytes() for name in names)


@pytest.mark.gate
def test_a_real_store_gets_each_segment_once(emptied: Gateway, tmp_path: Path) -> None:
    """With only this node's write right; after a lost cursor the objects already exist."""
    names = lay_out_segments(tmp_path, 4)
    assert end(start(tmp_path, emptied)) == (EXIT_DONE, [])
    assert hold_all(tmp_path, names[:3], emptied)
    (tmp_path / "shipped.json").unlink()
    code, said = end(start(tmp_path, emptied))
    assert (code, len(said)) == (EXIT_DONE, 3)
    assert all("not verified" in text for text in said)
    assert hold_all(tmp_path, names[:3], emptied)
    assert load_shipped(tmp_path, STORE).present == 3


@pytest.mark.gate
def test_two_processes_make_one_object_of_a_segment(emptied: Gateway, tmp_path: Path) -> None:
    """Two copies of a journal with separate cursors."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        names = lay_out_segments(folder, 6)
    found = [end(each) for each in [start(folder, emptied) for folder in folders]]
    assert [code for code, _ in found] == [EXIT_DONE, EXIT_DONE]
    assert hold_all(folders[0], names[:5], emptied)
    both = [load_shipped(folder, STORE) for folder in folders]
    assert sum(each.stored for each in both) == 5
    assert sum(each.present for each in both) == 5


def test_one_that_is_killed_goes_on_after_the_reboot(emptied: Gateway, tmp_path: Path) -> None:
    """Half a request is no object."""
    names = lay_out_segments(tmp_path, 8)
    process = start(tmp_path, emptied)
    while not emptied.objects() and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    end(process)
    assert end(start(tmp_path, emptied))[0] == EXIT_DONE
    assert hold_all(tmp_path, names[:7], emptied)


@pytest.mark.gate
def test_segments_of_a_folder_that_others_may_write_to_stay_there(emptied: Gateway, tmp_path: Path) -> None:
    """A local user made them, or a cursor: neither is this node's."""
    ours, shared = tmp_path / "ours", tmp_path / "shared"
    for folder in (ours, shared):
        folder.mkdir()
    names = lay_out_segments(ours, 3)
    lay_out_segments(shared, 5)
    assert end(start(shared, emptied))[0] == EXIT_DONE
    emptied_of = [path.unlink() for path in (emptied.data / BUCKET).rglob("*.ebj")]
    assert len(emptied_of) == 4
    shared.chmod(0o777)
    assert end(start(shared, emptied))[0] == EXIT_KEPT
    assert emptied.objects() == {}
    assert end(start(ours, emptied, STORE, shared)) == (EXIT_DONE, [])
    assert hold_all(ours, names[:2], emptied)


@pytest.mark.gate
def test_another_nodes_prefix_is_refused_with_its_cure(emptied: Gateway, tmp_path: Path) -> None:
    """A node may write only below its own prefix."""
    lay_out_segments(tmp_path, 2)
    code, said = end(start(tmp_path, emptied, Store(url=STORE.url, cluster="other")))
    assert code == EXIT_KEPT
    assert "HTTP 403" in said[0]
    assert "s3:PutObject" in said[0]
    assert emptied.objects() == {}


@pytest.mark.gate
async def test_a_real_store_refuses_bytes_that_are_not_those_of_the_checksum(emptied: Gateway) -> None:
    """The store verifies the checksum: changed bytes are not stored."""
    with patch.dict(os.environ, emptied.environ(READER)):
        found = await trio.to_thread.run_sync(ObjectStore(STORE).put, f"{PREFIX}/x.ebj", b"data")
    assert isinstance(found, Refused)
    target, wrong = f"/{BUCKET}/{PREFIX.replace('=', '%3D')}/x.ebj", {"x-amz-checksum-sha256": "A" * 43 + "="}
    assert signed_put(emptied.endpoint, target, b"data", "node", "nodesecret", wrong) == 400
    assert emptied.objects() == {}
