"""T42: where Rung may connect. A refusal comes before the first packet, which listeners confirm."""

import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from clusters.connection.services.connection_test import try_connection
from clusters.connection.services.gateways import gateway_to
from clusters.ports.connection import CheckedAddress, Connection, checked_address
from clusters.ports.gateway import AddressRefused, ClusterError, ClusterUnreachable
from tests.support.listeners import Request, Visits, api_server, listener, ordinary

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]
EVERYTHING = [ip_network("0.0.0.0/0"), ip_network("::/0")]

pytestmark = pytest.mark.enable_socket


def refused(server: str, *, allowed: object = (), resolve: object = None) -> str:
    with pytest.raises(AddressRefused) as error:
        checked_address(server, allowed=allowed, resolve=resolve)  # type: ignore[arg-type]
    assert not error.value.transient
    return error.value.message


@pytest.fixture
def visits() -> Iterator[Visits]:
    with listener() as counted:
        yield counted


@pytest.mark.parametrize(
    "server",
    [
        "http://127.0.0.1:{}",
        "HTTPS://127.0.0.1:{}",
        "https://127.0.0.1:{}",
        "https://127.1:{}",
        "https://127.0.0.1.:{}",
        "https://2130706433:{}",
        "https://0x7f000001:{}",
        "https://0x7f.0.0.1:{}",
        "https://0177.0.0.1:{}",
        "https://017700000001:{}",
        "https://127.0.0.01:{}",
        "https://0:{}",
        "https://0.0.0.0:{}",
        "https://[::1]:{}",
        "https://[::]:{}",
        "https://[::ffff:127.0.0.1]:{}",
        "https://[::ffff:7f00:1]:{}",
        "https://[64:ff9b::127.0.0.1]:{}",
        "https://[::127.0.0.1]:{}",
        "https://[2002:7f00:1::]:{}",
        "https://[fe80::1%25lo]:{}",
        "https://localhost:{}",
        "https://LOCALHOST:{}",
        "https://user@127.0.0.1:{}",
        "https://user:word@127.0.0.1:{}",
        "https://8.8.8.8@127.0.0.1:{}",
        "https://127.0.0.1:{}@8.8.8.8",
        "https://127.0.0.1:{}#@8.8.8.8",
        "https://127.0.0.1:{}?x",
        "https://127.0.0.1\\@8.8.8.8:{}",
        "https://127.0.0.1%2f:{}",
        "https://①②⑦.⓪.⓪.①:{}",
        "https://127。0。0。1:{}",
        "//127.0.0.1:{}",
        "127.0.0.1:{}",
    ],
)
def test_t42_no_packet_reaches_this_machine(visits: Visits, settings: Settings, server: str) -> None:
    settings.RUNG_CLUSTER_ADDRESSES = []
    report = try_connection(Connection(server.format(visits.port), token="canary"), "kube")
    assert report.code == "address_refused", report
    assert visits.count == 0


@pytest.mark.parametrize(
    "server",
    [
        "file" + ":///etc/passwd",
        "gopher://127.0.0.1:70/_x",
        "https://",
        "https:///x",
        "https://a..b",
        "https://-a.example",
        f"https://{'a' * 64}.example",
        f"https://a.example/{'x' * 600}",
        "https://a.example:0",
        "https://a.example:65536",
        "https://a.example:99999999",
        "https://a.example/../api",
        "https://a.example//api",
        "https://a.example/a b",
        "https://a.example\n",
        "https://a.example\x00",
        "https://a.example/%2e%2e",
        "https://exämple.org",
        "",
    ],
)
def test_t42_only_plain_https_addresses_are_read(server: str) -> None:
    refused(server, allowed=EVERYTHING)


@pytest.mark.parametrize("server", ["https://169.254.169.254", "https://[fe80::1]", "https://[fd00:ec2::254]",
                                    "https://100.100.100.200", "https://168.63.129.16", "https://0.0.0.0",
                                    "https://224.0.0.1", "https://[ff02::1]", "https://255.255.255.255",
                                    "https://[::ffff:10.0.0.1]", "https://[64:ff9b::a00:1]"])  # fmt: skip
def test_t42_some_addresses_are_never_allowed(server: str) -> None:
    refused(server, allowed=EVERYTHING)


@pytest.mark.parametrize(
    "server",
    ["https://10.0.0.1", "https://172.16.0.1", "https://192.168.0.1", "https://100.64.0.1", "https://[fd00::1]",
     "https://198.18.0.1", "https://192.0.2.1"],
)  # fmt: skip
def test_t42_private_addresses_need_the_operators_setting(server: str) -> None:
    assert "RUNG_CLUSTER_ADDRESSES" in refused(server, allowed=LOOPBACK)
    assert checked_address(server, allowed=EVERYTHING).port == 443


def test_the_operators_setting_allows_exactly_its_range() -> None:
    allowed = [ip_network("10.20.0.0/16")]
    assert checked_address("https://10.20.3.4:6443/k8s/c-1", allowed=allowed) == CheckedAddress(
        "10.20.3.4", "10.20.3.4", 6443
    )
    refused("https://10.21.0.1", allowed=allowed)


def test_t42_a_name_that_stands_for_a_private_address() -> None:
    message = refused("https://innocent.example", resolve=lambda _host, _port: ["10.0.0.7"])
    assert "innocent.example resolves to 10.0.0.7" in message


def test_t42_every_address_of_a_name_is_checked() -> None:
    refused("https://innocent.example", resolve=lambda _host, _port: ["8.8.8.8", "2606:4700::1111", "169.254.169.254"])


def test_t42_a_name_that_changes_its_mind_reaches_the_address_that_was_checked(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RUNG_CLUSTER_ADDRESSES = LOOPBACK
    real, answers = socket.getaddrinfo, ["127.0.0.1"]
    requested: list[str] = []

    def rebinding(host: str, port: int, *args: int, **kwargs: int) -> list[object]:
        if host != "api.example.org":
            return list(real(host, port, *args, **kwargs))
        requested.append(host)
        address = answers.pop() if answers else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with api_server(tmp_path) as api:
        server = f"https://api.example.org:{api.port}"
        gateway = gateway_to(Connection(server, ca=api.authority.pem, token="canary"), name="rebound")
        try:
            assert gateway.version() == gateway.identity()[1] == "v1.36.3"
        finally:
            gateway.close()
    assert requested == ["api.example.org"]
    assert {request.headers["Host"] for request in api.requests} == {f"api.example.org:{api.port}"}


def test_t42_a_redirect_is_not_followed(tmp_path: Path, visits: Visits) -> None:
    def elsewhere(_request: Request) -> tuple[int, bytes]:
        return 302, f"http://127.0.0.1:{visits.port}/latest/meta-data".encode()

    with api_server(tmp_path) as api:
        api.answers = elsewhere
        report = try_connection(Connection(api.url, ca=api.authority.pem, token="canary"), "kube")
    assert "redirect" in report.error
    assert visits.count == 0


def test_a_name_without_an_address_may_have_one_later() -> None:
    def fails(*_args: object, **_kwargs: object) -> list[str]:
        return []

    with pytest.raises(ClusterUnreachable) as error:
        checked_address("https://nowhere.example", allowed=(), resolve=fails)
    assert error.value.transient


def test_the_system_resolvers_own_errors_do_not_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> Callable[[], None]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", broken)
    with pytest.raises(ClusterError, match="does not resolve"):
        checked_address("https://nowhere.example", allowed=())


def test_t42_a_good_address_reaches_its_server(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        api.answers = ordinary
        assert try_connection(Connection(api.url, ca=api.authority.pem, token="canary"), "kube").works
