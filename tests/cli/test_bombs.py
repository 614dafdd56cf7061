"""Strangers' journals that fill the memory: every reader stays below its limit, and names the journal."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from ebbtide.cli.common.guard import CORRUPT, WRONG
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.actors.edges.kubernetes.write_fake import status
from tests.bombs import BOMBS, NODE_UID, OUTAGE_BOMBS, Measured, measured, packed, segment

PEAK_MIB_MAX = 256
#: Unpacked from one MB, or a few. Without limits most of them take more than `PEAK_MIB_MAX`.
PACK_BYTES = 32_000_000
OBJECT_BYTES = 12_000_000
#: A bomb of a shutdown, one of a checkpoint, one of an outage. The others are a proof: each takes seconds.
GATE = ("autopsy_lines", "a_wide_checkpoint", "lost_pods")


def of_proof(name: str) -> object:
    return name if name in GATE else pytest.param(name, marks=pytest.mark.proof)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@pytest.fixture
def pack(request: pytest.FixtureRequest, packs: Path) -> Path:
    path = packs / f"{request.param}.ebpack"
    size_bytes = OBJECT_BYTES if request.param in OUTAGE_BOMBS else PACK_BYTES
    return path if path.exists() else packed(path, request.param, size_bytes)


def bounded(found: Measured, place: Path) -> Measured:
    assert found.peak_mib <= PEAK_MIB_MAX, f"{found.peak_mib:.0f} MiB: {found.err}"
    if "of memory" in found.err:
        assert str(place) in found.err or NODE_UID in found.err
    assert found.code >= 0
    assert "Traceback" not in found.err
    assert "unexpected" not in found.err
    return found


@pytest.mark.parametrize("pack", [*map(of_proof, BOMBS)], indirect=True)
def test_a_pack_of_a_megabyte(pack: Path) -> None:
    """A page takes more than the other readers."""
    for words in (("report", "last", "-o", pack.with_suffix(".html")), ("blame", "last")):
        bounded(measured("replay", *words, "--journal", pack), pack)


@pytest.mark.parametrize("pack", ["autopsy_lines", "a_wide_checkpoint"], indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        ("replay", "verify"),
        ("replay", "timeline", "last"),
        ("replay", "report", "last", "-o", "page.html"),
        ("journal", "ls"),
        ("export", "parquet", "-o", "tables"),
    ],
    ids=" ".join,
)
def test_every_reader(
    pack: Path, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bounded(measured(*words, "--journal", pack), pack)


NODE = b"""{"metadata": {"name": "node-1", "uid": "%s"}, "status": {"nodeInfo": {"bootID": "b"}}}"""


@contextmanager
def an_api_server(folder: Path, data: bytes, member: str) -> Iterator[Path]:
    """The kubeconfig of an API server with this journal, as a stolen account of the controller stores it."""
    maps = ConfigMaps(Draws(1))

    async def store() -> None:
        place = ConfigMapStorage(maps, "ebbtide", NODE_UID, "one", node="node-1")
        await place.acquire("")
        await (await place.create(member)).write(data)

    trio.run(store, clock=MockClock(autojump_threshold=0))

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            maps.lean = "PartialObjectMetadataList" in self.headers.get("Accept", "")
            found = status(404, "not found")
            if "/configmaps" in self.path:
                found = maps.carry_out("GET", self.path, None)
            elif "/nodes/" in self.path:
                found = Answer(200, NODE % NODE_UID.encode())
            self.send_response(found.code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Without a log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        named = {"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        made = {"clusters": [named], "contexts": [context], "current-context": "a"}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(made | {"users": [{"name": "a", "user": {"token": "t"}}]}))
        yield path
        server.shutdown()


@pytest.mark.parametrize(
    "name", [*map(of_proof, ["lost_pods", "finalizers_of_lost_pods", "stages", "sources"])]
)
def test_an_outages_journal_in_the_api_server(name: str, tmp_path: Path) -> None:
    member, data = segment(name, OBJECT_BYTES)
    with an_api_server(tmp_path, data, member) as kubeconfig:
        for words in (("ls",), ("status", "node-1"), ("explain", "node-1")):
            found = bounded(measured("outage", *words, "--kubeconfig", kubeconfig), tmp_path)
            assert "node-1" in found.out or "of memory" in found.err, found.err


@pytest.mark.proof
@pytest.mark.parametrize("verb", ["verify", "tables"])
def test_a_fleet(verb: str, tmp_path: Path) -> None:
    """Each journal in a worker, of which two run. The whole ones are read."""
    for name in BOMBS:
        member, data = segment(name, OBJECT_BYTES, node=name)
        (tmp_path / "fleet" / name).mkdir(parents=True)
        (tmp_path / "fleet" / name / member).write_bytes(data)
    to = ("--to", tmp_path / "tables") if verb == "tables" else ()
    found = measured("fleet", verb, "--journals", tmp_path / "fleet", "--jobs", "2", *to)
    bounded(found, tmp_path)


def test_a_shutdown_keeps_no_more_than_a_nodes(tmp_path: Path) -> None:
    """What is beyond that is counted, and makes the list's exit code."""
    pack = packed(tmp_path / "pack", "hooks_of_one_pod", 1_000_000)
    found = measured("replay", "blame", "last", "--journal", pack, "-o", "json")
    assert found.out.count('"hook"') < 300
    told = measured("journal", "ls", "--journal", pack)
    assert told.code == CORRUPT
    assert "more than 256 of a pod: HookRecord" in told.err


# --- stores whose answers fill the memory

NAME = f"v1/cluster=c/node=n/journal={'0' * 32}/0000000001-{'0' * 8}-{'0' * 64}.ebj"
LIST = f"""<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>
<Key>{NAME}</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>"0"</ETag><Size>9</Size></Contents>
</ListBucketResult>""".encode()


@contextmanager
def a_store_of_long_answers(status: int, body_mb: int, *, lists: bool) -> Iterator[str]:
    """``lists``: a list is answered."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked = b""
            while b"\r\n\r\n" not in asked and (part := self.request.recv(65536)):
                asked += part
            with suppress(OSError):
                if lists and b"list-type" in asked:
                    self.request.sendall(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n" + LIST)
                    return
                self.request.sendall(f"HTTP/1.1 {status} X\r\nConnection: close\r\n\r\n".encode())
                for _ in range(body_mb):
                    self.request.sendall(b"a " * 500_000)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "status, body_mb, lists", [(403, 469, False), (200, 469, False), (403, 3, True), (500, 469, True)]
)
def test_answers_of_a_store(
    status: int, body_mb: int, lists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether to a LIST or to a GET: the error names the store, the status and the cure."""
    (tmp_path / "fleet" / "node").mkdir(parents=True)
    (tmp_path / "fleet" / "node" / f"0000000001-{'0' * 8}.ebj").write_text("x")
    lake = ("ingest", "--journals", tmp_path / "fleet", "--lake", "s3://b/v1")
    verbs = (lake, ("verify", "--journals", "s3://b/v1"))
    with a_store_of_long_answers(status, body_mb, lists=lists) as endpoint:
        environ = {"ALLOW_HTTP": "true", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "r"}
        for name, value in (environ | {"ENDPOINT_URL": endpoint}).items():
            monkeypatch.setenv(f"AWS_{name}", value)
        for verb in verbs:
            found = bounded(measured("fleet", *verb, "--jobs", "1"), tmp_path)
            told = found.err + found.out
            assert found.code == WRONG, told
            assert f"HTTP {status}" in told
            assert "s3://b/v1" in told
            assert "come from AWS_*" in told
