"""The demo: ordinary pod manifests as local processes, a logind of its own, and one whole power-off.

It needs no root, no configuration and no cluster, and ends only its own processes. Each pod under ``pods/``
shows one thing; a cluster would accept every one.
"""
