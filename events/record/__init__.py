"""The one fold of shutdowns, in three steps that build on each other.

`episodes` knows which shutdowns there were and how they ended, `progress` how far each wave and pod is, and
`fold` (with `builder`) everything of a `model.ShutdownRecord`. A reader takes the first step that
knows enough.
"""
