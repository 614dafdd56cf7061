"""``ebbtide journal pack``: one file for a ticket, with names or redacted. It appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import click

from ebbtide import __version__
from ebbtide.cli.common.guard import DIVERGED, DONE, NOT_SO, Refused, worst
from ebbtide.cli.common.output import remark, show
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.saving import spare_journals
from ebbtide.cli.common.shared_options import OPTIONAL_EPISODE, episode_verb
from ebbtide.events.messages import plural
from ebbtide.events.pack import FILE_MODE, Excerpt, PackedSource, around_records, whole_journal, write_pack
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.record.format import document
from ebbtide.events.recovery import Finding, findings_to_documents
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import size_text
from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, redact
from ebbtide.replay.verify import verify

PACK_VERSION = 1

CHUNK_BYTES = 1024 * 1024

EPILOG = """\b
Examples:
  ebbtide journal pack -o ticket-4711.zip
  ebbtide journal pack --redact -o ticket-4711.zip
  ebbtide journal pack -2 --journal /mnt/old/journal -o that-one.zip

To read the file, name it as a journal: --journal ticket-4711.zip
"""


@episode_verb("pack", EPILOG, episode=OPTIONAL_EPISODE)
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to make.",
)
@click.option(
    "--redact",
    "redacted",
    is_flag=True,
    help="Replace names by pseudonyms, and drop outputs. The copy still verifies.",
)
@click.option("--all", "everything", is_flag=True, help="The whole journal, not one shutdown.")
def pack_command(
    episode: str | None, journals: tuple[Path, ...], file: Path, redacted: bool, everything: bool
) -> int:
    """Make one file of a shutdown, for a ticket.

    EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. With --redact no file has
    a table of the real names; records keep their numbers and times, and the first record has the
    original's id and last hash.
    """
    # The copy has the journal's damage too, hence the verdict's exit code.
    if everything and episode:
        raise Refused(f"--all packs the whole journal: leave out --all or {episode}")
    if file.is_dir():
        raise Refused(f"{file} is a directory: name the file to write with -o")
    spare_journals(file)
    whole = open_journal(journals)
    if everything:
        excerpt = whole_journal(whole)
    else:
        from ebbtide.cli.common.selection import choose_episode

        wanted = choose_episode(journals, episode or "last")
        whole.read()
        excerpt = around_records(whole, wanted.first_seq, wanted.last_seq)
    history = History([excerpt], logics=LOGICS if redacted else None)
    code = conclude(history.read())
    if not redacted:
        _put(file, _manifest(history, {}, excerpt.stated), _pieces(excerpt), lambda path: None)
    elif pack_redacted(history, file) == DIVERGED:
        return worst((code, DIVERGED))
    with_names = "pseudonyms only; the file has no table of real names" if redacted else "names as they are"
    count = plural(len(list(episodes(history))), "outage" if history.of_outages else "shutdown")
    records = f"{history.verdict.first_seq} to {history.verdict.end.seq}"
    show(f"{file}: {count}, records {records}, {size_text(file.stat().st_size)}, {with_names}")
    return code


def pack_redacted(history: History, file: Path) -> int:
    """DIVERGED where the logic decides differently today. Raises Refused."""
    verdict = history.verdict
    original = {"journalId": history.journal_id.hex(), "headSeq": verdict.end.seq}

    def verify_copy(path: Path) -> None:
        # Before the file gets its name: a copy with another outcome than the original would be false
        # evidence.
        with closing(PackedSource(path)) as source:
            result = verify(History([source], logics=LOGICS))
        wrong = result.divergence or result.failure
        if wrong is None and result.verdict.state == verdict.state:
            return
        at = result.divergence.seq if result.divergence is not None else result.stopped_seq
        why = result.verdict.banner if wrong is None else f"{type(wrong).__name__} at record {at}"
        raise Refused(
            f"nothing was packed: the copy without names does not replay as the original does ({why}); "
            "please report it, and pack it without --redact",
            NOT_SO,
        )

    try:
        manifest = _manifest(history, original, verdict.findings)
        _put(file, manifest, redact(history, Pseudonyms()), verify_copy)
    except NoBegin as error:
        raise Refused(f"this journal cannot be redacted: {error}; pack it without --redact") from error
    except Diverged as error:
        remark(
            f"ebbtide: nothing was packed: {error}, and only a journal that replays can be redacted; "
            "'ebbtide replay verify' explains it"
        )
        return DIVERGED
    return DONE


def _put(
    file: Path,
    manifest: dict[str, Any],
    pieces: Iterable[tuple[str, bytes]],
    check: Callable[[Path], None],
) -> None:
    # Exclusive, and with its mode from the start: no link is followed, and no other user can open it.
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(descriptor, "w+b") as opened:
            write_pack(opened, manifest, pieces)
        check(part)
        part.replace(file)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _pieces(excerpt: Excerpt) -> Iterator[tuple[str, bytes]]:
    """In pieces: a journal may be larger than the memory."""
    for stored in excerpt.files():
        offset = 0
        while data := excerpt.read(stored.name, offset, CHUNK_BYTES):
            yield stored.name, data
            offset += len(data)


def _manifest(history: History, original: dict[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    """``findings``: the original's, which the copy's bytes do not show."""
    verdict = history.verdict
    # A redacted copy has its own hashes: with the original's id alone it would look like the original.
    named = {"original": original} if original else {"journal_id": history.journal_id.hex()}
    return document(
        "PackedJournal",
        PACK_VERSION,
        made_by=f"ebbtide {__version__}",
        redacted=bool(original),
        first_seq=verdict.first_seq,
        last_seq=verdict.end.seq,
        state=verdict.state,
        findings=findings_to_documents(findings),
        **named,
    )
