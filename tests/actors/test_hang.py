"""Why a volume of a lost node is still attached."""

from __future__ import annotations

import pytest

from ebbtide.actors.hang import ATTACHER_SECONDS, Hang, detach_hang


@pytest.mark.parametrize(
    ("finalizers", "refused", "seconds", "hang"),
    [
        ((), False, ATTACHER_SECONDS, "detaching"),
        (("external-attacher/csi",), False, ATTACHER_SECONDS - 1, "detaching"),
        (("external-attacher/csi",), False, ATTACHER_SECONDS, "attacher-silent"),
        (("external-attacher/csi", "backup/hold"), True, ATTACHER_SECONDS, "driver-refuses"),
        (("backup/hold",), True, 0, "attachment-finalizers"),
    ],
)
def test_a_detach_hangs(finalizers: tuple[str, ...], refused: bool, seconds: int, hang: Hang) -> None:
    """An attacher that runs has answered in time."""
    assert detach_hang(finalizers, refused=refused, seconds=seconds) == hang
