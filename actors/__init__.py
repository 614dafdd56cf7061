"""The deterministic actors, the system that steps them, the runner that drives it on Trio, and their edges.

Import order inside, downwards only: ``policy`` (pure rules) <- ``actor`` (what an actor is) <- the actors <-
``system`` <- ``runner`` (Trio); ``edges`` know the events and
``interfaces`` only, but for the demo's logind, which follows ``simulated_logind``'s rules.
"""
