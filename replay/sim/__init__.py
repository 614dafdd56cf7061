"""A node in virtual time: the same `System.step`, driven by an agenda instead of a clock.

`loop` moves the actors and runs effects. `sim_node` is the one model of a node, for `simulate`, for the
tests' world and for what-if, which takes the times from a record. `scenario` draws a run; `edges` carries out
each order; `simulate` runs and writes the journal; `invariants` check it. `sim_outage` is
the same for outages.
"""
