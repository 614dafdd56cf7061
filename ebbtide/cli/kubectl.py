"""``kubectl ebbtide``: a node's status, plan, doctor and timeline from anywhere, over the API server.

With the rights of the kubeconfig's user, it executes one command in the container of
``deploy/kubernetes/view``, which asks the daemon (`ebbtide.view_socket`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

import click

from ebbtide import __version__
from ebbtide.cli.app import LazyGroup, cli
from ebbtide.cli.common.guard import NOT_SO, WRONG, Refused
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    given_options,
    need_command,
    output_option,
    wave_option,
)
from ebbtide.cli.outage import SECTIONS
from ebbtide.cli.outage.outage_common import (
    HTTP_FORBIDDEN,
    HTTP_UNAUTHORIZED,
    NODE_NAME,
    Cluster,
    ask_cluster,
    decoded,
    executed_code,
    kubeconfig_option,
    namespace_option_of,
    ready_text,
    refused,
)
from ebbtide.cli.replay import replay
from ebbtide.events.record.format import visible

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient

NAMESPACE, CONTAINER, LABEL = "ebbtide-view", "view", "app.kubernetes.io/name=ebbtide-view"
INSTALL = "kubectl apply -k deploy/kubernetes/view"
#: The daemon gives a client a minute, with its turn; and the way there and back.
SECONDS_MAX = 70.0
#: The daemon's limit is half of this.
BYTES_MAX = 4 * 1024 * 1024

Verb = Callable[..., int]

WAY = (
    kubeconfig_option,
    click.option("--context", default="", metavar="NAME", help="Of the kubeconfig.  [default: current]"),
    namespace_option_of(NAMESPACE, "Where the pods of deploy/kubernetes/view are.", "-n"),
)

EPILOG = """\b
Examples:
  kubectl ebbtide status worker-3
  kubectl ebbtide plan worker-3 -o json
  kubectl ebbtide timeline worker-3 --pod shop/web-0


It needs the pods and the two roles of deploy/kubernetes/view, and no right to anything else. Exit codes are
those of the command on the node; 1 also where the node cannot be asked.
"""


@click.group(
    invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "-V", "--version", prog_name="ebbtide", message="%(prog)s %(version)s")
@click.pass_context
def plugin(ctx: click.Context) -> None:
    """Look at the graceful shutdown of a Kubernetes node, without a shell on it."""
    need_command(ctx)


@plugin.group(
    cls=LazyGroup,
    sections={title: entries for title, entries in SECTIONS.items() if "run" not in entries},
    invoke_without_command=True,
    epilog="The verbs of 'ebbtide outage', which has the controller too; with your own rights.",
)
@click.pass_context
def outage(ctx: click.Context) -> None:
    """Look at nodes that went down without a graceful shutdown, and say what only a person knows."""
    need_command(ctx)


def _add_verb(
    name: str, text: str, *own: Callable[[Verb], Verb], formats: tuple[str, ...] = ("table", "json")
) -> None:
    """``own``: the verb's parameters beside NODE and the way there."""

    def ask(
        node: str, kubeconfig: Path | None, context: str, namespace: str, shutdown: str = "", **options: Any
    ) -> int:
        given = (each if value is True else f"{each}={value}" for each, value in given_options(options))
        words = [name, *([shutdown] if shutdown else ()), *given]
        code, out, err = ask_cluster(
            kubeconfig, lambda each: ask_there(each, node, namespace, words), context
        )
        # The command has escaped its output, but another container may answer.
        for stream, text in ((sys.stdout, out), (sys.stderr, err)):
            stream.write("".join(f"{visible(line)}\n" for line in text.splitlines()))
        return code

    command: Verb = output_option(*formats)(ask)
    parameters: list[Callable[[Verb], Verb]] = [click.argument("node", type=NODE_NAME), *own, *WAY]
    for each in reversed(parameters):
        command = each(command)
    short = (cli.entries | replay.entries)[name].text
    plugin.command(name, cls=EpisodeCommand, help=text, short_help=short, epilog=EPILOG)(command)


_add_verb("status", "Show whether NODE is protected, and the outcome of its last shutdown.")
_add_verb(
    "plan",
    "Show what a shutdown of NODE now would do: waves, each pod's grace, cuts, warnings.",
    click.option("--grant", metavar="DURATION", help="logind's limit; the node's if not given."),
    formats=("table", "json", "yaml"),
)
_add_verb(
    "doctor",
    """Find what would make the next shutdown of NODE less graceful.

    Exit code 1: a finding stops a graceful shutdown.
    """,
)
_add_verb(
    "timeline",
    """Show a shutdown of NODE, a line a transition; with --pod one pod's story.

    SHUTDOWN is last (the default, also one that runs), -1, -2, …, or an id.
    """,
    click.argument("shutdown", default="last"),
    click.option("--all", is_flag=True, help="Every record, bookkeeping too."),
    click.option("--actor", metavar="NAME", help="Only what this actor wrote (hook, wave, edge)."),
    click.option("--pod", metavar="POD", help="One pod's story, in sentences: any of its names."),
    wave_option,
    click.option("--since", metavar="MOMENT", help="From here, as in 'ebbtide replay timeline'."),
    click.option("--until", metavar="MOMENT", help="Up to here."),
)


async def ask_there(cluster: Cluster, node: str, namespace: str, words: list[str]) -> tuple[int, str, str]:
    """The exit code and both outputs. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path

    try:
        return await _execute(cluster, node, namespace, words)
    except Refused as error:
        if error.code != NOT_SO:
            raise
        cause = error.format_message()
    try:
        known = await cluster.one(node_path(node), ApiNode)
    except Refused as error:
        raise Refused(f"{cause}; {error.format_message()}", NOT_SO) from None
    if known is None:
        raise Refused(f"there is no Node {node!r}: 'kubectl get nodes' names them")
    raise Refused(f"{node}, which is {ready_text(known.status.conditions)}, cannot be asked: {cause}", NOT_SO)


async def _execute(cluster: Cluster, node: str, namespace: str, words: list[str]) -> tuple[int, str, str]:
    """Raises Refused, with exit code 1 where the node does not answer."""
    from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiPod, ListPart, Unanswered, pod_path

    def without_right(answer: Answer, what: str) -> Refused:
        said = refused(answer, what).format_message()
        return Refused(f"{said}; it needs the roles ebbtide-view (docs/operations.md)")

    fields = urlencode({"labelSelector": LABEL, "fieldSelector": f"spec.nodeName={node}"})
    listed = await cluster.call("GET", f"/api/v1/namespaces/{quote(namespace)}/pods?{fields}")
    if listed.code == HTTP_FORBIDDEN:
        raise without_right(listed, f"list pods in namespace {namespace}")
    pods = decoded(listed, f"list pods in namespace {namespace}", ListPart[ApiPod]).items or []
    pod = next((each.metadata.name for each in pods if each.status.phase == "Running"), "")
    if not pod:
        found = [f"pod {namespace}/{each.metadata.name} is {each.status.phase}" for each in pods]
        cure = f"'{INSTALL}' makes one, -n names another namespace"
        none = f"no pod of ebbtide-view is on it in namespace {namespace}: {cure}"
        raise Refused(f"{found[0]}: see 'kubectl -n {namespace} get pods'" if found else none, NOT_SO)
    asked = [*(("command", word) for word in ("ebbtide", "view", *words)), ("container", CONTAINER)]
    path = f"{pod_path(namespace, pod)}/exec?{urlencode([*asked, ('stdout', 1), ('stderr', 1)])}"
    try:
        client = cast("ApiClient", cluster.caller)
        done = await client.execute(path, seconds_max=SECONDS_MAX, bytes_max=BYTES_MAX)
    except Unanswered as error:
        raise Refused(f"the command in pod {namespace}/{pod} does not answer: {error}", NOT_SO) from None
    if isinstance(done, Answer):
        if done.code in (HTTP_UNAUTHORIZED, HTTP_FORBIDDEN):
            raise without_right(done, f"call the command in pod {namespace}/{pod}")
        raise Refused(
            f"the API server does not reach the kubelet of {node} ({done.code}), or not pod {pod}", NOT_SO
        )
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    code, why = executed_code(done.ended)
    if code is None:
        raise Refused(f"pod {namespace}/{pod} has no answer: {why}", NOT_SO)
    # No daemon answers in there.
    if code == WRONG and not out and words[0] == "status":
        raise Refused(err.removeprefix("ebbtide: ").strip(), NOT_SO)
    return code, out, err
