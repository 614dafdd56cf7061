"""Pseudonyms: equal names get equal ones, in the order in which they come, and nothing leads back.

Two passes over a journal: the first learns all names (`learning`), the second replaces them, so that no
pseudonym is by accident a name of the original. There is no key and no hash of a name in it; the map lives
as long as the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from actors.logic.arming import OPERATION_IN_PROGRESS
from replay.redact.fields import Kind, kinds

#: Messages that say nothing of who runs here, and much of what happened.
PLAIN_MESSAGES = re.compile(
    rf"|{OPERATION_IN_PROGRESS}|(preStop failed: )?exit code \d{{1,3}}|cancelled|timed out"
)

#: A value of the sources of the settings that is no place in a file.
DEFAULT = "default"

#: Numbers of people that are no person: root.
ROOT = 0
PERSONS_FROM = 60_001

#: ``~`` stands in no name of Kubernetes, so a pseudonym is recognised, and never a part of a name.
_FORMS: dict[str, str] = {
    "uid": "eeeeeeee-0000-4000-8000-{:012x}",
    "namespace": "ns~{}",
    "pod": "pod~{}",
    "container": "container~{}",
    "node": "node~{}",
    "machine": "machine~{}",
    "boot": "boot~{}",
    "path": "/path~{}",
    "volume": "volume~{}",
    "owner": "owner~{}",
    "command": "command~{}",
    "hook": "hook~{}",
    "tty": "tty~{}",
    "message": "message~{}",
}

#: An order's key: actor, what (with the container), subject, ordinal.
_KEY_PARTS = 4


class Names:
    """``learning``: values come back as they are, and are remembered."""

    def __init__(self) -> None:
        self.learning = True
        self._made: dict[str, dict[str, str]] = {form: {} for form in _FORMS}
        self._persons: dict[int, int] = {}
        self._special: dict[Kind, Callable[[str], str]] = {
            "home": lambda text: "/".join(self.of("boot", part) for part in text.split("/")),
            "place": self._place,
            "key": self._key,
            "owner": self._owner,
            "told owner": self._told_owner,
            "event subject": lambda text: self.of("node" if text in self._made["node"] else "owner", text),
            "pod reference": self._reference,
            "message": lambda text: text if PLAIN_MESSAGES.fullmatch(text) else self.of("message", text),
        }

    def replace(self) -> None:
        """All names are known: from here on pseudonyms come back."""
        self.learning = False

    def of(self, form: str, text: str) -> str:
        """The pseudonym of a name; empty stays empty."""
        made = self._made[form]
        if not text:
            return text
        if text not in made:
            made[text] = self._fresh(form)
        return text if self.learning else made[text]

    def originals(self) -> list[str]:
        """Every text that has a pseudonym."""
        return [text for made in self._made.values() for text in made]

    def _fresh(self, form: str) -> str:
        return _FORMS[form].format(len(self._made[form]) + 1)

    def told(self, value: Any, kind: Kind = "kept") -> Any:
        """A value with its texts replaced: of a Struct each field by its own kind, else all by this one."""
        if kind == "dropped":
            return value if self.learning else ()
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, str):
            return self._text(kind, value)
        if kind == "status" and _is_status(value):
            return (self.of("uid", value[0]), *value[1:])  # the rest are words of this program
        if kind == "mount" and _is_mount(value):
            return (self.of("uid", value[0]), self.of("volume" if value[0] else "path", value[1]))
        if isinstance(value, tuple):
            return tuple([self.told(each, kind) for each in value])
        if isinstance(value, dict):
            key_kind: Kind = "key" if kind == "status" else "kept" if kind == "place" else kind
            return {self.told(key, key_kind): self.told(each, kind) for key, each in value.items()}
        if kind == "person" and isinstance(value, int) and value != ROOT:
            return self._person(value)
        return value

    def _struct(self, struct: msgspec.Struct) -> msgspec.Struct:
        fields = kinds(type(struct)).items()
        return type(struct)(**{name: self.told(getattr(struct, name), kind) for name, kind in fields})

    def _text(self, kind: Kind, text: str) -> str:
        if kind == "kept":
            return text
        special = self._special.get(kind)
        return special(text) if special is not None else self.of(kind, text)

    def _person(self, number: int) -> int:
        made = self._persons.setdefault(number, PERSONS_FROM + len(self._persons))
        return number if self.learning else made

    def _place(self, text: str) -> str:
        """``path:line`` of a setting."""
        if text == DEFAULT:
            return text
        path, colon, line = text.rpartition(":")
        return f"{self.of('path', path)}:{line}" if colon and line.isdecimal() else self.of("path", text)

    def _owner(self, text: str) -> str:
        """``Kind/name`` of a workload."""
        kind, slash, name = text.partition("/")
        return f"{kind}{slash}{self.of('owner', name)}" if slash else self.of("owner", text)

    def _told_owner(self, text: str) -> str:
        """``namespace/Kind/name``."""
        namespace, slash, owner = text.partition("/")
        return f"{self.of('namespace', namespace)}{slash}{self._owner(owner)}"

    def _key(self, text: str) -> str:
        parts = text.split("/")
        if len(parts) != _KEY_PARTS:
            return self.of("message", text)
        actor, what, subject, ordinal = parts
        effect, colon, container = what.partition(":")
        return f"{actor}/{effect}{colon}{self.of('container', container)}/{self.subject(subject)}/{ordinal}"

    def subject(self, text: str) -> str:
        """A pod's UID, or a wave's number, which stays."""
        return self.of("uid", text) if text in self._made["uid"] or not text.isdecimal() else text

    def _reference(self, text: str) -> str:
        """What a person called a pod: its UID, ``namespace/name``, or its name."""
        if text in self._made["uid"]:
            return self.of("uid", text)
        namespace, slash, name = text.rpartition("/")
        return f"{self.of('namespace', namespace)}{slash}{self.of('pod', name)}"


def _is_status(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and all(isinstance(each, str) for each in value)


def _is_mount(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, str) for each in value)
