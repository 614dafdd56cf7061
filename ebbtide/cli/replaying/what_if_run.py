"""From what was asked of ``what-if`` to its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from actors.logic.flags import LOGIC_FLAGS
from ebbtide.cli.episodes import choose_account
from ebbtide.cli.guard import DIVERGED, Refused, code_of, unreadable, worst
from ebbtide.cli.output import remark, show, show_json
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.cli.replaying.what_if_show import document, tables
from ebbtide.cli.sources import read_config
from events.codec import BadPayload, UnknownType
from events.model import Pod, Settings
from replay.account.words import span
from replay.whatif.changes import Changes, WrongChange
from replay.whatif.compare import compare
from replay.whatif.performing import WhatIf
from replay.whatif.performing import what_if as decide
from replay.whatif.tape import Diverged, NotThere


def run_what_if(
    journals: Sequence[Path],
    episode: str,
    output: str,
    *,
    configs: Sequence[Path],
    pods: Sequence[str],
    grant: int | None,
    drop: Sequence[int],
    delay: Sequence[tuple[int, int]],
) -> int:
    """Exit code 0, that of the journal's verdict, or 3 where the record does not replay. Raises Refused."""
    if not (configs or pods or grant is not None or drop or delay):
        raise Refused(
            "say what is to be different: --config FILE, --pods FILE, --grant 60s, --drop-event SEQ"
            " or --delay-event SEQ=3s"
        )
    settings = read_config(configs).settings if configs else None
    changes = Changes(
        settings=settings,
        pods=_pods(pods, settings or Settings()),
        grant_ns=grant,
        drop=tuple(drop),
        delay=tuple(delay),
    )
    account, code = choose_account(journals, episode)
    found = _decided(journals, account.first_seq, changes)
    if isinstance(found, int):
        return worst((found, code))
    compared = compare(found)
    words = list(_in_words(configs, pods, changes))
    if output == "json":
        show_json(document(account, words, compared))
    else:
        show(tables(account, words, compared))
    return code


def _decided(journals: Sequence[Path], first_seq: int, changes: Changes) -> WhatIf | int:
    """The answer, or the exit code where there can be none; what is in the way is said."""
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    try:
        return decide(history, first_seq, changes)
    except WrongChange as error:
        raise Refused(str(error)) from None
    except Diverged as error:
        remark(
            f"ebbtide: this version decides otherwise than the record: {error}; see 'ebbtide replay verify'"
        )
        return DIVERGED
    except (BadPayload, UnknownType) as error:
        remark(f"ebbtide: {unreadable(error)}")
        return code_of(error)
    except NotThere as error:
        code = conclude(history.verdict)
        if code:
            return code
        raise Refused(f"{error}, or what stands before it was removed") from None


def _pods(paths: Sequence[str], settings: Settings) -> tuple[Pod, ...]:
    if not paths:
        return ()
    from ebbtide.manifests import load

    loaded = load(paths, allow_zero_sleep=settings.gate("PodLifecycleSleepActionAllowZero"))
    return tuple(manifest.pod for manifest in loaded if not manifest.finished)


def _in_words(configs: Sequence[Path], pods: Sequence[str], changes: Changes) -> Iterator[str]:
    if configs:
        yield f"the configuration {', '.join(map(str, configs))}"
    if pods:
        yield f"the pods of {', '.join(pods)}"
    if changes.grant_ns is not None:
        yield f"a grant of {span(changes.grant_ns)}"
    for seq in changes.drop:
        yield f"no record {seq}"
    for seq, delay_ns in changes.delay:
        yield f"record {seq} {span(delay_ns)} later"
