"""A journal in one file, to attach to a ticket: a ZIP archive with a manifest, read as a directory is.

``manifest.json`` comes first and says what it is; ``segments/`` has the segments, byte for byte, under their
names. ZIP, because every system opens it, each member can be read by itself, and a checksum guards each. The
same journal makes the same bytes (with the same zlib): no time, user or path of the packing stands in it.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

from events.source import DirectorySource, Source, StoredFile
from events.stated import from_documents

MANIFEST, FOLDER = "manifest.json", "segments/"
#: The first moment that a ZIP archive can name: no moment at all.
NO_TIME = (1980, 1, 1, 0, 0, 0)
FILE_MODE = 0o600
#: Of a member's permissions in an archive made on UNIX.
_MODE_SHIFT, _UNIX = 16, 3


class NotPacked(Exception):
    """A file that is no packed journal: name a directory, or a file that ``ebbtide journal pack`` made."""


def write(file: IO[bytes], manifest: Mapping[str, Any], pieces: Iterable[tuple[str, bytes]]) -> None:
    """``pieces`` are names of segments and bytes, those of one segment one after the other."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        archive.writestr(_member(MANIFEST), text)
        name, member = "", None
        try:
            for of, data in pieces:
                if of != name and member is not None:
                    member.close()
                if of != name:
                    name, member = of, archive.open(_member(FOLDER + of), "w", force_zip64=True)
                assert member is not None
                member.write(data)
        finally:
            if member is not None:
                member.close()


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, NO_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = FILE_MODE << _MODE_SHIFT
    return info


class PackedSource:
    """`events.source.Source` over a packed journal; it is unpacked as it is read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises NotPacked, OSError."""
        self.location = os.fspath(path)
        try:
            self._archive = zipfile.ZipFile(path)
            self.manifest: dict[str, Any] = json.loads(self._archive.read(MANIFEST))
            #: Damage of the journal that it was made from (`events.stated`).
            self.stated = from_documents(self.manifest.get("findings", ()))
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, AttributeError) as error:
            raise NotPacked(f"{self.location} is no packed journal: {error}") from error
        self._open: dict[str, IO[bytes]] = {}

    def close(self) -> None:
        for member in self._open.values():
            member.close()
        self._archive.close()

    def files(self) -> list[StoredFile]:
        return sorted(
            StoredFile(info.filename.removeprefix(FOLDER), info.file_size, 0)
            for info in self._archive.infolist()
            if info.filename.startswith(FOLDER)
        )

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Readers go forward, so the member stays open where the last one stopped."""
        try:
            member = self._open.get(name) or self._archive.open(FOLDER + name)
            self._open[name] = member
            if member.tell() != offset:
                member.seek(offset)
            return member.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            self._open.pop(name, None)
            raise OSError(f"{self.location}: {error}") from error


def source_at(path: str | os.PathLike[str]) -> Source:
    """A journal's directory, or a packed journal. Raises NotPacked, OSError."""
    return PackedSource(path) if os.path.isfile(path) else DirectorySource(path)
