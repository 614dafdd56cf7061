"""What if: a recorded shutdown decided again under other settings, in virtual time.

`whatif_run.what_if` runs it again and compares both runs. `record` reads and changes the record, and finds
the cause of each fact. `world` gives simulate's containers their recorded times, and answers the new run's
orders. `verdicts` says what the new run means for a pod, and how certain that is.
"""
