"""The kubelet's configuration as the kubelet reads its file, also inside a document of another kind.

The kubelet decodes the first document of its file strictly, and if that fails leniently (v1.37): the last of
a repeated field counts, and unknown fields do not. A note says where a strict reader would refuse.
"""

from __future__ import annotations

import base64
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from ebbtide.actors.edges.documents import (
    OBJECT_NODES_MAX,
    DocumentError,
    Node,
    Unsupported,
    parse_yaml,
)
from ebbtide.actors.policy.planning import first_names
from ebbtide.config.fields import describe, document_of_kind, fields_of, read, unknown
from ebbtide.config.schema import (
    BY_PRIORITY_FIELD,
    CRITICAL_FIELD,
    GATE,
    KUBELET_KIND,
    KUBELET_ROOT,
    KUBELET_VERSION,
    LOCKED_GATES,
    OWN_KIND,
    PERIODS_MAX,
    PRIORITY_GATE,
    TOTAL_FIELD,
    EbbtideConfiguration,
    KubeletConfiguration,
    ShutdownPeriods,
    WavePeriod,
)

#: Keys above a kubelet's configuration without its head (kubeadm, EKS, OpenShift, Karpenter, eksctl, kops,
#: Talos, a kubelet's /configz), and keys that some have inside.
WRAPPERS = ("kubelet", "kubeletConfig", "kubeletConfiguration", "kubeletExtraConfig", "kubeletconfig")
INNER = ("config", "extraConfig")
#: It has the names, and no values.
SCHEMA_KIND = "CustomResourceDefinition"
#: Kinds that count inside a text.
TEXT_KINDS = (KUBELET_KIND, "NodeConfig")
_IN_TEXT = re.compile(rf"""(?m)^[ "{{]*kind"?: *"?({"|".join(TEXT_KINDS)})\b""")
_BLOCK = re.compile(r":\s+[|>][-+0-9]*\s*(#.*)?")
_PACKED = re.compile(r"(?:data:[^,\s]*;base64,)?([A-Za-z0-9+/=\s]{40,})|data:[^,\s]*,(\S*)")
_MIME = re.compile(r"(?i)\s*(MIME-Version|Content-Type):")
#: Of a machine's user data.
MIME_TYPES = ("application/node.eks.aws", "text/cloud-config")
#: Four times what EC2 takes.
USER_DATA_CHARACTERS_MAX = 2**16
#: gzip makes a configuration ten times smaller at most, and a bomb a thousand times.
UNPACKED_FACTOR_MAX = 20


#: A kubelet that checks such needs refuses these gates without GATE.
NEEDING_GATES = (PRIORITY_GATE, "WindowsGracefulNodeShutdown")


class Note(NamedTuple):
    code: str
    line: int
    message: str


class Wrapped(NamedTuple):
    """``place``: inside its document, empty where it is one itself."""

    place: str
    node: Node


def _unpacked(text: str) -> str:
    """The text of a data URL, as in a MachineConfig, or of base64, each perhaps compressed."""
    found = _PACKED.fullmatch(text)
    if found is None:
        return text
    try:
        data = base64.b64decode(found[1]) if found[1] else unquote_to_bytes(found[2])
        if data.startswith(b"\x1f\x8b"):
            gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
            data = gzip.decompress(data, len(data) * UNPACKED_FACTOR_MAX)
            return data.decode() if gzip.eof and not gzip.unused_data else text
        return data.decode()
    except (ValueError, zlib.error):  # no base64, no UTF-8, no gzip
        return text


def _of_user_data(text: str) -> str:
    """The documents in a machine's user data (MIME), in lines of the same numbers. Raises DocumentError."""
    if not _MIME.match(text):
        return text
    if len(text) > USER_DATA_CHARACTERS_MAX:
        raise Unsupported(f"user data (MIME) of more than {USER_DATA_CHARACTERS_MAX} characters", 1)
    # Few files need it.
    from email import message_from_bytes

    kept = ""
    try:
        for part in message_from_bytes(text.encode()).walk():
            if part.get_content_type() in MIME_TYPES and not part.is_multipart():
                body = bytes(part.get_payload(decode=True)).decode()
                above = text[: max(0, text.find(body))].count("\n") - 1
                kept += "\n" * max(bool(kept), above - kept.count("\n")) + f"---\n{body}"
    except (ValueError, RecursionError) as error:  # no UTF-8, nested deeper than a stack
        raise DocumentError(f"user data (MIME) that cannot be read: {error}", 1) from error
    if not kept:
        raise DocumentError(f"user data (MIME) without a part of type {' or '.join(MIME_TYPES)}", 1)
    return kept


def _wrapped(
    node: Node, lines: Sequence[str] | None, repeated: list[DocumentError], path: str = ""
) -> Iterator[Wrapped]:
    """In any document. ``lines`` None: inside a text, where no text counts. Raises DocumentError."""
    if isinstance(node.value, str):
        text = node.value if lines is None else _unpacked(node.value)
        if lines is None or text.startswith("#!") or not _IN_TEXT.search(text):
            return
        # A block's text begins below its key; any other text may have any lines.
        is_block = text is node.value and 0 < node.line <= len(lines) and _BLOCK.search(lines[node.line - 1])
        line_of = (node.line + 1).__add__ if is_block else lambda _: node.line
        try:
            documents = parse_yaml(_of_user_data(text), OBJECT_NODES_MAX, repeated, line_of=line_of)
        except DocumentError as error:
            raise DocumentError(f"{path}: {error.message}", error.line) from error
        for each in documents:
            if kind_of(each) in TEXT_KINDS:
                yield from _wrapped(each, None, repeated, path)
    elif isinstance(node.value, list):
        for at, each in enumerate(node.value):
            yield from _wrapped(each, lines, repeated, f"{path}[{at}]")
    elif kind_of(node) == KUBELET_KIND:
        yield Wrapped(path, node)
    elif kind_of(node) != SCHEMA_KIND:
        for name, each in node.fields.items():
            place = f"{path}.{name}" if path else name
            if name not in WRAPPERS or not isinstance(each.value, dict):
                yield from _wrapped(each, lines, repeated, place)
                continue
            inside = next((key for key in INNER if isinstance(each.get(key).value, dict)), "")
            yield Wrapped(f"{place}.{inside}", each.get(inside)) if inside else Wrapped(place, each)


def kind_of(node: Node) -> str:
    """Empty without one."""
    kind = node.get("kind").value
    return kind if isinstance(kind, str) else ""


def _is_headless(node: Node) -> bool:
    """Without a kind, as below ``kubelet:`` elsewhere."""
    names = node.fields.keys()
    own = names & fields_of(EbbtideConfiguration).keys() - fields_of(KubeletConfiguration).keys()
    return bool(names & fields_of(ShutdownPeriods).keys()) and not own and not names & {"kind", "apiVersion"}


def _as_the_kubelet(fields: Node) -> Node:
    """With its empty values as the kubelet reads them. Raises DocumentError."""
    values, gates, entries = dict(fields.fields), fields.get("featureGates"), fields.get(BY_PRIORITY_FIELD)
    for name in values.keys() & {TOTAL_FIELD, CRITICAL_FIELD}:
        if values[name].value is None:
            cure = "the kubelet does not start with an empty duration, take the line out"
            raise DocumentError(f"{name} has no value: {cure}", values[name].line)
    if isinstance(gates.value, dict):
        on = {name: Node(False, at.line) if at.value is None else at for name, at in gates.value.items()}
        values["featureGates"] = Node(on, gates.line)
    if isinstance(entries.value, list):
        if len(entries.value) > PERIODS_MAX:
            message = (
                f"{BY_PRIORITY_FIELD} has {len(entries.value)} entries: at most {PERIODS_MAX} can be used"
            )
            raise Unsupported(message, entries.line)
        filled = [Node({}, each.line) if each.value is None else each for each in entries.value]
        values[BY_PRIORITY_FIELD] = Node(filled, entries.line)
    return Node(values, fields.line)


def _like(node: Node, name: str) -> Node:
    """Fields with this begin, in any case: the kubelet knows one case only."""
    begin = name.lower()
    return Node({each: at for each, at in node.fields.items() if each.lower().startswith(begin)}, node.line)


def documents_of(text: str, repeated: list[DocumentError], notes: list[Note]) -> tuple[str, list[Node]]:
    """The text, unpacked, and its documents: only the kubelet's, if the others behind it are no YAML. Raises
    DocumentError.
    """
    text, found = _of_user_data(_unpacked(text)), list[Node]()
    try:
        return text, parse_yaml(text, OBJECT_NODES_MAX, repeated, found)
    except DocumentError as error:
        if not found or kind_of(found[0]) != KUBELET_KIND:
            raise
        notes.append(Note("kubelet-first", error.line, f"not read, nor by a kubelet: {error.message}"))
        return text, found[:1]


def kubelet_in(
    found: Sequence[Node], text: str, repeated: list[DocumentError], notes: list[Note]
) -> Wrapped | None:
    """None beside a document of ours. Raises DocumentError."""
    if any(kind_of(each) == OWN_KIND for each in found):
        return None
    lines = text.splitlines()
    all_of = [(document, each) for document in found for each in _wrapped(document, lines, repeated)]
    all_of += [(each, Wrapped("a document without a kind", each)) for each in found if _is_headless(each)]
    # The kubelet reads the first of several.
    several = [each for each in all_of if not each[1].place][:1] or all_of
    if not several:
        return None
    if several[1:]:
        places = first_names([f"{each.place} (line {each.node.line})" for _, each in several])
        raise DocumentError(f"several kubelet configurations: {places}: name one in its own file", 0)
    ((document, kubelet),) = several
    if kubelet.place and (kind := kind_of(document)):
        name = document.get("metadata").get("name").value
        kubelet = Wrapped(f"{kubelet.place} of {kind}{f' {name}' if name else ''}", kubelet.node)
    if kubelet.place:
        notes.append(
            Note("kubelet-found", kubelet.node.line, f"the kubelet's configuration is {kubelet.place}")
        )
    if rest := [kind_of(each) or describe(each) for each in found if each is not document]:
        notes.append(
            Note("kubelet-first", document.line, f"only this document counts, not {first_names(rest)}")
        )
    return kubelet


def read_kubelet(
    kubelet: Wrapped, repeated: Sequence[DocumentError], name: str, notes: list[Note]
) -> tuple[KubeletConfiguration, Node]:
    """``name``: of the file. Raises DocumentError."""
    fields = kubelet.node
    if kind_of(fields):
        _, fields = document_of_kind(fields, {KUBELET_KIND: KUBELET_VERSION}, KUBELET_KIND)
    fields = _as_the_kubelet(fields)
    document = read(fields, KubeletConfiguration)
    for each in repeated:
        notes.append(Note("kubelet-lenient", each.line, f"{each.message}; the kubelet takes the last one"))
    gates, entries = fields.get("featureGates"), fields.get(BY_PRIORITY_FIELD).value
    passed, stopped = "The kubelet passes over it", "A kubelet of v1.37 does not start with it"
    parts: list[tuple[str, Node, Collection[str], str]] = [
        ("", _like(fields, TOTAL_FIELD), fields_of(ShutdownPeriods), passed),
        ("featureGates", _like(gates, GATE), (GATE, PRIORITY_GATE), stopped),
    ]
    for at, entry in enumerate(entries if isinstance(entries, list) else ()):
        parts.append((f"{BY_PRIORITY_FIELD}[{at}]", entry, fields_of(WavePeriod), passed))
    for path, part, known, then in parts:
        for key in (each for each in part.fields if each not in known):
            error = unknown(path, key, known, part.get(key).line)
            code = "kubelet-gates" if then is stopped else "kubelet-lenient"
            notes.append(Note(code, error.line, f"{error.message} {then}"))
    needing = [each for each in NEEDING_GATES if gates.get(each).value is not False]
    if gates.get(GATE).value is False and gates.get("AllBeta").value is not False and needing:
        message = f"a kubelet of v1.37 does not start with {GATE}: false while {' and '.join(needing)} are on"
        notes.append(Note("kubelet-gates", gates.get(GATE).line, message))
    for gate in LOCKED_GATES:
        if gates.get(gate).value is False:
            message = f"a kubelet from v1.34 on does not start with {gate}: false"
            notes.append(Note("kubelet-gates", gates.get(gate).line, message))
    if document.static_pod_path:
        # The kubelet resolves it against its file; a file for other nodes, against its own folder.
        folder = KUBELET_ROOT if kubelet.place else os.path.dirname(os.path.abspath(name))
        static = os.path.normpath(os.path.join(folder, document.static_pod_path))
        document = msgspec.structs.replace(document, static_pod_path=static)
    return document, fields
