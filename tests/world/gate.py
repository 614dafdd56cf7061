"""The disk as one life of the daemon reaches it: dead hands write nothing, and each touch may be the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import trio

from ebbtide.events.catalog import Source
from ebbtide.events.disk import SegmentFile, Storage, Waits

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Touching(Protocol):
    def touch(self) -> bool: ...


async def _pass(life: Touching) -> None:
    """A dead daemon waits here for its tasks to be cancelled."""
    if not life.touch():
        await trio.sleep_forever()


class GatedFile:
    """A segment file."""

    def __init__(self, life: Touching, file: SegmentFile) -> None:
        self._life, self._file = life, file

    async def write(self, data: bytes) -> None:
        await _pass(self._life)
        await self._file.write(data)
        await _pass(self._life)

    async def sync(self) -> None:
        await _pass(self._life)
        await self._file.sync()
        await _pass(self._life)

    async def close(self) -> None:
        await _pass(self._life)
        await self._file.close()


class GatedStorage:
    """A location."""

    def __init__(self, life: Touching, storage: Storage) -> None:
        self._life, self._storage = life, storage

    @property
    def location(self) -> str:
        return self._storage.location

    @property
    def waits(self) -> Waits:
        return self._storage.waits

    @property
    def source(self) -> Source:
        return self._storage.source

    async def acquire(self, program: str) -> None:
        await _pass(self._life)
        await self._storage.acquire(program)

    async def create(self, name: str) -> GatedFile:
        await _pass(self._life)
        file = await self._storage.create(name)
        await _pass(self._life)
        return GatedFile(self._life, file)

    async def sync_file(self, name: str) -> None:
        await _pass(self._life)
        await self._storage.sync_file(name)

    async def put(self, name: str, data: bytes) -> None:
        await _pass(self._life)
        await self._storage.put(name, data)
        await _pass(self._life)

    async def set_reserve(self, size_bytes: int) -> None:
        await _pass(self._life)
        await self._storage.set_reserve(size_bytes)

    async def remove(self, name: str) -> None:
        await _pass(self._life)
        await self._storage.remove(name)

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        await _pass(self._life)
        return await self._storage.call(function, *args)

    async def release(self) -> None:
        await _pass(self._life)
        await self._storage.release()
