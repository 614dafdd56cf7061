"""The demo: ordinary pod manifests as local processes, a logind of its own, and one whole power-off.

It needs no root, no configuration and no cluster, and ends nothing but what it started itself. The pods
under ``pods/`` show one thing each; every one is a Pod object that a cluster would take as well.
"""
