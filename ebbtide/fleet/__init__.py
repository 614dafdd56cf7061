"""Journals of many nodes in any store, independent of the engine that reads them.

`fleet_journals` plans and opens a journal by the names of its objects, `fleet_rows` makes its tables,
`fleet_verbs` runs a verb on it. An unreadable journal is a row, and never a failed job.
"""
