"""``$(VARIABLES)`` in commands and in other variables, as Kubernetes expands them, within bounds.

``$(NAME)`` becomes the value of a variable that is known, an unknown one stays as written, and ``$$`` is a
dollar sign. Variables that double each other would fill the memory, so growth is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ebbtide.config.scalars import DocumentError

#: Longest argument or variable that Linux takes (MAX_ARG_STRLEN).
WORD_BYTES_MAX = 131_072

#: What expansion may add over all pods of one text: far more than a thousand ordinary ones need.
EXPANDED_BYTES_MAX = 64 * 2**20


class Expander:
    """Replaces references, and counts what that adds. One a text."""

    def __init__(self) -> None:
        self._left = EXPANDED_BYTES_MAX

    def expand(self, text: str, variables: Mapping[str, str], path: str, line: int) -> str:
        """``text`` with its references replaced. Raises DocumentError when it grows out of bounds."""
        pieces, size = [], 0
        for piece in _pieces(text, variables):
            pieces.append(piece)
            size += len(piece)
            if size >= WORD_BYTES_MAX:
                raise DocumentError(f"{path} is longer than {WORD_BYTES_MAX} bytes: shorten it", line)
        self._left -= max(0, size - len(text))
        if self._left < 0:
            raise DocumentError(f"{path}: variables add more than {EXPANDED_BYTES_MAX} bytes in all", line)
        return "".join(pieces)


def _pieces(text: str, variables: Mapping[str, str]) -> Iterator[str]:
    """The parts of ``text`` between and in place of its references, in one pass."""
    position, last_closing = 0, text.rfind(")")
    while (dollar := text.find("$", position)) >= 0:
        yield text[position:dollar]
        position = dollar + 2
        if text.startswith("$(", dollar) and dollar < last_closing:
            closing = text.index(")", dollar)
            position = closing + 1
            yield variables.get(text[dollar + 2 : closing], text[dollar:position])
        elif text.startswith("$$", dollar):
            yield "$"
        else:
            yield text[dollar:position]
    yield text[position:]
