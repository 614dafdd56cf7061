"""The span destination: file, standard environment, precedence, and secrets."""

from __future__ import annotations

import traceback

import pytest

from ebbtide.otel import destination

GENERAL, TRACES = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
SECRET = "s3cret-word"


def of(**variables: str) -> destination.Destination | None:
    return destination.resolve(destination.from_environment(variables))


ENDPOINTS = [
    ({f"{GENERAL}ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
    ({f"{GENERAL}ENDPOINT": "http://c:4318/otlp/"}, "http://c:4318/otlp/v1/traces"),
    ({f"{TRACES}ENDPOINT": "http://c:4318"}, "http://c:4318/"),
    ({f"{TRACES}ENDPOINT": "http://c/x", f"{GENERAL}ENDPOINT": "http://d"}, "http://c/x"),
    ({f"{GENERAL}ENDPOINT": "http://c:4317/v1/traces", f"{GENERAL}PROTOCOL": "grpc"}, "http://c:4317"),
    ({f"{GENERAL}ENDPOINT": "c:4317", f"{GENERAL}PROTOCOL": "grpc"}, "https://c:4317"),
    (
        {f"{GENERAL}ENDPOINT": "c:4317", f"{TRACES}PROTOCOL": "grpc", f"{GENERAL}INSECURE": "true"},
        "http://c:4317",
    ),
]


@pytest.mark.parametrize("variables, endpoint", ENDPOINTS)
def test_endpoints_are_read_as_the_specification_says(variables: dict[str, str], endpoint: str) -> None:
    """The general endpoint gets the path, the traces' endpoint does not; gRPC needs no scheme."""
    found = of(**variables)
    assert found is not None
    assert found.endpoint == endpoint


def test_the_environment_fills_in_everything() -> None:
    """Each variable; the traces' own before the general one."""
    found = of(
        **{
            f"{GENERAL}ENDPOINT": "https://c",
            f"{GENERAL}HEADERS": "Authorization=Bearer%20x, x-tenant=a",
            f"{GENERAL}TIMEOUT": "3000",
            f"{TRACES}TIMEOUT": "250",
            f"{GENERAL}COMPRESSION": "gzip",
            f"{GENERAL}CERTIFICATE": "/ca.pem",
            f"{GENERAL}CLIENT_CERTIFICATE": "/c.pem",
            f"{GENERAL}CLIENT_KEY": "/k.pem",
        }
    )
    assert found == destination.Destination(
        endpoint="https://c/v1/traces",
        headers=(("authorization", "Bearer x"), ("x-tenant", "a")),
        timeout_ns=250_000_000,
        compression="gzip",
        certificate="/ca.pem",
        client_certificate="/c.pem",
        client_key="/k.pem",
    )


BAD = [
    {f"{GENERAL}ENDPOINT": "ftp://c"},
    {f"{GENERAL}ENDPOINT": f"http://user:{SECRET}@c"},
    {f"{TRACES}ENDPOINT": "http://c:99999"},
    {f"{GENERAL}PROTOCOL": "http/json"},
    {f"{GENERAL}TIMEOUT": "10s"},
    {f"{GENERAL}TIMEOUT": "0"},
    {f"{TRACES}COMPRESSION": "zstd"},
    {f"{GENERAL}HEADERS": SECRET},
    {f"{GENERAL}HEADERS": f"a b={SECRET}"},
    {f"{GENERAL}HEADERS": f"authorization: Bearer {SECRET}=="},
    {f"{GENERAL}HEADERS": f"a={SECRET}%0d%0aX: y"},
    {f"{GENERAL}HEADERS": f"host={SECRET}"},
    {f"{GENERAL}HEADERS": f"a=%20{SECRET}"},
    {f"{GENERAL}HEADERS": f"a={SECRET}%09"},
]


@pytest.mark.parametrize("variables", BAD)
def test_a_bad_variable_is_named_and_its_value_kept_back(variables: dict[str, str]) -> None:
    """The value may be a secret: no message repeats it."""
    with pytest.raises(destination.BadDestination, match=next(iter(variables))) as caught:
        destination.from_environment({f"{GENERAL}ENDPOINT": "http://c"} | variables)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert SECRET not in shown
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name, value", [("x-bin", SECRET), ("x!y", SECRET), ("grpc-x", "1"), ("x", "a\tb")])
def test_a_header_that_grpc_does_not_take_is_named(name: str, value: str) -> None:
    """The gRPC library raises for some and blames the server for others; HTTP accepts them."""
    given = destination.Given(endpoint="http://c", headers=(destination.checked_header(name, value),))
    assert destination.resolve(given) is not None
    with pytest.raises(destination.BadDestination, match=rf"header {name}") as caught:
        destination.resolve(destination.Given(protocol="grpc"), given)
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "c:4318",
        "http://",
        "http://c:",
        "https://[::1]:/x",
        "http://c /x",
        "http://c:0",
        "http://[::1",
        "x" * 9000,
    ],
)
def test_what_is_no_endpoint(endpoint: str) -> None:
    """Refused with an example of one."""
    with pytest.raises(destination.BadDestination, match="http://localhost:4318"):
        destination.checked_endpoint(endpoint)


def test_the_placeholder_of_config_show_is_no_value() -> None:
    """A printed configuration must not send the placeholder."""
    with pytest.raises(destination.BadDestination, match="placeholder"):
        destination.checked_header("authorization", "(hidden)")
