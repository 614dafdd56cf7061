"""``ebbtide journal show``: a stream of records from the segments, filtered on the way. Payloads are shown as
stored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import painter, remark
from ebbtide.cli.common.reading import conclude, follow_journal, open_journal, refuse_following, sources_of
from ebbtide.cli.common.shared_options import journals_option, output_option
from ebbtide.events.base import TYPES, Fact, Order
from ebbtide.events.codec import RawRecord, learn_record, plain_payload
from ebbtide.events.decisions import EpisodeClosed
from ebbtide.events.messages import Names
from ebbtide.events.record.causes import headline
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.format import rfc3339, visible, visible_json
from ebbtide.events.segment import Header

#: ``-o json`` shows the whole payload.
DATA_CHARACTERS_MAX = 160

#: Only an edited journal has values without a JSON form.
_encoder = msgspec.json.Encoder(enc_hook=repr)

#: From the API server, and from the manifest reader.
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")

RECORD_COLOURS: dict[str, dict[str, Any]] = {
    "dim": {"dim": True},
    "fact": {"fg": "cyan"},
    "order": {"fg": "magenta"},
    "decision": {"fg": "green"},
}

RecordTest = Callable[[Header, RawRecord], bool]

EPILOG = """\b
Examples:
  ebbtide journal show -f
  ebbtide journal show --since 10m --actor LogindActor
  ebbtide journal show --pod shop/web-0 -o json | jq .type
"""


@click.command("show", epilog=EPILOG)
@journals_option
@click.option("-f", "--follow", is_flag=True, help="Follow the journal.")
@click.option(
    "--since",
    default="",
    metavar="SEQ|AGO|TIME",
    help="From here: 214, 10m ago, or a time.",
)
@click.option(
    "--actor",
    default="",
    metavar="NAME",
    help="Only what this actor decided (HookActor, HookActor:UID, edge).",
)
@click.option(
    "--pod", default="", metavar="POD", help="Only what names this pod: namespace/name, a name, or a UID."
)
@output_option("table", "json")
def show_command(
    journals: tuple[Path, ...], follow: bool, since: str, actor: str, pod: str, output: str
) -> int:
    """Show a journal's events in their order, with the cause of each.

    As JSON it is one object a line, without fields at their default. Times are UTC.
    """
    if follow:
        refuse_following(journals)
    history, names = open_journal(journals), Names()
    tests = filter_tests(since, actor)
    if pod:
        from ebbtide.cli.common.selection import names_pod, pod_uids

        # A record may precede the one that introduces the pod.
        for raw in open_journal(journals).raw():
            learn_record(names, raw)
        uids = pod_uids(pod, names)
        # In a followed journal the pod may still come.
        if not follow and not uids():
            look = "'ebbtide journal show --actor edge' lists the pods"
            raise Refused(f"no pod {pod!r} in this journal: {look}")
        tests.append(lambda header, raw: names_pod(raw, uids()))
    paint, out = painter(RECORD_COLOURS), sys.stdout.buffer
    # Neither a write for each record nor a journal in memory.
    for batch in follow_journal(sources_of(journals)) if follow else history.batches():
        if batch is None:
            out.flush()
            continue
        header, records = batch
        closed = [raw.episode for raw in records if raw.tag == EpisodeClosed.__name__] if follow else []
        # Hidden records too may introduce the pod of a shown one.
        for raw in records:
            learn_record(names, raw)
        for test in tests:
            records = [raw for raw in records if test(header, raw)]
        if output == "json":
            out.writelines([record_json_line(header, raw) for raw in records])
        else:
            out.writelines([record_text_line(header, raw, names, paint) for raw in records])
        for number in closed if output != "json" else ():
            out.flush()
            for record in shutdown_records(open_journal(journals)):
                if record.first_seq == number:
                    remark(f"ebbtide: {headline(record)}")
    out.flush()
    return DONE if follow else conclude(history.verdict)


def filter_tests(since: str, actor: str) -> list[RecordTest]:
    """Raises Refused."""
    tests: list[RecordTest] = []
    if since:
        from ebbtide.cli.common.selection import parse_moment

        scale, value = parse_moment(since, "--since")
        if scale == "since_ns":
            # A listing covers all shutdowns of a journal, so no single signal can be the origin.
            raise Refused(
                f"--since {since} counts from a shutdown's signal, and 'journal show' covers all shutdowns:"
                f" write {since.lstrip('+-')} for that long ago, or use 'ebbtide replay timeline'"
            )
        if scale == "seq":
            tests.append(lambda header, raw: raw.seq >= value)
        else:
            tests.append(lambda header, raw: header.wall_ns(raw.mono_ns) >= value)
    if actor:
        from ebbtide.cli.common.selection import known_actor
        from ebbtide.replay.timeline import is_actor, short_name

        name = known_actor(actor)
        tests.append(lambda header, raw: is_actor(name, raw.actor, short_name(raw.actor)))
    return tests


def record_json_line(header: Header, raw: RawRecord) -> bytes:
    """``episode``: the number of the shutdown's first record, null outside."""
    document = {
        "seq": raw.seq,
        "time": rfc3339(header.wall_ns(raw.mono_ns)),
        "cause": raw.cause or None,
        "actor": raw.actor,
        "type": raw.tag,
        "data": plain_payload(raw.payload),
        "episode": raw.episode or None,
    }
    try:
        line = _encoder.encode(document)
    except (TypeError, ValueError):
        # MessagePack allows keys that JSON does not.
        line = _encoder.encode(document | {"data": raw.payload.hex()})
    return visible_json(line.decode()).encode() + b"\n"


def record_text_line(header: Header, raw: RawRecord, names: Names, paint: Callable[[str, str], str]) -> bytes:
    """``time seq <- cause type actor data``; decisions are indented below their fact."""
    wall = rfc3339(header.wall_ns(raw.mono_ns))
    cause = f"<- {raw.cause}" if raw.cause else ""
    head = f"{wall[:10]} {wall[11:23]} {raw.seq:>6} {cause:<9}"
    name = f"  {visible(raw.tag):<18}" if raw.cause else f"{visible(raw.tag):<20}"
    kind = TYPES.get(raw.tag)
    colour = "plain"
    if kind is not None:
        colour = "fact" if issubclass(kind, Fact) else "order" if issubclass(kind, Order) else "decision"
    actor = visible(_with_names(raw.actor, names))
    data = plain_payload(raw.payload)
    if isinstance(data, dict):
        text = " ".join(f"{field}={_value_text(value)}" for field, value in data.items())
        # Before the cut, which would break a UID.
        text = visible(_with_names(text, names))
        text = text if len(text) <= DATA_CHARACTERS_MAX else f"{text[: DATA_CHARACTERS_MAX - 1]}…"
    else:
        text = visible(str(data))
    return f"{paint('dim', head)} {paint(colour, name)} {actor:<24} {text}".rstrip().encode() + b"\n"


def _value_text(value: Any) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def _with_names(text: str, names: Names) -> str:
    return _UID.sub(lambda match: names.of(match[0]), text)
