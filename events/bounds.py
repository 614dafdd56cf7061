"""How long the program waits for another part before it counts as late, hung or failed.

Tests of real parts widen all bounds, so that a busy machine is slow and not broken. Not for the core: a
journal is a function of its facts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ebbtide.events.base import BARRIER_NS_MAX, NS_PER_SECOND


class Bounds(NamedTuple):
    """A healthy part needs a small fraction of its bound."""

    # --- the API server
    delete_seconds: float = 1.5  # from the order: a pod without grace is killed 2 s after it (docs/node.md)
    mark_seconds: float = 0.5  # of these: the mark is a courtesy to the pod's owner
    slow_answer_seconds: float = 0.25  # a server that takes so long gets a wave's deletes all at once
    taint_seconds: float = 0.5  # a delete waits for it: it only keeps the pod from coming back here
    withdraw_seconds: float = 1.0  # each call: a withdrawal later than its pod's stop is useless
    status_seconds: float = 5.0  # all calls of one pod; the core waits for ``statusFlushSeconds`` at most
    statuses_seconds: float = 10.0  # all pods of an order
    publish_seconds: float = 2.0  # the release waits for the certificate
    api_try_seconds: float = 5.0  # a silent connection may be a dead one, and the next need not be
    api_late_seconds: float = 0.2  # for a caller that does not say itself that its time is over
    api_unhurried_seconds: float = 10.0  # a part of a list, an Event, a restore: no shutdown waits for these
    api_review_seconds: float = 3.0  # may the node be tainted? Asked beside everything else
    api_liveness_seconds: float = 2.0  # a server that is well answers at once
    api_away_seconds: float = 3.0  # of failures: a restart takes less; then no mode that needs it is chosen
    watch_open_seconds: float = 3.0  # the headers come before the first event is looked for
    watch_silence_seconds: float = 10.0  # without a byte; then the server is asked for a sign of life
    priorities_seconds: float = 10.0  # by then its first list has come, and pods without a priority are known
    resign_seconds: float = 3.0  # giving the lease back saves the next leader 15 s
    plugin_seconds: float = 10.0  # a credential plugin asks a token endpoint, which may hang

    # --- the container runtime
    runtime_look_seconds: float = 5.0  # a list, or one state
    runtime_warm_seconds: float = 5.0  # an order waits so long for the first look
    runtime_away_seconds: float = 1.0  # longer than gRPC needs to connect anew
    runtime_hangs_seconds: float = 8.0  # two lists: one may be late beside a hundred stops
    runtime_echo_seconds: float = 1.5  # twice: a version needs no lock, and 3 s are a tenth of a pod's grace
    runtime_signal_seconds: float = 0.5  # twice, at the signal: a second, as for a broken connection
    runtime_probe_seconds: float = 3.0  # the doctor's questions
    runtime_doubt_seconds: float = 1.0  # a longer look may be one that a hung runtime never answers
    runtime_state_seconds: float = 1.0  # a state that was late before; is one object to blame?
    runtime_notice_seconds: float = 0.5  # it notices an end a moment after the kernel
    runtime_past_seconds: float = 5.0  # a call's deadline past its timeout: the runtime's own comes first
    runtime_kill_seconds: float = 2.0  # SIGKILL by the runtime, where the process takes none from us
    exit_code_seconds: float = 0.5  # an exit code is worth a moment of its wave
    stop_heard_seconds: float = 2.0  # a stop answers when its container has ended, which may be later
    killed_seconds: float = 0.5  # a killed process goes in milliseconds, unless something holds it

    # --- the kubelet and its unit
    kubelet_silent_seconds: float = 3.0  # the health endpoint answers from memory
    kubelet_first_answer_seconds: float = 0.3  # the first report of the unit is then one and not two
    kubelet_stop_seconds: float = 2.0  # as every pod's floor: a longer life starts again what a wave ended
    kubelet_kill_seconds: float = 1.0  # only the service manager's bookkeeping is left
    unit_answer_seconds: float = 0.5  # a kubelet restarts what ended within half a second: then by a signal
    unit_start_seconds: float = 5.0  # conditions and mounts come before some units
    unit_note_seconds: float = 0.2  # between the service manager's note of a start and the kernel's

    # --- the bus, logind, the service manager
    bus_connect_seconds: float = 2.0  # a local bus answers in under a millisecond
    bus_call_seconds: float = 5.0  # logind may be busy with a disk
    logind_start_seconds: float = 0.3  # the state that a start begins with
    logind_kind_seconds: float = 0.25  # a power-off that is not known as one is a reboot
    logind_look_seconds: float = 1.0  # the next signal's report waits for the look
    manager_send_seconds: float = 0.5  # room in its socket, which any local user may fill
    manager_barrier_seconds: float = 1.0  # a stuck one must not cost the machine its whole delay
    manager_property_seconds: float = 0.3  # the start waits for two of these

    # --- the disk
    barrier_seconds: float = BARRIER_NS_MAX / NS_PER_SECOND  # an order's record
    disk_seconds: float = 1.0  # the page cache takes a write in microseconds
    disk_sync_seconds: float = 5.0  # a sync may wait for all that others wrote; the next location may be lost
    disk_starved_seconds: float = 15.0  # a thread without a processor shows no disk error
    recover_seconds: float = 5.0  # a healthy disk gives a journal back in a tenth of a second
    close_seconds: float = 2.0  # the last records: the lock may be back, and the machine going
    trim_seconds: float = 10.0  # removing a few files
    file_seconds: float = 2.0  # small files, and the table of mounts
    side_file_seconds: float = 1.0  # one that can be made again, or done without
    last_write_seconds: float = 0.5  # the list of pods, by a daemon that ends

    # --- processes, evidence, ourselves
    autopsy_seconds: float = 0.1  # evidence never outranks the pods
    parent_seconds: float = 0.02  # another's child tells its exit code once its parent has waited for it
    boot_source_seconds: float = 10.0  # how the last boot ended: only the record waits
    boot_log_seconds: float = 4.0  # one question to journald; two fit into the above
    source_seconds: float = 10.0  # a source of an outage: a management controller takes seconds
    source_ipmi_seconds: float = 55.0  # a session has eleven answers, and may need one again
    source_kubelet_seconds: float = 2.0  # a lost packet is sent again after one
    power_off_seconds: float = 20.0  # three requests to such a controller
    awake_seconds: float = 10.0  # a running shutdown's order waits for our own imports
    control_seconds: float = 5.0  # a command waits for the daemon, which answers between two steps

    def widened(self, factor: float) -> Bounds:
        return Bounds(*(seconds * factor for seconds in self))


#: Set once, where the program begins.
now = Bounds()


def bounds_of(factor: str) -> Bounds:
    """Raises ValueError."""
    try:
        number = float(factor)
    except ValueError:
        number = math.nan
    if not 1 <= number < math.inf:
        raise ValueError("give a number from 1 on, or leave it out")
    return Bounds().widened(number)
