"""A node in virtual time: the same `System.step`, driven by an agenda instead of a clock.

`scenario` draws a run; `loop` moves the actors; `sim_node` models the node, also for the tests' world and for
what-if; `edges` carries out orders; `simulate` writes the journal; `invariants` check it. `sim_outage` is the
same for outages.
"""
