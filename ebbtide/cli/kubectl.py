"""``kubectl ebbtide``: a node's status, plan, doctor and timeline from anywhere, over the API server.

A plugin by its name: an executable ``kubectl-ebbtide`` on the path. It asks as whoever the kubeconfig names,
and enters nothing but the container of ``deploy/kubernetes/view``, in which there is one command to call and
one socket to ask (`ebbtide.view_socket`). The answer is that command's, with its exit code. Where no way
leads to the node, it says why, and what the API server knows of the node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode

import click

from ebbtide import __version__
from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.guard import NOT_SO, WRONG, Refused
from ebbtide.cli.common.shared_options import EpisodeCommand, need_command, output_option, wave_option
from ebbtide.cli.outage.outage_common import (
    HTTP_FORBIDDEN,
    HTTP_UNAUTHORIZED,
    NAMESPACE_NAME,
    Cluster,
    ago,
    ask_cluster,
    chosen_kubeconfig,
    decoded,
    kubeconfig_option,
    node_argument,
    ready_text,
    refused,
)

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiNode
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient

F = TypeVar("F", bound=Callable[..., Any])

#: Of deploy/kubernetes/view, and how it is installed.
NAMESPACE, CONTAINER, LABEL = "ebbtide-view", "view", "app.kubernetes.io/name=ebbtide-view"
INSTALL = "kubectl apply -k deploy/kubernetes/view"
PROGRAM = ("ebbtide", "view")
#: The daemon gives a client a minute, with its turn; and the way there and back.
SECONDS_MAX = 70.0
#: The daemon says no more than half of it.
BYTES_MAX = 4 * 1024 * 1024
#: As the daemon sets them (`actors.edges.kubernetes.node_writes`).
SHUTDOWN_CONDITIONS = ("DrainInProgress", "Drained", "GracefulNodeShutdownInProgress")
OWN_ANNOTATIONS = "ebbtide.dev/"

EPILOG = """\b
Examples:
  kubectl ebbtide status worker-3
  kubectl ebbtide plan worker-3 -o json
  kubectl ebbtide timeline worker-3 --pod shop/web-0


It needs the pods and the two roles of deploy/kubernetes/view, and no right to anything else. Exit codes are
those of the command on the node; 1 as well where no way leads to it.
"""


def plugin_command(command: F) -> F:
    """NODE, and who asks: options as kubectl calls them."""
    context = click.option(
        "--context", default="", metavar="NAME", help="Of the kubeconfig.  [default: its current one]"
    )
    namespace = click.option(
        "-n",
        "--namespace",
        default=NAMESPACE,
        show_default=True,
        metavar="NAME",
        type=NAMESPACE_NAME,
        help="Where the pods of deploy/kubernetes/view are.",
    )
    return node_argument(kubeconfig_option(context(namespace(command))))


@click.command(epilog=EPILOG)
@plugin_command
@output_option("table", "json")
def status(node: str, kubeconfig: str | None, context: str, namespace: str, output: str) -> int:
    """Show whether NODE is protected, and what became of its last shutdown.

    Of a node that is down or has no daemon, what the API server knows, with exit code 1.
    """
    from ebbtide.cli.common.output import pairs, remark, show, show_json

    try:
        return answer(node, kubeconfig, context, namespace, ["status", f"--output={output}"])
    except Unreachable as error:
        if error.known is None:
            raise
        rows, why = list(known_rows(error.known)), error.format_message()
        if output == "json":
            # As `ebbtide status` has it of a node without a daemon; but nobody knows that there is none.
            document = {"kind": "Status", "version": 1, "armed": False, "phase": "unreachable"}
            show_json(document | {"running": None, "error": why, "lastShutdown": None, "node": dict(rows)})
        else:
            show(pairs(rows))
        remark(f"ebbtide: {why}")
        return NOT_SO


@click.command(epilog=EPILOG)
@plugin_command
@click.option("--grant", default="", metavar="DURATION", help="logind's limit; the node's if not given.")
@output_option("table", "json", "yaml")
def plan(node: str, kubeconfig: str | None, context: str, namespace: str, grant: str, output: str) -> int:
    """Show what a shutdown of NODE now would do: waves, each pod's grace, what is cut short, warnings."""
    words = ["plan", f"--output={output}", *given(grant=grant)]
    return answer(node, kubeconfig, context, namespace, words)


@click.command(epilog=EPILOG)
@plugin_command
@output_option("table", "json")
def doctor(node: str, kubeconfig: str | None, context: str, namespace: str, output: str) -> int:
    """Look for what would keep the next shutdown of NODE from being graceful.

    Exit code 1: a finding stops a graceful shutdown.
    """
    return answer(node, kubeconfig, context, namespace, ["doctor", f"--output={output}"])


@click.command(epilog=EPILOG, cls=EpisodeCommand)
@plugin_command
@click.argument("shutdown", default="last")
@click.option("--all", "every", is_flag=True, help="Every record, bookkeeping too.")
@click.option("--actor", default="", metavar="NAME", help="Only what this actor wrote (hook, wave, edge).")
@click.option("--pod", default="", metavar="POD", help="One pod's story, in sentences: any of its names.")
@wave_option
@click.option("--since", default="", metavar="MOMENT", help="From here, as 'ebbtide replay timeline' has it.")
@click.option("--until", default="", metavar="MOMENT", help="Up to here.")
@output_option("table", "json")
def timeline(
    node: str,
    kubeconfig: str | None,
    context: str,
    namespace: str,
    shutdown: str,
    every: bool,
    wave: int | None,
    output: str,
    **filters: str,
) -> int:
    """Tell a shutdown of NODE, a line a transition; with --pod one pod's story.

    SHUTDOWN is last (the default, also one that runs), -1, -2, …, or an id.
    """
    words = ["timeline", shutdown, f"--output={output}", *(["--all"] if every else []), *given(**filters)]
    words += given(wave="" if wave is None else str(wave))
    return answer(node, kubeconfig, context, namespace, words)


SECTIONS = {
    "A node, from anywhere": {
        "status": Entry("kubectl:status", "Armed or not, the lock, the grant, the last shutdown."),
        "plan": Entry("kubectl:plan", "What a shutdown now would do, and why."),
        "doctor": Entry("kubectl:doctor", "What would keep the next shutdown from being graceful."),
        "timeline": Entry("kubectl:timeline", "A shutdown, a line a transition; or one pod's story."),
    }
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="ebbtide", message="%(prog)s %(version)s")
@click.pass_context
def plugin(ctx: click.Context) -> None:
    """Look at the graceful shutdown of a Kubernetes node, without a shell on it."""
    need_command(ctx)


# --- the way to the node ------------------------------------------------------------------------


class Unreachable(Refused):
    """No way leads to the daemon. ``known``: the Node; None where it may not be seen."""

    def __init__(self, message: str, known: ApiNode | None) -> None:
        super().__init__(message, NOT_SO)
        self.known = known


def given(**options: str) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value]


def answer(node: str, kubeconfig: str | None, context: str, namespace: str, words: list[str]) -> int:
    """Show what the command says there; its exit code. Raises Refused, Unreachable."""
    from ebbtide.events.record.format import visible

    async def look(cluster: Cluster) -> tuple[int, str, str] | Unreachable:
        try:
            return await ask_there(cluster, node=node, namespace=namespace, words=words)
        except Unreachable as error:
            return error  # out of the connection's nursery it would come in a group

    found = ask_cluster(chosen_kubeconfig(kubeconfig), look, context)
    if isinstance(found, Unreachable):
        raise found
    code, out, err = found
    # The command has escaped what it shows; a container that somebody has replaced need not.
    for stream, text in ((sys.stdout, out), (sys.stderr, err)):
        stream.write("".join(f"{visible(line)}\n" for line in text.splitlines()))
    return code


async def ask_there(cluster: Cluster, *, node: str, namespace: str, words: list[str]) -> tuple[int, str, str]:
    """The exit code and both outputs. Raises Refused, Unreachable."""
    from ebbtide.actors.edges.kubernetes.api_calls import Answer, Unanswered, pod_path

    pod = await pod_of(cluster, node, namespace)
    asked = [*(("command", word) for word in (*PROGRAM, *words)), ("container", CONTAINER)]
    path = f"{pod_path(namespace, pod)}/exec?{urlencode([*asked, ('stdout', 1), ('stderr', 1)])}"
    client = cast("ApiClient", cluster.caller)
    try:
        done = await client.execute(path, seconds_max=SECONDS_MAX, bytes_max=BYTES_MAX)
    except Unanswered as error:
        await unreachable(cluster, node, f"the command in pod {namespace}/{pod} does not answer: {error}")
    if isinstance(done, Answer):
        if done.code in (HTTP_UNAUTHORIZED, HTTP_FORBIDDEN):
            raise _without_right(done, f"call the command in pod {namespace}/{pod}")
        cause = f"the API server does not reach the kubelet of {node} ({done.code}), or not pod {pod}"
        await unreachable(cluster, node, cause)
    code, why = ending(done.ended)
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    if code is None:
        await unreachable(cluster, node, f"pod {namespace}/{pod} has no answer: {why}")
    # The daemon does not answer in there: so the command has nothing to say, and says why.
    if code == WRONG and not out and words[0] == "status":
        await unreachable(cluster, node, err.removeprefix("ebbtide: ").strip())
    return code, out, err


async def pod_of(cluster: Cluster, node: str, namespace: str) -> str:
    """The name of the pod to ask in. Raises Refused, Unreachable."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiPod, ListPart

    fields = urlencode({"labelSelector": LABEL, "fieldSelector": f"spec.nodeName={node}"})
    listed = await cluster.call("GET", f"/api/v1/namespaces/{quote(namespace)}/pods?{fields}")
    if listed.code == HTTP_FORBIDDEN:
        raise _without_right(listed, f"list pods in namespace {namespace}")
    pods = decoded(listed, f"list pods in namespace {namespace}", ListPart[ApiPod]).items or []
    running = [each.metadata.name for each in pods if each.status.phase == "Running"]
    if not running:
        found = [f"pod {namespace}/{each.metadata.name} is {each.status.phase}" for each in pods]
        cure = f"'{INSTALL}' makes one, -n names another namespace"
        none = f"no pod of ebbtide-view is on it in namespace {namespace}: {cure}"
        cause = f"{found[0]}: see 'kubectl -n {namespace} get pods'" if found else none
        await unreachable(cluster, node, cause)
    return running[0]


def _without_right(answer: Answer, what: str) -> Refused:
    error = refused(answer, what)
    return Refused(f"{error.format_message()}; the roles ebbtide-view are what it needs (docs/operations.md)")


def ending(ended: bytes) -> tuple[int | None, str]:
    """The exit code in a ``Status``; None with the reason where there is none."""
    import msgspec

    from ebbtide.actors.edges.kubernetes.api_calls import Answer
    from ebbtide.cli.outage.outage_common import status_text

    try:
        status = msgspec.json.decode(ended, type=dict[str, Any])
        if status.get("status") == "Success":
            return 0, ""
        (cause,) = (each for each in status["details"]["causes"] if each["reason"] == "ExitCode")
        return int(cause["message"]), ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, status_text(Answer(0, ended)) or "the connection was lost"


async def unreachable(cluster: Cluster, node: str, cause: str) -> NoReturn:
    """Raises Refused where there is no such Node, else Unreachable with what is known of it."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path

    try:
        known = await cluster.one(node_path(node), ApiNode)
    except Refused as error:
        raise Unreachable(f"{cause}; {error.format_message()}", None) from None
    if known is None:
        raise Refused(f"there is no Node {node!r}: 'kubectl get nodes' names them")
    ready = ready_text(known.status.conditions)
    raise Unreachable(f"{node}, which is {ready}, cannot be asked: {cause}", known)


def known_rows(node: ApiNode) -> Iterator[tuple[str, str]]:
    """Of a node that cannot be asked, what stands on its Node."""
    from ebbtide.actors.edges.kubernetes.api_calls import find_condition

    conditions = node.status.conditions
    since = ago((find_condition(conditions, "Ready") or {}).get("lastTransitionTime"))
    yield "node", f"{node.metadata.name}, {ready_text(conditions)}{f' since {since}' if since else ''}"
    yield "boot", node.status.node_info.boot_id or "unknown"
    yield "unschedulable", "yes" if node.spec.unschedulable else "no"
    taints = [f"{each.get('key')}:{each.get('effect')}" for each in node.spec.taints]
    yield "taints", ", ".join(taints) or "none"
    for kind in SHUTDOWN_CONDITIONS:
        if found := find_condition(conditions, kind):
            yield kind, f"{found.get('status')} {ago(found.get('lastTransitionTime'))}".rstrip()
    for name, value in sorted(node.metadata.annotations.items()):
        if name.startswith(OWN_ANNOTATIONS):
            yield name, value
