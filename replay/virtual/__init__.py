"""Virtual time: the same `System.step`, driven by an agenda instead of a clock.

``loop`` is shared by ``simulate`` (whose world is a modelled node) and ``what-if`` (whose world is a
recorded shutdown). ``book`` writes what comes out as a journal.
"""
