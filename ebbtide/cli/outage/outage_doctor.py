"""``ebbtide outage doctor``: would an outage of each node be recovered?

`cluster_looks` reads the cluster with a person's rights, and asks the proof sources from here;
`ebbtide.outage.checks` judges the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click
from msgspec import Struct

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import Heading, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.doctor import print_findings
from ebbtide.cli.outage.cluster_looks import gather
from ebbtide.cli.outage.outage_common import (
    ask_cluster,
    kubeconfig_option,
    namespace_option,
)
from ebbtide.doctor.rules import Finding
from ebbtide.extras import require
from ebbtide.outage.checks import NodeCheck, examine
from ebbtide.outage.configuration import OutageConfiguration, load_outage

EPILOG = """\b
Examples:
  ebbtide outage doctor --config outage.yaml
  ebbtide outage doctor --config outage.yaml -o json | jq '.findings[] | select(.level == "critical")'


Management controllers and clouds are asked from here, with the credentials that the configuration names: run
it where these files are, best in the controller's pod. Only looks. Exit code 1: a finding is critical.
"""


class NodeProof(Struct):
    """``proof``: the answers of its sources, such as ``redfish 10.0.0.7: on``."""

    name: Annotated[str, Heading("NODE")]
    pool: Annotated[str, Heading("POOL")]
    ready: Annotated[bool, Heading("READY")]
    proof: Annotated[str, Heading("PROOF")]


class OutageDiagnosis(Struct, kw_only=True, tag_field="kind", tag="OutageDiagnosis"):
    version: int = 1
    recoverable: bool
    findings: list[Finding]
    nodes: list[NodeProof]


def node_proof(node: NodeCheck) -> NodeProof:
    said = [f"{each.source} {each.name}: {each.error or each.verdict}" for each in node.sources]
    believed = ", ".join(node.pool.believe)
    stated = f"only statements on the Node ({believed})" if believed else "none"
    return NodeProof(node.name, node.pool.name, node.ready, "; ".join(said) or stated)


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The controller's OutageConfiguration (docs/outage-configuration.md).",
)
@kubeconfig_option
@namespace_option
@output_option("table", "json")
@click.pass_context
def doctor(
    ctx: click.Context, config: Path | None, kubeconfig: Path | None, namespace: str, output: str
) -> int:
    """Check whether an outage of each node would be recovered, with a cure for each problem."""
    require("node", "outage doctor")
    loaded = OutageConfiguration() if config is None else load_outage(config)
    given = ctx.get_parameter_source("namespace") is click.core.ParameterSource.COMMANDLINE
    where = namespace if given or config is None else loaded.namespace
    seen = ask_cluster(
        kubeconfig,
        lambda each: gather(each, loaded, where, configured=config is not None),
    )
    findings = examine(seen)
    found = OutageDiagnosis(
        recoverable=not any(finding.level == "critical" for finding in findings),
        findings=findings,
        nodes=list(map(node_proof, seen.nodes)),
    )
    if output == "json":
        show_json(found)
    else:
        print_findings(findings, "ok: an outage of each node would be recovered")
        if found.nodes:
            show("")
            show(struct_table(found.nodes))
    return DONE if found.recoverable else NOT_SO
