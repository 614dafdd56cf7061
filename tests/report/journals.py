"""Journals of modelled shutdowns in memory, for the report and the exports: plain, hostile and large ones."""

from __future__ import annotations

from events.base import NS_PER_SECOND
from events.history import History
from events.model import Container, Hook, Period, Pod, Settings
from replay.account.fold import accounts
from replay.account.model import Account
from replay.report.page import report
from replay.timeline import Line, timeline
from replay.virtual.behaviour import Behaviour, Rule, Takes
from replay.virtual.book import Shelf
from replay.virtual.plan import Faults
from replay.virtual.simulate import Wanted, simulate

Files = dict[str, bytes]

#: When the model's machines begin.
STARTED = "2026-01-01T00:00:10.000000000Z"

SETTINGS = Settings(
    by_pod_priority=(
        Period(priority=0, seconds=10),
        Period(priority=1000, seconds=20),
        Period(priority=2000, seconds=5),
    )
)

#: What nobody should be able to do with a name, and what may look strange but must work.
HOSTILE = (
    "</script><script>window.hit=1</script>",
    "</style><style>*{display:none}",
    '"><img src="http://127.0.0.1:9/x.png" onerror="window.hit=1">',
    "<!--<script>",
    "{{data}}",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "\u2028line\u2029\x00\x1b[31m",
    "🌊-ebb-👩‍🚒",
    "שלום",
    "x" * 253,
    "' onmouseover='window.hit=1",
)


def pod(name: str, priority: int = 0, hook: str = "", grace_seconds: int = 30) -> Pod:
    """A pod of one container; ``hook`` names the program of its preStop hook."""
    made = Hook(kind="exec", detail=hook) if hook else None
    containers = (Container(name="main", hook=made),)
    return Pod(
        uid=f"uid-{priority}-{name}",
        namespace="shop",
        name=name,
        priority=priority,
        grace_seconds=grace_seconds,
        containers=containers,
    )


STORY = (
    pod("web-0", hook="drain"),
    pod("web-1"),
    pod("stuck-0"),
    pod("api-0", 1000, hook="hand-over"),
    pod("api-1", 1000),
    pod("db-0", 2000),
)

#: One that ignores its signal, and a hook that holds its wave.
STORY_BEHAVIOUR = Behaviour(
    rules=(
        Rule(pod="stuck-*", ignores=True),
        Rule(pod="api-0", hook=Takes((12 * NS_PER_SECOND,))),
        Rule(pod="web-0", hook_fails=True),
    )
)


def run(wanted: Wanted, seed: int = 1) -> Files:
    """The journal of one checked run."""
    made = simulate(wanted._replace(settings=SETTINGS), seed)
    assert not made.breaches, made.breaches
    return made.files()


def story() -> Files:
    return run(Wanted(pods=STORY, behaviour=STORY_BEHAVIOUR, calm=True))


def hostile() -> Files:
    """Names, hooks and containers that try everything; some are killed, so that reasons name them too."""
    pods = tuple(pod(name, at % 2 * 1000, hook=name) for at, name in enumerate(HOSTILE))
    behaviour = Behaviour(
        rules=(Rule(pod="*i*", ignores=True), Rule(pod="*s*", hook_fails=True)), faults=Faults()
    )
    return run(Wanted(pods=pods, behaviour=behaviour, calm=True))


def many(count: int = 1020) -> Files:
    """Whatever the seed draws: hooks that hang, pods that are killed; a few end before the signal."""
    return run(Wanted(synthetic=count), seed=7)


def told(files: Files) -> tuple[Account, list[Line]]:
    """The last shutdown's account, and all of its lines."""
    account = list(accounts(History([Shelf(files)])))[-1]
    return account, list(timeline(History([Shelf(files)]).batches(), account.first_seq))


def page(files: Files) -> str:
    return report(*told(files), STARTED)
