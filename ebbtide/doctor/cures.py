"""What to do about each warning of a plan that concerns single pods: the doctor's findings need a cure."""

from __future__ import annotations

_NUMBER = "write spec.priority as a number into the manifest (kubectl get pod -o yaml shows it)"

CURES = {
    "grace-cut": "give its wave a longer period, or the pod a shorter terminationGracePeriodSeconds",
    "grace-unset": "set terminationGracePeriodSeconds to what the program needs",
    "grace-below-floor": "give its wave a period of at least 2 s",
    "wave-zero": "give the wave a period, or its pods another priority",
    "priority-duplicate": "keep one entry of shutdownGracePeriodByPodPriority for each priority",
    "priority-unset": _NUMBER,
    "priority-class-only": _NUMBER,
    "priority-below": "add an entry for that priority to shutdownGracePeriodByPodPriority",
    "hook-not-run": "give its wave a period above 0 s",
    "hook-invalid": "replace the tcpSocket hook by exec or httpGet",
    "sleep-cut": "shorten the sleep, or give the pod and its wave more time",
    "sleep-fills-grace": "shorten the sleep, or lengthen terminationGracePeriodSeconds beyond it",
}


def cure_of(code: str) -> str:
    """The cure; for a code that is not in the table, where to see more."""
    return CURES.get(code, "see 'ebbtide plan'")
