"""Journals of many nodes in any store, read by any engine.

`fleet_journals` plans and opens journals, `fleet_rows` makes their tables, `fleet_verbs` runs a verb on them.
An unreadable journal is a row, and never a failed job.
"""
