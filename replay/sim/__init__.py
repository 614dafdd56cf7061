"""A node in virtual time: the same `System.step`, driven by an agenda instead of a clock.

`loop` moves the actors; what-if uses it too, on a recorded shutdown. `scenario` draws what a run is made
of. The node is modelled once, for `simulate`, for the tests' world and (logind) for the demo: `pods`,
`kubelet`, `actors.simulated_logind`, `node`; `edges` says what is done for each order, `effects` when.
`simulate` runs and writes the journal; `world_log`, `view` and `invariants` tell whether everything held.
"""

from __future__ import annotations
