"""What is wrong with the journal that a shutdown stands in, as far as its account is concerned."""

from __future__ import annotations

from msgspec.structs import replace

from events.recovery import State, Verdict
from replay.account.model import Account, DamageTold

#: How a record ends that cannot be read on, by the journal's state.
ENDS: dict[State, str] = {
    "torn": "damaged",
    "corrupt": "damaged",
    "incompatible": "another version wrote on",
}


def damage_of(verdict: Verdict, *, here: bool) -> DamageTold | None:
    """``here``: no other shutdown follows before the damage. None where the journal is intact."""
    if verdict.state == "intact":
        return None
    return DamageTold(state=verdict.state, banner=verdict.banner, here=here)


def with_verdict(account: Account, verdict: Verdict) -> Account:
    """The account of an earlier shutdown, told while the journal's end was not known yet."""
    if account.damage is not None:
        return account
    return replace(account, damage=damage_of(verdict, here=False))
