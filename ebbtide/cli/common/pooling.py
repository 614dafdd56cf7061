"""Journals of several nodes, told apart by their ids, and read as one body of evidence.

Elsewhere several ``--journal`` are places of one journal, which a failing disk spread over them. Here each
directory may hold another node's; places that hold the same journal still count as one. A folder of such
directories may be named as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ebbtide.cli.common.guard import Refused
from ebbtide.options import JOURNAL_PATH

if TYPE_CHECKING:
    from ebbtide.events.recovery import Verdict


F = TypeVar("F", bound=Callable[..., Any])

#: What a segment's file is called.
SEGMENT_FILES = "*.ebj"


def pooled_option(option: str, name: str) -> Callable[[F], F]:
    default = f"  [default: {JOURNAL_PATH} and the configured fallbacks]" if option == "--journal" else ""
    return click.option(
        option,
        name,
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help=f"A node's journal, or a folder of such; repeatable, for a fleet.{default}",
    )


class JournalPool:
    """``code`` is the worst of the journals' verdicts, once `shutdown_records` has been read to the end.

    ``verdicts`` has each of them, in the order in which they were read.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises Refused where a place is missing or holds no journal, OSError."""
        from ebbtide.cli.common.reading import sources_of

        self.code = 0
        self.verdicts: list[Verdict] = []
        self._groups: dict[str, list[Any]] = {}
        for named in [[place] for place in folders] or [[]]:
            found = _sources_by_journal(
                sources_of([inner for place in named for inner in _journals_below(place)])
            )
            if not found:
                raise Refused(f"no journal in {(*named, JOURNAL_PATH)[0]}: name a node's journal directory")
            for journal, sources in found.items():
                self._groups.setdefault(journal, []).extend(sources)

    def __len__(self) -> int:
        """How many journals there are."""
        return len(self._groups)

    def shutdown_records(self) -> Iterator[Any]:
        """Every shutdown's account, journal by journal; says on standard error what was wrong with one."""
        from ebbtide.actors.edges.linux.proc import boot_id
        from ebbtide.cli.common.guard import worst
        from ebbtide.cli.common.reading import conclude
        from ebbtide.events.reader import History
        from ebbtide.events.record.fold import shutdown_records

        for journal, sources in self._groups.items():
            history = History(sources, journal=journal)
            yield from shutdown_records(history, boot_id=boot_id())
            self.verdicts.append(history.verdict)
            self.code = worst((self.code, conclude(history.verdict)))


def _journals_below(place: Path) -> Iterator[Path]:
    """A folder without segments of its own stands for those in it."""
    if not place.is_dir():
        yield place
        return
    inner = (
        [] if any(place.glob(SEGMENT_FILES)) else sorted({file.parent for file in place.rglob(SEGMENT_FILES)})
    )
    yield from inner or [place]


def _sources_by_journal(sources: Sequence[Any]) -> dict[str, list[Any]]:
    """Sources by the first eight digits of each journal's id, in the order in which they were named."""
    from ebbtide.events.catalog import find_segments

    groups: dict[str, list[Any]] = {}
    for source in sources:
        for journal in dict.fromkeys(segment.journal for segment in find_segments([source]) if segment.size):
            groups.setdefault(journal, []).append(source)
    return groups
