"""The folds of shutdowns and outages.

`episodes` lists shutdowns and their ends from a few events. `fold` makes a whole `model.ShutdownRecord`, and
`outages` a whole `OutageRecord`.
"""
