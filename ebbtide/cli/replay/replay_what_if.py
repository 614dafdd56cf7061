"""``ebbtide replay what-if``: a shutdown decided again under other settings, both runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.actors.policy.planning import PlanWarning
from ebbtide.cli.common.guard import DIVERGED, Refused, code_of, unreadable, worst
from ebbtide.cli.common.output import remark, show, show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.selection import choose_shutdown
from ebbtide.cli.common.shared_options import DURATION, config_option, episode_verb
from ebbtide.cli.replay.what_if_view import what_if_document, what_if_tables
from ebbtide.config import load_named
from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.segment import LOGICS
from ebbtide.events.units import span
from ebbtide.events.values import Settings
from ebbtide.manifests import load_pods
from ebbtide.replay.whatif.record import Changes, Diverged, NoShutdownAtRecord, WrongChange
from ebbtide.replay.whatif.verdicts import Curves
from ebbtide.replay.whatif.whatif_run import what_if

EPILOG = """\b
Examples:
  ebbtide replay what-if --config new.yaml
  ebbtide replay what-if -2 --grant 90s
  ebbtide replay what-if --config new.yaml --pods new-pods.yaml -o json | jq .saved

The daemon's own logic decides again, in virtual time. Pods, hooks, logind and the API server act as recorded,
with the recorded delays. Where the record has only a bound (a pod killed after 20 s needed more than 20 s),
there are two runs: a best and a worst case, and totals are intervals. EVIDENCE: a pod's time was observed,
bounded, or assumed. A restart of the daemon stays in its place.
"""


@episode_verb("what-if", EPILOG, "table", "json")
@config_option
@click.option(
    "--pods",
    multiple=True,
    metavar="FILE|-",
    help="Manifests that replace recorded pods of the same namespace/name, or add pods; repeatable.",
)
@click.option("--grant", type=DURATION, metavar="DURATION", help="What logind grants.")
def what_if_command(
    episode: str,
    journals: tuple[Path, ...],
    configs: tuple[Path, ...],
    pods: tuple[str, ...],
    grant: int | None,
    output: str,
) -> int:
    """Decide a shutdown again under other settings: which pods would be saved, and how long it would take.

    EPISODE is last, -1, -2, …, or an id. Exit code 3: the record itself does not replay, so there is no
    answer; see 'ebbtide replay verify'.
    """
    # First: for an outage, a remark about options would be useless.
    shutdown, code = choose_shutdown(journals, episode)
    # Without a change the record has the answer; ``verify`` checks it.
    if not (configs or pods or grant is not None):
        raise Refused("name a change: --config FILE, --pods FILE or --grant 60s")
    settings = load_named(configs).settings if configs else None
    notes: list[PlanWarning] = []
    changes = Changes(
        settings=settings,
        pods=load_pods(pods, settings or Settings(), notes) if pods else (),
        grant_ns=grant,
    )
    for code_of_note, message in notes:
        remark(f"{code_of_note}: {message}")
    words = [
        *([f"the configuration {', '.join(map(str, configs))}"] if configs else []),
        *([f"the pods of {', '.join(pods)}"] if pods else []),
        *([f"a grant of {span(grant)}"] if grant is not None else []),
    ]
    history = open_journal(journals, logics=LOGICS)
    try:
        curves = Curves(shutdown_records(open_journal(journals)))
        found = what_if(history, shutdown.first_seq, changes, curves)
    except WrongChange as error:
        raise Refused(str(error)) from None
    except Diverged as error:
        remark(
            f"ebbtide: this version decides differently from the record: {error}; see 'ebbtide replay verify'"
        )
        return worst((DIVERGED, code))
    except (BadPayload, UnknownType) as error:
        remark(f"ebbtide: {unreadable(error)}")
        return worst((code_of(error), code))
    except NoShutdownAtRecord as error:
        # The reason is the journal's damage, else retention.
        if damaged := conclude(history.verdict):
            return worst((damaged, code))
        raise Refused(f"{error}, or the records before it were removed") from None
    if output == "json":
        show_json(what_if_document(shutdown, words, found))
    else:
        show(what_if_tables(shutdown, words, found))
    return code
