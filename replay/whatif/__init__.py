"""A recorded shutdown decided again under other settings, in virtual time.

`record` reads and changes the record, and finds the cause of each fact. `whatif_run` runs it again and
compares. `world` answers the new run's orders, with recorded times. `verdicts` has each pod's change, and how
certain it is.
"""
