"""Token and certificate rotation on a real API server."""

from __future__ import annotations

import base64
import json
from functools import partial
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes import api_client as links
from ebbtide.actors.edges.kubernetes.api_calls import SELF_SUBJECT_REVIEWS, Unanswered
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes.rig import NODE, kubeconfig, linked, running
from tests.beds.relay import joined
from tests.node.bed import Bed
from tests.node.identities import ADMIN, Secrets, kubelet
from tests.node.parts import API_PORT
from tests.node.pods import PODS, pod
from tests.waiting import until

pytestmark = [pytest.mark.node]
SECONDS = 10.0
NODE_CLIENT = kubelet(NODE)


async def who(link: ApiClient) -> str:
    """Our user name at the API server."""
    answer = await link.call("POST", SELF_SUBJECT_REVIEWS, body={}, seconds_max=SECONDS)
    return str(json.loads(answer.body)["status"]["userInfo"]["username"]) if answer.ok else str(answer.code)


async def is_user(link: ApiClient, user: str) -> bool:
    try:
        return await who(link) == user
    except Unanswered:
        return False


async def test_a_token_that_is_refused(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused call is repeated once at once with the new token."""
    monkeypatch.setattr(links, "FILES_SECONDS", 1000.0)
    token = tmp_path / "token"
    token.write_text("revoked")
    async with linked(kubeconfig(tmp_path / "it", bed, ADMIN, tokenFile=str(token))) as link:
        assert await who(link) == "401"
        token.write_text(ADMIN.token)
        assert await who(link) == ADMIN.user


async def test_a_certificate_that_rotates(bed: Bed, tmp_path: Path) -> None:
    """The next call uses the new certificate; the watch continues with it."""
    for name, client in (("first", ADMIN), ("second", NODE_CLIENT)):
        (tmp_path / f"{name}.pem").write_bytes(b"".join(bed.secrets.pair(client)))
    link_to = tmp_path / "current.pem"
    link_to.symlink_to("first.pem")
    user = {"client-certificate": "current.pem", "client-key": "current.pem"}
    rights = kubeconfig(tmp_path / "it", bed, ADMIN, **user)
    async with linked(rights) as link, running(rights, tmp_path / "state") as rig:
        assert await who(link) == ADMIN.user
        await rig.outbox.wait_for(ApiRead, reachable=True, taint=True)
        (tmp_path / "moved").symlink_to("second.pem")
        (tmp_path / "moved").rename(link_to)
        await until(partial(is_user, link, NODE_CLIENT.user), "it is the other user")
        await rig.outbox.wait_for(ApiRead, reachable=True, taint=False)
        await bed.api.post(PODS, pod("one", NODE))
        await until(lambda: rig.names() == ["one"], "the pods are known")


async def test_a_stranger(bed: Bed, tmp_path: Path) -> None:
    """An untrusted server gets no token; without verification it does."""
    (tmp_path / "other").mkdir()
    other = Secrets(tmp_path / "other")
    other.write(())
    path = kubeconfig(tmp_path / "it", bed, ADMIN)
    document = json.loads(path.read_text())
    cluster = document["clusters"][0]["cluster"]
    cluster["certificate-authority-data"] = base64.b64encode(other.authority.read_bytes()).decode()
    path.write_text(json.dumps(document))
    async with linked(path) as link:
        with pytest.raises(Unanswered, match="certificate verify failed"):
            await who(link)
        cluster["insecure-skip-tls-verify"] = True
        path.write_text(json.dumps(document))
        await until(partial(is_user, link, ADMIN.user), "it is trusted")


async def test_a_proxy(bed: Bed, tmp_path: Path) -> None:
    """The kubeconfig's proxy opens a tunnel; the target has the configured server name."""
    asked: list[str] = []

    async def serve(outer: trio.SocketStream) -> None:
        asked.append((await outer.receive_some()).partition(b"\r\n")[0].decode())
        await outer.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        async with outer, await bed.connect("127.0.0.1", API_PORT) as inner:
            await joined(outer, inner)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        path = kubeconfig(tmp_path / "it", bed, ADMIN, "https://api.example:6443")
        document = json.loads(path.read_text())
        port = listener.socket.getsockname()[1]
        names = {"proxy-url": f"http://127.0.0.1:{port}", "tls-server-name": "kubernetes.default.svc"}
        document["clusters"][0]["cluster"] |= names
        path.write_text(json.dumps(document))
        async with linked(path) as link:
            assert await who(link) == ADMIN.user
        nursery.cancel_scope.cancel()
    assert asked == ["CONNECT api.example:6443 HTTP/1.1"]
