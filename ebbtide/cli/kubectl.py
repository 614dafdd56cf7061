"""``kubectl ebbtide``: a node's status, plan, doctor and timeline from anywhere, over the API server.

A plugin by its name: an executable ``kubectl-ebbtide`` on the path. It has the rights of the kubeconfig's
user, and executes one command in the container of ``deploy/kubernetes/view``, which asks the daemon
(`ebbtide.view_socket`). The answer is that command's, with its exit code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

import click

from ebbtide import __version__
from ebbtide.cli.common.guard import NOT_SO, WRONG, Refused
from ebbtide.cli.common.shared_options import EpisodeCommand, need_command, output_option
from ebbtide.cli.outage.outage_common import (
    HTTP_FORBIDDEN,
    HTTP_UNAUTHORIZED,
    NAMESPACE_NAME,
    NODE_NAME,
    Cluster,
    ask_cluster,
    chosen_kubeconfig,
    decoded,
    kubeconfig_option,
    ready_text,
    refused,
)

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import Answer
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient

#: Of deploy/kubernetes/view, and how it is installed.
NAMESPACE, CONTAINER, LABEL = "ebbtide-view", "view", "app.kubernetes.io/name=ebbtide-view"
INSTALL = "kubectl apply -k deploy/kubernetes/view"
PROGRAM = ("ebbtide", "view")
#: The daemon gives a client a minute, with its turn; and the way there and back.
SECONDS_MAX = 70.0
#: The daemon's limit is half of this.
BYTES_MAX = 4 * 1024 * 1024

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


def _add_verb(name: str, short: str, text: str, formats: tuple[str, ...], *own: click.Parameter) -> None:
    """``own``: parameters of the verb on the node, beside NODE and its way there."""

    def ask(
        node: str, kubeconfig: str | None, context: str, namespace: str, shutdown: str = "", **options: Any
    ) -> int:
        words = [name, *([shutdown] if shutdown else ())]
        for option, value in options.items():
            if value not in (None, False, ""):
                words.append(f"--{option}" if value is True else f"--{option}={value}")
        return answer(node, kubeconfig, context, namespace, words)

    there: list[click.Parameter] = [
        click.Argument(["node"], type=NODE_NAME),
        *own,
        click.Option(
            ["--context"], default="", metavar="NAME", help="Of the kubeconfig.  [default: its current one]"
        ),
        click.Option(
            ["-n", "--namespace"],
            default=NAMESPACE,
            show_default=True,
            metavar="NAME",
            type=NAMESPACE_NAME,
            help="Where the pods of deploy/kubernetes/view are.",
        ),
    ]
    decorated = kubeconfig_option(output_option(*formats)(ask))
    plugin.command(name, cls=EpisodeCommand, params=there, help=text, short_help=short, epilog=EPILOG)(
        decorated
    )


_add_verb(
    "status",
    "Armed or not, the lock, the grant, the last shutdown.",
    """Show whether NODE is protected, and the outcome of its last shutdown.""",
    ("table", "json"),
)
_add_verb(
    "plan",
    "What a shutdown now would do, and why.",
    """Show what a shutdown of NODE now would do: waves, each pod's grace, cuts, warnings.""",
    ("table", "json", "yaml"),
    click.Option(["--grant"], metavar="DURATION", help="logind's limit; the node's if not given."),
)
_add_verb(
    "doctor",
    "What would keep the next shutdown from being graceful.",
    """Look for what would keep the next shutdown of NODE from being graceful.

    Exit code 1: a finding stops a graceful shutdown.
    """,
    ("table", "json"),
)
_add_verb(
    "timeline",
    "A shutdown, a line a transition; or one pod's story.",
    """Show a shutdown of NODE, a line a transition; with --pod one pod's story.

    SHUTDOWN is last (the default, also one that runs), -1, -2, …, or an id.
    """,
    ("table", "json"),
    click.Argument(["shutdown"], default="last"),
    click.Option(["--all"], is_flag=True, help="Every record, bookkeeping too."),
    click.Option(["--actor"], metavar="NAME", help="Only what this actor wrote (hook, wave, edge)."),
    click.Option(["--pod"], metavar="POD", help="One pod's story, in sentences: any of its names."),
    click.Option(["--wave"], type=click.IntRange(min=0), metavar="N", help="Only this wave's."),
    click.Option(["--since"], metavar="MOMENT", help="From here, as in 'ebbtide replay timeline'."),
    click.Option(["--until"], metavar="MOMENT", help="Up to here."),
)


# --- the way to the node ------------------------------------------------------------------------


def answer(node: str, kubeconfig: str | None, context: str, namespace: str, words: list[str]) -> int:
    """Show the command's output there; its exit code. Raises Refused."""
    from ebbtide.events.record.format import visible

    async def look(cluster: Cluster) -> tuple[int, str, str]:
        return await ask_there(cluster, node=node, namespace=namespace, words=words)

    code, out, err = ask_cluster(chosen_kubeconfig(kubeconfig), look, context)
    # The command has escaped its output; a container in its place need not.
    for stream, text in ((sys.stdout, out), (sys.stderr, err)):
        stream.write("".join(f"{visible(line)}\n" for line in text.splitlines()))
    return code


async def ask_there(cluster: Cluster, *, node: str, namespace: str, words: list[str]) -> tuple[int, str, str]:
    """The exit code and both outputs. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import (
        Answer,
        ApiPod,
        ListPart,
        Unanswered,
        pod_path,
    )

    fields = urlencode({"labelSelector": LABEL, "fieldSelector": f"spec.nodeName={node}"})
    listed = await cluster.call("GET", f"/api/v1/namespaces/{quote(namespace)}/pods?{fields}")
    if listed.code == HTTP_FORBIDDEN:
        raise _without_right(listed, f"list pods in namespace {namespace}")
    pods = decoded(listed, f"list pods in namespace {namespace}", ListPart[ApiPod]).items or []
    pod = next((each.metadata.name for each in pods if each.status.phase == "Running"), "")
    if not pod:
        found = [f"pod {namespace}/{each.metadata.name} is {each.status.phase}" for each in pods]
        cure = f"'{INSTALL}' makes one, -n names another namespace"
        none = f"no pod of ebbtide-view is on it in namespace {namespace}: {cure}"
        cause = f"{found[0]}: see 'kubectl -n {namespace} get pods'" if found else none
        raise await unreachable(cluster, node, cause)
    asked = [*(("command", word) for word in (*PROGRAM, *words)), ("container", CONTAINER)]
    path = f"{pod_path(namespace, pod)}/exec?{urlencode([*asked, ('stdout', 1), ('stderr', 1)])}"
    client = cast("ApiClient", cluster.caller)
    try:
        done = await client.execute(path, seconds_max=SECONDS_MAX, bytes_max=BYTES_MAX)
    except Unanswered as error:
        cause = f"the command in pod {namespace}/{pod} does not answer: {error}"
        raise await unreachable(cluster, node, cause) from None
    if isinstance(done, Answer):
        if done.code in (HTTP_UNAUTHORIZED, HTTP_FORBIDDEN):
            raise _without_right(done, f"call the command in pod {namespace}/{pod}")
        cause = f"the API server does not reach the kubelet of {node} ({done.code}), or not pod {pod}"
        raise await unreachable(cluster, node, cause)
    code, why = ending(done.ended)
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    if code is None:
        raise await unreachable(cluster, node, f"pod {namespace}/{pod} has no answer: {why}")
    # No daemon answers in there.
    if code == WRONG and not out and words[0] == "status":
        raise await unreachable(cluster, node, err.removeprefix("ebbtide: ").strip())
    return code, out, err


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


async def unreachable(cluster: Cluster, node: str, cause: str) -> Refused:
    """The error, with the Node's state. Raises Refused where there is no such Node."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path

    try:
        known = await cluster.one(node_path(node), ApiNode)
    except Refused as error:
        return Refused(f"{cause}; {error.format_message()}", NOT_SO)
    if known is None:
        raise Refused(f"there is no Node {node!r}: 'kubectl get nodes' names them")
    return Refused(
        f"{node}, which is {ready_text(known.status.conditions)}, cannot be asked: {cause}", NOT_SO
    )
