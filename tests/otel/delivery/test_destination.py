"""Where spans go: the file's words, the standard environment, which of them wins; and that secrets stay
secret.
"""

from __future__ import annotations

import traceback

import pytest

from ebbtide.otel.delivery.destination import (
    PATHS,
    TIMEOUT_NS,
    BadDestination,
    Destination,
    Given,
    Job,
    checked_endpoint,
    checked_header,
    from_environment,
    resolve,
    resolve_all,
    resource_attributes,
)
from ebbtide.otel.delivery.export_run import destination_for

GENERAL, TRACES = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
SECRET = "s3cret-word"


def of(**variables: str) -> Destination | None:
    return resolve(from_environment(variables))


def test_without_an_endpoint_tracing_is_off() -> None:
    """Whatever else is said: only an endpoint switches it on."""
    assert of() is None
    assert of(**{f"{GENERAL}PROTOCOL": "grpc", f"{GENERAL}HEADERS": "a=b"}) is None
    assert of(**{f"{GENERAL}ENDPOINT": ""}) is None


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
    """The general one gets the path, the traces' own is taken as it is, gRPC's may have no scheme."""
    found = of(**variables)
    assert found is not None
    assert found.endpoint == endpoint


def test_the_environment_fills_in_everything() -> None:
    """Each variable, the traces' own before the general one."""
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
    assert found == Destination(
        endpoint="https://c/v1/traces",
        headers=(("authorization", "Bearer x"), ("x-tenant", "a")),
        timeout_ns=250_000_000,
        compression="gzip",
        certificate="/ca.pem",
        client_certificate="/c.pem",
        client_key="/k.pem",
    )


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_environment_can_switch_itself_off(off: dict[str, str]) -> None:
    """Then only the file counts."""
    variables = {f"{GENERAL}ENDPOINT": "http://c"} | off
    assert of(**variables) is None
    assert resolve(Given(endpoint="http://d"), from_environment(variables)) is not None


@pytest.mark.parametrize(
    "names, exporter, protocol",
    [
        ("console", "console", ""),
        ("vendor, other", "vendor", ""),
        ("console,otlp", "", "http/protobuf"),
        ("otlp_proto_grpc", "", "grpc"),
        ("otlp_proto_http", "", "http/protobuf"),
        ("none,vendor", "vendor", ""),
    ],
)
def test_the_environment_can_name_another_exporter(names: str, exporter: str, protocol: str) -> None:
    """It reads its own variables; a file that names an endpoint wins over it."""
    variables = {"OTEL_TRACES_EXPORTER": names, f"{GENERAL}ENDPOINT": "http://c", f"{GENERAL}HEADERS": "a=b"}
    found = of(**variables)
    assert found is not None
    assert found.exporter == exporter
    assert bool(found.headers) is not bool(exporter)
    if protocol:
        assert found.protocol == protocol
    file = resolve(Given(endpoint="http://d"), from_environment(variables))
    assert file is not None
    assert (file.endpoint, file.exporter) == ("http://d/v1/traces" if protocol != "grpc" else "http://d", "")


def test_each_signal_has_variables_of_its_own() -> None:
    """Field by field before the general ones; an endpoint of its own is taken as it is."""
    environ = {
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        f"{GENERAL}ENDPOINT": "http://c:4318",
        f"{GENERAL}HEADERS": "x-tenant=a",
        f"{GENERAL}LOGS_ENDPOINT": "https://logs/ingest",
        f"{GENERAL}LOGS_HEADERS": "x-key=b",
        f"{GENERAL}METRICS_TIMEOUT": "250",
        f"{GENERAL}METRICS_COMPRESSION": "gzip",
    }
    found = resolve_all(environ)
    assert found is not None
    logs, metrics = found.beside["logs"], found.beside["metrics"]
    assert (found.endpoint, found.timeout_ns) == ("http://c:4318/v1/traces", TIMEOUT_NS)
    assert (logs.endpoint, logs.headers) == ("https://logs/ingest", (("x-key", "b"),))
    assert (metrics.endpoint, metrics.headers) == ("http://c:4318/v1/metrics", (("x-tenant", "a"),))
    assert (metrics.timeout_ns, metrics.compression) == (250_000_000, "gzip")
    assert destination_for(found, PATHS["logs"]) is logs
    file = resolve_all(environ, Given(endpoint="http://d/v1/traces"))
    assert file is not None
    assert [each.endpoint for each in file.beside.values()] == ["http://d/v1/logs", "http://d/v1/metrics"]


def test_a_signal_without_a_place_is_named_with_its_variable() -> None:
    """Of the traces' own place the others' does not follow."""
    environ = {f"{TRACES}ENDPOINT": "http://c/ingest", "OTEL_LOGS_EXPORTER": "otlp"}
    with pytest.raises(BadDestination, match=r"set .* or OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
        resolve_all(environ)


def test_the_environment_describes_the_resource() -> None:
    """Percent-decoded; the service's name has a variable of its own, which wins."""
    variable = "k8s.cluster.name=blue, team=a%2Cb,service.name=x,=1"
    assert resource_attributes({"OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=blue, team=a%2Cb,"}) == {
        "k8s.cluster.name": "blue",
        "team": "a,b",
    }
    named = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=x", "OTEL_SERVICE_NAME": "shutdowns"}
    assert resource_attributes(named) == {"service.name": "shutdowns"}
    assert resource_attributes(named | {"OTEL_SDK_DISABLED": "true"}) == {}
    for wrong in (variable, "blue", "a=%0a", "a=" + "x" * 300):
        with pytest.raises(BadDestination, match="OTEL_RESOURCE_ATTRIBUTES"):
            resource_attributes({"OTEL_RESOURCE_ATTRIBUTES": wrong})


def test_the_first_place_wins_field_by_field() -> None:
    """The command line before the file before the environment, each filling in what the others leave out."""
    environment = Given(endpoint="http://e", headers=(("a", "b"),), timeout_ns=1)
    file = Given(endpoint="http://f", timeout_ns=2)
    found = resolve(Given(compression="gzip"), file, environment)
    assert found == Destination(
        endpoint="http://f/v1/traces", headers=(("a", "b"),), timeout_ns=2, compression="gzip"
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
    """What it holds may be a secret, so no message repeats it."""
    with pytest.raises(BadDestination, match=next(iter(variables))) as caught:
        from_environment({f"{GENERAL}ENDPOINT": "http://c"} | variables)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert SECRET not in shown
    assert caught.value.__suppress_context__


def test_no_representation_shows_a_header() -> None:
    """Neither of a destination nor of what it is made from: they end up in logs and in failed tests."""
    given = Given(endpoint="http://c", headers=(("authorization", SECRET),))
    destination = resolve(given)
    assert destination is not None
    for shown in (repr(given), repr(destination), repr(Job(destination=destination, locations=()))):
        assert SECRET not in shown


@pytest.mark.parametrize("name, value", [("x-bin", SECRET), ("x!y", SECRET), ("grpc-x", "1"), ("x", "a\tb")])
def test_a_header_that_grpc_does_not_take_is_named(name: str, value: str) -> None:
    """Its library raises for some, and calls others the server's fault; over HTTP they are good."""
    given = Given(endpoint="http://c", headers=(checked_header(name, value),))
    assert resolve(given) is not None
    with pytest.raises(BadDestination, match=rf"header {name}") as caught:
        resolve(Given(protocol="grpc"), given)
    assert value not in str(caught.value)


def test_a_key_needs_its_certificate() -> None:
    """Half of mutual TLS is a mistake, wherever the halves stand."""
    with pytest.raises(BadDestination, match="belong together"):
        resolve(Given(endpoint="https://c", client_key="/k"), Given())


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
    with pytest.raises(BadDestination, match="http://localhost:4318"):
        checked_endpoint(endpoint)


def test_the_placeholder_of_config_show_is_no_value() -> None:
    """A configuration that was printed and read again would send it to the back end."""
    with pytest.raises(BadDestination, match="placeholder"):
        checked_header("authorization", "(hidden)")
