"""What if: a recorded shutdown decided again under other settings, in virtual time.

`whatif_run.what_if` runs it again and compares both runs. `record` reads and changes the record, and finds
the cause of each fact. `world` answers the new run's orders from it.
"""
