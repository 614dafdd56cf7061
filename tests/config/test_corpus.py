"""Hostile configurations are loaded, or refused in one line."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.config import ConfigError, load, parse
from ebbtide.config.fields import fields_of
from ebbtide.config.loading import FIELDS, MISTAKES_MAX
from ebbtide.config.schema import Gates
from tests.corpus_files import corpus, read_or_refused

CORPUS = corpus("config")

HEADERS = st.sampled_from(
    [
        b"apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n",
        b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
        b"",
    ]
)
# fmt: off
WORDS = st.sampled_from([
    *FIELDS, *fields_of(Gates), "priority", "shutdownGracePeriodSeconds", "30s", "1ms", "-1s", "10", "true",
    "strict", ".nan", "/run", "~", "1e9", "9" * 30, "[", "]", "{", "}", ", ", "- ", "&a ", "*a", "<<", "'",
    '"', "\\", "!!str ", "|",
])
# fmt: on
LINES = st.lists(
    st.tuples(WORDS, st.sampled_from([": ", ":\n  ", ":\n- ", ": {", ": ["]), st.lists(WORDS, max_size=6))
).map(lambda lines: "\n".join(head + sign + " ".join(tail) for head, sign, tail in lines).encode())


def complaint(texts: list[tuple[str, bytes]]) -> str:
    """The refusal, or empty. Any error but a ConfigError fails the test."""
    try:
        parse(texts)
    except ConfigError as error:
        return str(error)
    return ""


def test_each_file_of_the_corpus_is_loaded_or_refused_in_one_line() -> None:
    read_or_refused(CORPUS, lambda path: load([path]), ConfigError, MISTAKES_MAX)


@settings(max_examples=100)
@given(texts=st.lists(st.tuples(HEADERS, LINES | st.binary(max_size=200)), max_size=3))
def test_any_bytes_are_a_configuration_or_one_clear_error(texts: list[tuple[bytes, bytes]]) -> None:
    named = [(f"{number}.yaml", head + body) for number, (head, body) in enumerate(texts)]
    assert complaint(named).isprintable()
