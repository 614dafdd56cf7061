"""The folds of shutdowns and outages.

`episodes` lists shutdowns and outages. `fold` makes a whole `ShutdownRecord`, and `outage_record` a whole
`OutageRecord`.
"""
