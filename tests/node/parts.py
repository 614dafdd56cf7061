"""The node's parts: command lines, settings and ports.

They run in their own network, so ports and addresses are the usual ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.node.identities import CONTROLLERS, PROXY, SCHEDULER, Secrets, kubelet
from tests.node.image import IMAGE
from tests.node.programs import CNI

API_PORT = 6443
API = f"https://127.0.0.1:{API_PORT}"
ETCD = "http://127.0.0.1:2379"
FIRST_ADDRESS = "10.77.0.1"
SERVICES = "10.96.0.0/16"
MANIFESTS = "manifests"

CONTAINERD = """version = 2
root = "{state}/root"
state = "{state}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{state}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  # Without CAP_SYS_RESOURCE runc cannot lower the score, and dies of it.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{state}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


class Part(NamedTuple):
    """``name`` also names its log."""

    name: str
    argv: list[str]
    environ: dict[str, str]


class Member(NamedTuple):
    """A node of the bed. ``number`` (from 1) determines its addresses and ports."""

    name: str
    number: int
    folder: Path

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def api(self) -> str:
        """This node's own API server address, so that it can be cut off alone."""
        return f"https://{self.address}:{API_PORT}"

    @property
    def pods(self) -> str:
        """Their addresses: a thousand."""
        return f"10.88.{4 * self.number}.0/22"

    @property
    def socket(self) -> Path:
        return self.folder / f"cri-{self.number}.sock"

    @property
    def state(self) -> Path:
        return self.folder / "state" / self.name

    @property
    def unit(self) -> str:
        return "kubelet.service" if self.number == 1 else f"kubelet-{self.number}.service"

    @property
    def port(self) -> int:
        return 10250 + 1000 * (self.number - 1)


def etcd(state: Path) -> Part:
    peers = "http://127.0.0.1:2380"
    argv = ["etcd", f"--data-dir={state / 'etcd'}", "--logger=zap", "--log-level=warn"]
    clients = [f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}"]
    others = [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
    return Part("etcd", [*argv, *clients, *others, f"--initial-cluster=default={peers}"], {})


def api_server(program: Path, secrets: Secrets, state: Path) -> Part:
    flags = {
        "etcd-servers": ETCD,
        "secure-port": API_PORT,
        "advertise-address": FIRST_ADDRESS,
        "service-cluster-ip-range": SERVICES,
        "cert-dir": state / "api",
        "tls-cert-file": secrets.certificate,
        "tls-private-key-file": secrets.key,
        "token-auth-file": secrets.tokens,
        "client-ca-file": secrets.authority,
        "service-account-key-file": secrets.accounts_key,
        "service-account-signing-key-file": secrets.accounts_key,
        "service-account-issuer": "https://kubernetes.default.svc",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        # Pods start without a token unless they request one.
        "disable-admission-plugins": "ServiceAccount",
        "allow-privileged": "true",
        "kubelet-preferred-address-types": "InternalIP",
    }
    return Part("kube-apiserver", [str(program), *_flags(flags)], {})


def controllers(program: Path, secrets: Secrets) -> Part:
    flags = {
        "kubeconfig": secrets.kubeconfig(CONTROLLERS, API, "controllers"),
        "service-account-private-key-file": secrets.accounts_key,
        "root-ca-file": secrets.authority,
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
    }
    return Part("kube-controller-manager", [str(program), *_flags(flags)], {})


def scheduler(program: Path, secrets: Secrets) -> Part:
    kubeconfig = secrets.kubeconfig(SCHEDULER, API, "scheduler")
    flags = {"kubeconfig": kubeconfig, "leader-elect": "false", "bind-address": "127.0.0.1"}
    return Part("kube-scheduler", [str(program), *_flags(flags)], {})


def proxy(program: Path, secrets: Secrets, member: Member) -> Part:
    """One for the network of all nodes. It skips settings that it may not change."""
    flags = {
        "kubeconfig": secrets.kubeconfig(PROXY, API, "proxy"),
        "hostname-override": member.name,
        "proxy-mode": "iptables",
        "conntrack-max-per-core": 0,
        "conntrack-min": 0,
        "conntrack-tcp-timeout-established": "0s",
        "conntrack-tcp-timeout-close-wait": "0s",
    }
    return Part("kube-proxy", [str(program), *_flags(flags)], {})


def containerd(member: Member) -> Part:
    config = member.folder / f"containerd-{member.number}.toml"
    text = CONTAINERD.format(state=member.state, socket=member.socket, image=IMAGE, cni=CNI)
    config.write_text(text)
    return Part(f"containerd-{member.name}", ["containerd", "--config", str(config)], {})


def network(member: Member) -> str:
    """The conflist: a veth pair per pod, addresses from the node's range."""
    ranges = [[{"subnet": member.pods}]]
    ipam = {
        "type": "host-local",
        "dataDir": str(member.state / "addresses"),
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins = [{"type": "ptp", "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "0.4.0", "name": f"pods-{member.number}", "plugins": plugins})


def kubelet_part(
    program: Path, secrets: Secrets, member: Member, group: str, bus: str, changes: dict[str, Any]
) -> Part:
    """``changes`` override the settings; ``bus``: the private bus."""
    config = member.folder / f"kubelet-{member.number}.json"
    config.write_text(json.dumps(kubelet_settings(member, group) | changes))
    flags = {
        "config": config,
        "kubeconfig": secrets.kubeconfig(kubelet(member.name), member.api, member.name),
        "hostname-override": member.name,
        "node-ip": member.address,
        "root-dir": member.state / "kubelet",
        "cert-dir": member.state / "pki",
        "v": 2,
    }
    return Part(f"kubelet-{member.name}", [str(program), *_flags(flags)], {"DBUS_SYSTEM_BUS_ADDRESS": bus})


def kubelet_settings(member: Member, group: str) -> dict[str, Any]:
    """Settings for this machine, and graceful node shutdown: 30 s, the last 10 critical."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "shutdownGracePeriod": "30s",
        "shutdownGracePeriodCriticalPods": "10s",
        "containerRuntimeEndpoint": f"unix://{member.socket}",
        "staticPodPath": str(member.state / MANIFESTS),
        "podLogsDir": str(member.state / "logs"),
        "volumePluginDir": str(member.state / "plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}/{member.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": member.address,
        "port": member.port,
        "healthzPort": member.port - 2,
        "resolvConf": "",
        "maxPods": 600,
        "evictionHard": {"memory.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "registryPullQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }


def _flags(flags: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
