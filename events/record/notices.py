"""What an operator should know of a shutdown: one stable code for each kind, with its sentence.

A sentence says what happened and, where there is one, the cure.
"""

from __future__ import annotations

NOTICE_TEXTS: dict[str, str] = {
    # --- the time that there was
    "grant-too-small": "logind granted {grant} of the {requested} that the waves ask for{override}: "
    "the lowest priorities had less, raise InhibitDelayMaxSec to {needed}",
    "reserve-not-granted": "logind granted {grant}, enough for the waves, not for the reserve{override}: "
    "raise InhibitDelayMaxSec to {needed}",
    "lock-not-held": "the shutdown began without the delay lock: the machine did not have to wait for a pod",
    "lock-lost": "LOCK LOST: the daemon was started again without the delay lock, and the machine did not "
    "have to wait for a pod any more",
    "overtime": "the service manager was stopping the daemon, logind's timer or its lock no longer counted",
    "deadline-moved": "the shutdown's deadline moved to {deadline} after the signal",
    # --- pods and hooks
    "pod-killed": "{pod} was killed: {reason}",
    "pod-failed": "{pod} could not be ended: {reason}",
    "pod-unknown": "what became of {pod} is not known: {reason}",
    "pod-late": "{pod} joined wave {wave} after the plan was made",
    "hook-failed": "the preStop hook ({kind}) of {pod}, container {container}, failed: {reason}",
    "hook-timed-out": "the preStop hook ({kind}) of {pod}, container {container}, was cut after {took}: "
    "{reason}",
    "hook-not-run": "the preStop hook ({kind}) of {pod}, container {container}, did not run: {reason}",
    "hook-unknown": "how the preStop hook ({kind}) of {pod}, container {container}, ended is not known: "
    "{reason}",
    "wave-overran": "wave {wave} (priority {priority}) overran its {period}: {count} still running",
    "pods-unfinished": "{count} outlived the budget: {pods}",
    "volumes-mounted": "wave {wave} ended with volumes of {count} still mounted: {pods}",
    # --- a Kubernetes node
    "api-lost": "the API server did not answer: {error}",
    "runtime-lost": "the container runtime did not answer: {error}",
    "delete-refused": "{count} not taken by the API server in time ({reason})",
    "handed-over": "the shutdown was handed over to the container runtime: {reason}",
    "kubelet-failed": "the kubelet could not be stopped ({result}): {reason}; it may have started pods again",
    "kubelet-start-failed": "the kubelet could not be started again ({result}): {reason}; start it",
    "kubelet-left-running": "the kubelet had not ended {count} at the release: {pods}",
    "final-statuses-missing": "{count} without a final status in the API server at the release: {pods}",
    "withdraw-failed": "pods could not be taken out of their Services ({result}): {reason}",
    "await-failed": "the final statuses were not all seen in time ({result}): {reason}",
    "mounts-failed": "the mounts could not be read ({result}): {reason}",
    "certificate-failed": "the certificate could not be published ({result}): {reason}",
    "not-safe-to-detach": "volumes are not safe to detach: {why}",
    # --- people
    "hurried": "uid {asker} asked not to wait for {pod} any longer",
    "release-requested": "uid {asked_by} asked to release the machine",
    "cancelled": "the shutdown was withdrawn ({reason})",
    # --- the daemon
    "restarted": "the daemon was started again, none had run for at most {away} ({action})",
    "cut-short": "the machine went down before the release, at wave {wave}",
    "never-begun": "the machine went down before any wave began",
    "actor-failed": "{actor} failed ({error}): the fallback took its part",
    "fallback": "the fallback took over {count} ({reason})",
    "effect-panicked": "the order {key} ended in an unexpected error: {error}",
    "settings-rejected": "a configuration could not be used: {error}",
    "manifest-rejected": "a pod manifest could not be used: {path}: {error}",
    "inventory-failed": "the pods could not be listed ({result}): {reason}",
    "announce-failed": "the node could not be shown as going down ({result}): {reason}",
    "statuses-failed": "pod statuses could not be delivered ({result}): {reason}",
    "statuses-undelivered": "{count} not delivered in time",
    "traces-failed": "the trace could not be sent before the release ({result}): {reason}",
    "release-failed": "the lock could not be released ({result}): {reason}",
    # --- the machine
    "durability-late": "{count} began before the disk had answered, after {waited} at the longest",
    "storage-failed": "the journal could not be written in {location}: {error}",
    "storage-moved": "the journal went on in {location}, from record {first_seq}",
    "bus-lost": "the connection to logind was lost: {error}",
    "signal-rejected": "{count} from another sender than logind, or with a wrong body ({reason})",
    "clock-stepped": "the wall clock was moved by {delta}; no deadline moved with it",
    # --- the record itself
    "begin-lost": "the record of its begin is lost: what became of its pods is not known",
    "record-damaged": "the record ends here, in damage: what happened after it is not known",
    "unreadable": "{count} could not be read and is left out: the journal was edited, or miswritten",
    "unknown-events": "{count} of types that this version does not know ({types}): use a newer ebbtide",
}

#: Codes with one notice however often they happen, and what the notice counts.
TALLIED_NOTICES: dict[str, str] = {
    "durability-late": "effect",
    "signal-rejected": "signal",
    "delete-refused": "delete",
    "unreadable": "record",
}


def notice_text(code: str, **values: object) -> str:
    """The sentence of a code. Raises KeyError on a code that is not in the table."""
    return NOTICE_TEXTS[code].format(**values)
