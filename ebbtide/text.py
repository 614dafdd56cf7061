"""Other people's text on a terminal and in a log: a pod's process may call itself anything.

A command name, a reason or a path can hold escape sequences that a terminal obeys, and line breaks that make
one event look like two. They are shown, never sent.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""``text`` on one line, with every character that is not printable as ``\x1b``, ``\n``, ``\u202e``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
