"""What the doctor says of the store that segments are shipped to."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from ebbtide.doctor.rules import store_of_shipping
from ebbtide.doctor.snapshot import StoreState
from ebbtide.doctor.store_looks import look_at_store
from ebbtide.shipping.shipping_destination import Store
from tests.commands import ebbtide
from tests.doctor.values import node
from tests.store.gateway import BUCKET, TAKEN, Request, faking, reply
from tests.store.segments import NODE, lay_out_segments

STORE = Store(url=f"s3://{BUCKET}/pre", cluster="prod")


async def look(answer: object, folder: Path) -> StoreState:
    async with faking(answer):  # type: ignore[arg-type]
        return await trio.to_thread.run_sync(look_at_store, STORE, folder, "somebody")


def codes(found: StoreState) -> list[str]:
    return [finding.code for finding in store_of_shipping(node()._replace(shipping=found))]


async def test_a_store_that_keeps_what_it_has_is_well(tmp_path: Path) -> None:
    """The probe lies below the node's own prefix, by the name that the journal has."""
    lay_out_segments(tmp_path, 1)
    targets = []

    def answer(request: Request) -> bytes:
        if request.body:
            targets.append(request.target)
        return TAKEN if len(targets) == 1 else reply(412)

    found = await look(answer, tmp_path)
    assert found.conditional is True
    assert codes(found) == []
    assert set(targets) == {f"/{BUCKET}/pre/v1/cluster%3Dprod/node%3D{NODE}/doctor-probe"}


async def test_a_node_without_a_journal_is_probed_by_its_own_name(tmp_path: Path) -> None:
    """The host may have another name, and has no right there (`tests/daemon/test_modes.py`: which name)."""
    config = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
    config += f"shipping: {{url: s3://{BUCKET}/pre, cluster: prod}}\n"
    config += "node: {nodeName: worker-1}\n"
    (path := tmp_path / "config.yaml").write_text(config)
    words = ["doctor", "--config", path, "--journal", tmp_path / "none", "-o", "json"]
    targets = set()

    def answer(request: Request) -> bytes:
        targets.update({request.target} if request.body else ())
        return reply(412)

    async with faking(answer) as fake:
        await trio.to_thread.run_sync(partial(ebbtide, *words, **fake.environ()))
    assert targets == {f"/{BUCKET}/pre/v1/cluster%3Dprod/node%3Dworker-1/doctor-probe"}


async def test_a_store_that_overwrites_is_told_of(tmp_path: Path) -> None:
    """It passes over the condition."""
    assert codes(await look(lambda request: TAKEN, tmp_path)) == ["store-overwrites"]


@pytest.mark.parametrize("answer", [reply(403), reply(503), b"nonsense\r\n\r\n", b""])
async def test_what_is_in_the_way_is_one_finding(answer: bytes, tmp_path: Path) -> None:
    """With a cure, and no guess about the condition."""
    found = await look(lambda request: answer, tmp_path)
    assert found.cure
    assert found.conditional is None
    assert codes(found) == ["store-refuses"]


async def test_another_clock_is_told_of(tmp_path: Path) -> None:
    """By the date of any answer."""
    late = reply(412, Date="Mon, 01 Jan 2024 00:00:00 GMT")
    assert codes(await look(lambda request: late, tmp_path)) == ["store-clock"]
