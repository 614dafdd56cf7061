"""A journal without anybody's names: the facts under pseudonyms, and everything decided anew from them.

Nothing is searched and replaced in texts. Facts are typed, and each field says what kind of thing it names
(`fields`); equal things get equal pseudonyms (`names`); then the logic runs again (`rewrite`), so that what
it derives from names, keys of orders and sentences, has the pseudonyms as well, and the result verifies.
"""

from replay.redact.names import Names
from replay.redact.rewrite import Diverged, NoBegin, Written, redact

__all__ = ["Diverged", "Names", "NoBegin", "Written", "redact"]
