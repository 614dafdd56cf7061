"""What was asked of ``simulate``, as the simulator wants it, and as a command that asks for it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from ebbtide import __version__
from ebbtide.cli.guard import Refused
from replay.virtual.plan import Mode
from replay.virtual.simulate import SYNTHETIC_PODS, Wanted


class Asked(NamedTuple):
    """The options as they were given."""

    configs: tuple[Path, ...]
    pods: tuple[str, ...]
    synthetic: int | None
    behaviour: Path | None
    seed: int | None
    runs: int | None
    seeds: range | None
    calm: bool
    mode: str | None
    api_lost_after: int | None
    journal: Path | None

    @property
    def several(self) -> bool:
        return self.runs is not None or self.seeds is not None

    def all_seeds(self) -> Sequence[int]:
        """Raises Refused."""
        if self.seeds is not None:
            if self.seed is not None or self.runs is not None:
                raise Refused("--seeds says which seeds: leave --seed and --runs out")
            return self.seeds
        first = self.seed or 0
        return range(first, first + (self.runs or 1))

    def command(self, seed: int) -> str:
        """What shows this one seed again; a journal to look at is a good idea then."""
        options = [
            *(word for path in self.configs for word in ("--config", str(path))),
            *(word for path in self.pods for word in ("--pods", path)),
            *(("--synthetic", str(self.synthetic)) if self.synthetic is not None else ()),
            *(("--behaviour", str(self.behaviour)) if self.behaviour is not None else ()),
            *(("--mode", self.mode) if self.mode is not None else ()),
            *(("--api-lost-after", f"{self.api_lost_after}ns") if self.api_lost_after is not None else ()),
            *(("--calm",) if self.calm else ()),
        ]
        return shlex.join(["ebbtide", "simulate", *options, "--seed", str(seed)])

    def wanted(self) -> Wanted:
        """Read what the options name. Raises Refused, ConfigError, ManifestError, BehaviourError."""
        if self.pods and self.synthetic is not None:
            raise Refused("--pods says which pods there are: leave --synthetic out")
        if self.behaviour is not None and self.calm:
            raise Refused("--behaviour says what goes wrong: leave --calm out")
        wanted = Wanted(version=__version__, calm=self.calm, synthetic=self._count(), mode=self._mode())
        wanted = wanted._replace(api_lost_after_ns=self.api_lost_after)
        wanted = self._with_configuration(wanted)
        if self.pods:
            wanted = self._with_pods(wanted)
        if self.behaviour is not None:
            from ebbtide.cli.simulating.behaviour import load_behaviour

            wanted = wanted._replace(behaviour=load_behaviour(self.behaviour))
        return wanted

    def _mode(self) -> Mode:
        """In mode process there is no Kubernetes node to model."""
        mode: Mode = "" if self.mode in (None, "process") else cast(Mode, self.mode)
        if self.api_lost_after is not None and not (mode or self.behaviour):
            raise Refused(
                "--api-lost-after is about a Kubernetes node: name its --mode auto, api, cri or observe"
            )
        return mode

    def _count(self) -> int:
        return SYNTHETIC_PODS if self.synthetic is None else self.synthetic

    def _with_configuration(self, wanted: Wanted) -> Wanted:
        """The files that were named: this machine's own, unasked, would make a seed another journal here."""
        if not self.configs:
            return wanted
        from ebbtide.config import load

        loaded = load(self.configs)
        return wanted._replace(settings=loaded.settings, sources=dict(loaded.sources))

    def _with_pods(self, wanted: Wanted) -> Wanted:
        from ebbtide.manifests import load

        zero = wanted.settings.gate("PodLifecycleSleepActionAllowZero")
        manifests = load(self.pods, allow_zero_sleep=zero)
        return wanted._replace(pods=tuple(each.pod for each in manifests if not each.finished))
