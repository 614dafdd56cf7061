"""Reports of some shutdowns of a fleet, wherever their journals lie."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ebbtide.fleet import ID_BEGIN, Opened, Ref, open_journals

#: A shutdown by the whole id of its journal and its own: of two journals the latter may be the same.
Key = tuple[str, str]


def refs_of(keys: Collection[Key], refs: Sequence[Ref]) -> list[Ref]:
    """Those that may hold these shutdowns."""
    begins = {journal_id[:ID_BEGIN] for journal_id, _ in keys}
    return [ref for ref in refs if ref.id_begin in begins]


def reports(keys: Collection[Key], refs: Sequence[Ref]) -> list[tuple[Key, str, str]]:
    """Of each of these shutdowns that is found its page, or why none can be made."""
    made: list[tuple[Key, str, str]] = []
    for ref in refs:
        try:
            for opened in open_journals(ref):
                made += _reports_of(opened, keys)
        except Exception as problem:
            # The store may not give now what it gave before: the others have theirs all the same.
            here = ref.id_begin
            found = {key for key, _, _ in made}
            why = f"{type(problem).__name__}: {problem}"
            made += ((key, "", why) for key in keys if key[0][:ID_BEGIN] == here and key not in found)
    return made


def _reports_of(opened: Opened, keys: Collection[Key]) -> Iterator[tuple[Key, str, str]]:
    if not any(journal_id == opened.id for journal_id, _ in keys):
        return
    # Late: what makes pages is loaded by those processes alone that make one.
    from ebbtide.replay.library import report_html

    for shutdown in opened.journal().shutdowns():
        if (opened.id, shutdown.id) in keys:
            yield (opened.id, shutdown.id), report_html(shutdown), ""
