"""Logic flags: the names of what has changed in the logic since the first release.

The same facts must lead an old journal to its old decisions. So every change of behaviour has a name here;
a journal says which ones were in force (in each segment's header, and in the checkpoint that it begins
with), a replay executes it under those, and an open shutdown is carried out to its end under those that it
began with. A reader that re-executes refuses a name that it does not know.
"""

from __future__ import annotations

#: The states of all actors are digested into the journal at the end of each wave (`actors.logic.digest`).
STATES_DIGEST = "states-digest"

#: In force in whatever begins anew; each is also what this version can re-execute.
LOGIC_FLAGS: tuple[str, ...] = (STATES_DIGEST,)
