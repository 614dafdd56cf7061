"""The deterministic actors, the system that steps them, the runner that drives it on Trio, and their edges.

Imports point downwards: ``policy`` (pure rules) <- ``actor`` <- the actors <- ``system`` <- ``runner``
(Trio). ``edges`` know the events and ``interfaces`` only; the demo's logind also follows
``simulated_logind``'s rules.
"""
