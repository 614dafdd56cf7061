"""Which life of a machine this is, where the boot id does not say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.actors.edges import service_manager as system


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a first process; the machine is a container."""
    (tmp_path / "container").write_text("systemd-nspawn\n")
    monkeypatch.setattr(system, "CONTAINER_FILE", tmp_path / "container")
    monkeypatch.setattr(system, "FIRST_PROCESS", tmp_path)
    monkeypatch.setattr(system, "PRIVATE_SOCKET", f"unix:path={tmp_path}/nobody")
    return tmp_path


def stat(folder: Path, name: str, ticks: int) -> None:
    fields = " ".join(str(number) for number in range(1, 19))
    (folder / "stat").write_text(f"1 ({name}) S {fields} {ticks} 0 0\n")


async def test_a_container_that_starts_again_is_another_userspace(first: Path) -> None:
    """All lives of a machine in a container share the kernel's boot id; its first process's start differs."""
    nobody = f"unix:path={first}/nobody"
    stat(first, "systemd", 1000)
    before = await system.userspace_id(nobody)
    assert before == f"{system.boot_id()}.1000"
    stat(first, "systemd", 2000)
    assert await system.userspace_id(nobody) != before


async def test_a_pods_own_first_process_says_nothing(first: Path) -> None:
    """In a process namespace of its own a restarted daemon is still in the same userspace."""
    stat(first, "ebbtide run", 1000)
    assert await system.userspace_id(f"unix:path={first}/nobody") == system.boot_id()


async def test_on_a_host_it_is_the_boot(first: Path) -> None:
    """Where nobody says that this is a container, the boot id is enough."""
    stat(first, "systemd", 0)
    (first / "container").unlink()
    assert await system.userspace_id(f"unix:path={first}/nobody") == system.boot_id()
