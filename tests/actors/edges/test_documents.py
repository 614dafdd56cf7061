"""YAML and JSON as bounded trees."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.actors.edges import documents

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def read(text: str) -> list[Any]:
    return [documents.plain_value(document) for document in documents.parse_yaml(text)]


def refused(text: str) -> documents.DocumentError:
    with pytest.raises(documents.DocumentError) as raised:
        documents.parse_yaml(text)
    return raised.value


@pytest.mark.parametrize(
    "text, value",
    [
        ("~", None),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("N", False),
        ("'no'", "no"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!x 5", "5"),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 15),
        ("-0b101", -5),
        ("1_000", 1000),
        ("08", 8),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.5", 1.5),
        ("1E5", 100_000),
        ("1e21", 1e21),
        ("-.inf", float("-inf")),
        ("1.2.3.4", "1.2.3.4"),
        ("-", [None]),
        ("0x", "0x"),
        ("+", "+"),
    ],
)
def test_words_mean_what_they_mean_to_kubernetes(text: str, value: object) -> None:
    """YAML 1.1, without base-60 numbers and dates."""
    found = read(f"a: {text}" if text != "-" else "a:\n-")
    assert found == [{"a": value}]
    assert type(found[0]["a"]) is type(value)


def test_aliases_and_merges_stand_for_what_they_name() -> None:
    """A field overrides a merged one; the first of several merges wins."""
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: *a\n'e': {'<<': 5}\n"
    (found,) = read(text)
    assert found["c"] == {"x": 3, "y": 1, "z": 2}
    assert found["d"] == found["a"]
    assert len(found["e"]) == 1


@pytest.mark.parametrize(
    "text, line, part",
    [
        ("a: &a [*a]", 1, "contains itself"),
        ("a: 1\nb: *c", 2, "has no anchor"),
        ("a: 1\nb: 2\na: 3", 3, "'a' occurs twice, first on line 1"),
        ("a:\n\t- b", 2, "indented with a tab"),
        ("a: b\n- c", 2, "not YAML"),
        ("a: !!float x", 1, "does not fit its tag"),
        ("a: ü\nb: \x07", 2, "not text"),
        ("? [a]\n: b", 1, "must be a word"),
        ("a: " + "9" * 50, 1, "a number of 50 digits"),
        ("a: 1\n<<: 2", 1, "takes a mapping"),
        ("[" * 1000, 1, "nested more than"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(text: str, line: int, part: str) -> None:
    """One line without terminal control characters."""
    error = refused(text)
    assert error.line == line
    assert part in error.message
    assert error.message.isprintable()


def test_nesting_is_bounded_and_not_by_the_interpreter() -> None:
    """The limit is readable, one more level is refused, in YAML and in JSON."""
    deepest = "[" * documents.DEPTH_MAX + "]" * documents.DEPTH_MAX
    assert read(deepest)
    assert documents.parse_json(deepest)
    for parse in (documents.parse_yaml, documents.parse_json):
        with pytest.raises(documents.DocumentError, match="nested"):
            parse(f"[{deepest}]")


def test_an_alias_costs_what_it_stands_for() -> None:
    """Twelve lines that expand to 10**12 values are refused before the reader builds one."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases included" in refused("\n".join(lines)).message
    with suppress(documents.DocumentError):
        documents.parse_yaml(merge_bomb(14))


def merge_keys(count: int) -> str:
    """A mapping with this many fields, and twice as many empty merged ones."""
    fields = ",".join(f"k{n}: 0" for n in range(count))
    return f"a: &a {{{fields}}}\ne: &e {{}}\nb:\n  <<: [*a,{','.join(['*e'] * (2 * count))}]\n"


def merge_bomb(levels: int) -> str:
    """688 bytes with 13 levels: PyYAML's loader needs nine to the power of the levels."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n}\n  <<: [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.proof
@pytest.mark.parametrize(
    "text",
    [
        merge_keys(45_000),
        merge_bomb(14),
        "".join(f"%TAG !a{n}! x\n" for n in range(75_000)) + "--- a\n",
        "%TAG ! x\r" * 75_000 + "--- a\n",
        "[" + ",".join(["[]"] * 300_000) + "]",
        "{" + ",".join(f'"k{n}": {{}}' for n in range(60_000)) + "}",
        "a: 1." + "1" * 1_000_000,
        "a: " + "- " * 300_000,
        "- " * 300_000,
        "&a " * 300_000,
        '"' + "\\n" * 300_000,
        "a: |\n" + " x\n" * 300_000,
        "# x\n" * 250_000,
        "--- ~\n" * 150_000,
        "? " * 300_000,
    ],
    ids=lambda text: text[:8],
)
def test_a_text_costs_no_more_than_its_size(text: str) -> None:
    """A megabyte of input that is quadratic for naive parsers takes bounded time."""
    assert len(text) <= 1_200_000
    started = time.process_time()
    with suppress(documents.DocumentError):
        documents.parse_text(text, documents.OBJECT_NODES_MAX)
    assert time.process_time() - started < 3.0


def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    """A FIFO, an endless device and a folder are refused at once."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ValueError, match="no regular file"):
            documents.read_file(path, 10)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises((OSError, ValueError)):
            documents.read_file(path, 10)
    (tmp_path / "file").write_bytes(b"a: 1" + b"\n" * 100)
    assert documents.read_file(tmp_path / "file", 10) == b"a: 1" + b"\n" * 7
    assert documents.object_of_file(tmp_path / "file", 1000) == {"a": 1}
    # As the kubelet reads a static pod, and kubectl a kubeconfig.
    (tmp_path / "twice").write_text("a: 1\na: 2\n")
    assert documents.object_of_file(tmp_path / "twice", 1000) == {"a": 2}
    with pytest.raises(documents.DocumentError, match="larger than 10 bytes"):
        documents.object_of_file(tmp_path / "file", 10)


def test_text_is_utf8_of_bounded_size() -> None:
    """A byte order mark is skipped. Oversized or binary input is refused with its line."""
    assert documents.decode_text(b"\xef\xbb\xbfa: 1", 10) == "a: 1"
    with pytest.raises(documents.DocumentError, match="larger than 3 bytes"):
        documents.decode_text(b"abcd", 3)
    with pytest.raises(documents.DocumentError, match="UTF-8") as raised:
        documents.decode_text(b"a: 1\nb: \xff", 100)
    assert raised.value.line == 2


@pytest.mark.parametrize(
    "text, part",
    [
        ('{"a": 1, "a": 2}', "occurs twice"),
        ('{"a": }', "not JSON"),
        ('"\\ud800"', "half a character"),
        ('{"\\ud800": 1}', "half a character"),
        ("9" * 50, "out of range"),
    ],
)
def test_json_is_refused_where_yaml_is(text: str, part: str) -> None:
    """The same limits, another door."""
    with pytest.raises(documents.DocumentError, match=part):
        documents.parse_json(text)


@settings(max_examples=50)
@given(value=VALUES)
def test_both_readers_agree_with_the_libraries(value: object) -> None:
    """Our readers agree with the libraries' output."""
    expected = [] if value is None else [value]
    assert [documents.plain_value(each) for each in documents.parse_json(json.dumps(value))] == expected
    # Quoted and tagged: unquoted, "1E5" is a string to that library, but a number to Kubernetes and to us.
    assert read(yaml.safe_dump(value, default_style='"')) == expected


PARTS = (": ", "- ", "\n  ", "<<", "&a ", "*a", "---\n", "...\n", "!!int ", "\x00", "é")
YAMLISH = st.lists(st.sampled_from([*"abc01:-?,[]{}&*!|>'\"%@`#~.\\ \n\t", *PARTS])).map("".join)


@settings(max_examples=100)
@given(text=YAMLISH | st.text())
def test_any_text_is_a_tree_or_one_clear_error(text: str) -> None:
    """The readers raise no other error; each message is one printable line."""
    for parse in (documents.parse_yaml, documents.parse_json):
        try:
            said = "".join(type(each).__name__ for each in parse(text))
        except documents.DocumentError as error:
            said = error.message
        assert said.isprintable()


def test_a_repeated_field_beside_a_bad_document_is_named_once() -> None:
    repeated = list[documents.DocumentError]()
    documents.parse_text("a: 1\na: 2\n---\nb: [\n---\nc: 1\n", repeated=repeated, wrong=[])
    assert [each.line for each in repeated] == [2]
