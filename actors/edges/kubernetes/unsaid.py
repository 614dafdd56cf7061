"""What is said of something that went wrong, without what nobody else may know.

An error's text likes to quote what it is about: the line of a kubeconfig with the token, a header, a proxy's
address with its password. All of it would stand in the journal and in the system's log.
"""

from __future__ import annotations

import re

#: What a message about a file quotes of it.
QUOTED = re.compile(r"(['\"]).*\1", re.DOTALL)
#: Of a URL: a name and a password.
USER_INFO = re.compile(r"//[^/@\s]*@")


def is_token(text: str) -> bool:
    """Whether a header can carry it."""
    return text.isascii() and text.isprintable()


def problem(error: Exception) -> str:
    """Of a YAML file: what is wrong and where, without a word of the file."""
    said = QUOTED.sub("...", str(getattr(error, "problem", None) or "it cannot be read"))
    mark = getattr(error, "problem_mark", None)
    return said if mark is None else f"{said} in line {mark.line + 1}, column {mark.column + 1}"


def reason(error: BaseException) -> str:
    """Of a call: one line in the error's words, unless these may quote what was to be sent."""
    # A certificate that is not believed is both, and quotes nothing of ours.
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return f"it cannot be sent ({type(error).__name__}): look at the kubeconfig's server, proxy and token"
    return USER_INFO.sub("//", " ".join(str(error).split())) or type(error).__name__
