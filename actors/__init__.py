"""The deterministic actors, the system that runs them on Trio, and their edges to the world.

Import order inside, downwards only: ``policy`` (pure rules) <- ``logic`` (the actors and `step`)
<- ``runner`` (Trio) ; ``edges`` know ``events`` and ``interfaces`` only.
"""
