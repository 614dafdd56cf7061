"""Nasty configurations: each is loaded, or refused in one line and in bounded time; never anything else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.config import ConfigError, load, parse
from ebbtide.config.readers import GATES
from ebbtide.config.schema import FIELDS

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "config").iterdir())

#: Far above what the largest of them needs (some 10 ms); far below what one without limits would.
SECONDS_MAX = 5.0

#: A long path, a long field name cut short, and what is wrong with it.
MESSAGE_LENGTH_MAX = 600

HEADERS = st.sampled_from(
    [
        b"apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n",
        b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
        b"",
    ]
)
WORDS = st.sampled_from(
    [
        *FIELDS,
        *GATES,
        "priority",
        "shutdownGracePeriodSeconds",
        "30s",
        "1ms",
        "-1s",
        "10",
        "true",
        "strict",
        ".nan",
        "/run",
        "~",
        "1e9",
        "9" * 30,
        "[",
        "]",
        "{",
        "}",
        ", ",
        "- ",
        "&a ",
        "*a",
        "<<",
        "'",
        '"',
        "\\",
        "!!str ",
        "|",
    ]
)
LINES = st.lists(
    st.tuples(WORDS, st.sampled_from([": ", ":\n  ", ":\n- ", ": {", ": ["]), st.lists(WORDS, max_size=6))
).map(lambda lines: "\n".join(head + sign + " ".join(tail) for head, sign, tail in lines).encode())


def complaint(texts: list[tuple[str, bytes]]) -> str:
    """Why they are refused; empty when they are not. Anything but a ConfigError fails the test."""
    try:
        parse(texts)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_each_file_of_the_corpus_is_loaded_or_refused_in_one_line(path: Path) -> None:
    """Its name says which; the error names the file."""
    started = time.monotonic()
    if path.name.startswith("ok-"):
        load([path])
    else:
        with pytest.raises(ConfigError) as raised:
            load([path])
        message = str(raised.value)
        assert message.startswith(str(path))
        assert message.isprintable()
        assert len(message) < MESSAGE_LENGTH_MAX
    assert time.monotonic() - started < SECONDS_MAX


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(texts=st.lists(st.tuples(HEADERS, LINES | st.binary(max_size=200)), max_size=3))
def test_any_bytes_are_a_configuration_or_one_clear_error(texts: list[tuple[bytes, bytes]]) -> None:
    """No other exception comes out, whatever goes in."""
    named = [(f"{number}.yaml", head + body) for number, (head, body) in enumerate(texts)]
    assert complaint(named).isprintable()


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    path=st.sampled_from(CORPUS),
    cuts=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40), st.binary(max_size=8)), max_size=4),
)
def test_a_damaged_file_is_a_configuration_or_one_clear_error(
    path: Path, cuts: list[tuple[int, int, bytes]]
) -> None:
    """The corpus with pieces cut out and others put in."""
    raw = path.read_bytes()[:4000]
    for at, length, piece in cuts:
        raw = raw[:at] + piece + raw[at + length :]
    assert complaint([("damaged.yaml", raw)]).isprintable()
