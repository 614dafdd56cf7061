"""The kubelet's rules over several fields, in the kubelet's words, and two of our own.

A configuration that the kubelet refuses is refused here for the same reason, so that moving it from one to
the other changes nothing. The order of the table is the kubelet's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ebbtide.config.durations import DURATION_NS_MAX, format_duration
from ebbtide.config.types import EbbtideConfiguration
from events.base import NS_PER_SECOND

TOTAL, CRITICAL = "shutdownGracePeriod", "shutdownGracePeriodCriticalPods"
BY_PRIORITY = "shutdownGracePeriodByPodPriority"
GATE, PRIORITY_GATE = "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"


class Violation(NamedTuple):
    """A broken rule: its text, and the fields whose values break it."""

    message: str
    fields: tuple[str, ...]


def violations(config: EbbtideConfiguration) -> Iterator[Violation]:
    """Every broken rule, in the order of the table."""
    for rule in RULES:
        yield from rule(config)


def _critical_within_total(config: EbbtideConfiguration) -> Iterator[Violation]:
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    if critical > total:
        yield Violation(f"{CRITICAL} {_go(critical)} must be <= {TOTAL} {_go(total)}", (CRITICAL, TOTAL))


def _zero_or_a_second(config: EbbtideConfiguration) -> Iterator[Violation]:
    pairs = (
        (TOTAL, config.shutdown_grace_period),
        (CRITICAL, config.shutdown_grace_period_critical_pods),
    )
    for name, duration_ns in pairs:
        if duration_ns and duration_ns < NS_PER_SECOND:
            yield Violation(f"{name} {_go(duration_ns)} must be either zero or otherwise >= 1 sec", (name,))


def _pair_needs_gate(config: EbbtideConfiguration) -> Iterator[Violation]:
    if _pair(config) and not config.feature_gates.get(GATE, True):
        message = f"specifying {TOTAL} or {CRITICAL} requires feature gate {GATE}"
        yield Violation(message, (f"featureGates.{GATE}", TOTAL, CRITICAL))


def _one_form_only(config: EbbtideConfiguration) -> Iterator[Violation]:
    both = config.shutdown_grace_period_by_pod_priority and _pair(config)
    if both and config.feature_gates.get(PRIORITY_GATE, True):
        message = f"Cannot specify both {BY_PRIORITY} and {TOTAL} at the same time"
        yield Violation(message, (BY_PRIORITY, TOTAL))


def _list_needs_gate(config: EbbtideConfiguration) -> Iterator[Violation]:
    listed = config.shutdown_grace_period_by_pod_priority
    if listed and not config.feature_gates.get(PRIORITY_GATE, True):
        message = f"Specifying {BY_PRIORITY} requires feature gate {PRIORITY_GATE}"
        yield Violation(message, (f"featureGates.{PRIORITY_GATE}", BY_PRIORITY))


def _representable(config: EbbtideConfiguration) -> Iterator[Violation]:
    """The kubelet lets the sum overflow; here it has to fit an event's integer."""
    listed_seconds = sum(each.seconds for each in config.shutdown_grace_period_by_pod_priority)
    for name, total_ns in (
        (BY_PRIORITY, listed_seconds * NS_PER_SECOND),
        (TOTAL, config.shutdown_grace_period),
    ):
        if total_ns + config.reserve > DURATION_NS_MAX:
            yield Violation(f"{name} and reserve add up to more than 292 years", (name, "reserve"))


def _pair(config: EbbtideConfiguration) -> bool:
    return config.shutdown_grace_period > 0 or config.shutdown_grace_period_critical_pods > 0


def _go(duration_ns: int) -> str:
    """As the kubelet prints a duration in its messages."""
    return "{" + format_duration(duration_ns) + "}"


RULES: tuple[Callable[[EbbtideConfiguration], Iterator[Violation]], ...] = (
    _critical_within_total,
    _zero_or_a_second,
    _pair_needs_gate,
    _one_form_only,
    _list_needs_gate,
    _representable,
)
