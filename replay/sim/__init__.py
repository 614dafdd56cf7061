"""A node in virtual time: the same `System.step`, driven by an agenda instead of a clock.

`loop` moves the actors and runs effects; what-if uses it too, on a recorded shutdown. `scenario` draws what
a run is made of. The node is modelled once, for `simulate`, for the tests' world and (logind) for the demo:
`node` with its pods, its kubelet and the log of what happens, `actors.simulated_logind`; `edges` says what is
done for each order. `simulate` runs and writes the journal; `view` and `invariants` tell whether everything
held.
"""

from __future__ import annotations
