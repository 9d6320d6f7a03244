"""How an API server is reached: connection, checked address, allowed networks. Pure.

An address that is not public is reached only if the operator's setting `RUNG_CLUSTER_ADDRESSES` names its range.
Link-local addresses, addresses of clouds' metadata services, and IPv6 forms that hide an IPv4 address never are.
"""

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from clusters.ports.gateway import AddressRefused, ClusterUnreachable


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credential of an API server. Secrets never show in a repr, a log or an error.

    Exactly one of `token` or the pair `certificate` and `key` is set (PEM texts). `ca` is empty where the
    server's certificate is signed by a public authority. `insecure` skips the check of the server's certificate.
    """

    server: str
    ca: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    tls_server_name: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class CheckedAddress:
    """A server whose address was resolved once and checked: connect to `address`, keep `host` for TLS and Host."""

    host: str
    address: str
    port: int


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolver = Callable[[str, int], Iterable[str]]

LONGEST: Final = 500
_URL: Final = re.compile(
    r"https://(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9.-]{1,253}))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>(?:/[A-Za-z0-9._~-]*)*)"
)
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")

NEVER: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), why)
    for network, why in (
        ("169.254.0.0/16", "a link-local address"),
        ("fe80::/10", "a link-local address"),
        ("0.0.0.0/8", "an unspecified address"),
        ("::/128", "an unspecified address"),
        ("224.0.0.0/4", "a multicast address"),
        ("ff00::/8", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::ffff:0:0/96", "an IPv4 address in IPv6 form"),
        ("64:ff9b::/96", "an IPv4 address in NAT64 form"),
        ("64:ff9b:1::/48", "an IPv4 address in NAT64 form"),
        ("2002::/16", "an IPv4 address in 6to4 form"),
        ("2001::/32", "an IPv4 address in Teredo form"),
        ("100.100.100.200/32", "a cloud's metadata service"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("fd00:ec2::254/128", "a cloud's metadata service"),
    )
)
OLD_FORM: Final = ip_network("::/96")
PUBLIC_V6: Final = ip_network("2000::/3")


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A server's URL in its parts. `path` is where the API begins: empty, or such as /k8s/clusters/c-1."""

    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """The URL in its one spelling."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}{self.path}"


def checked_address(server: str, *, allowed: Sequence[Network], resolve: Resolver | None = None) -> CheckedAddress:
    """The one address to connect to. Asks the resolver once, connects to nothing.

    AddressRefused: the URL is not taken, or any address behind its name is out of bounds. ClusterUnreachable: the
    name does not resolve.
    """
    parts = parse_server_url(server)
    addresses = [ip_address(each) for each in (resolve or system_resolver)(parts.host, parts.port)]
    if not addresses:
        raise ClusterUnreachable(f"{parts.host} has no address.")
    for address in addresses:
        if why := refused_because(address, allowed):
            named = "" if str(address) == parts.host else f"{parts.host} resolves to "
            raise AddressRefused(f"{named}{address}: {why}.")
    return CheckedAddress(host=parts.host, address=str(addresses[0]), port=parts.port)


def parse_server_url(server: str) -> ServerUrl:
    """The parts of `https://host[:port][/path]`; anything else raises AddressRefused."""
    if len(server) > LONGEST:
        raise AddressRefused(f"The address has {len(server)} characters; the maximum is {LONGEST}.")
    found = _URL.fullmatch(server)
    if found is None:
        raise AddressRefused(
            "The address must be https://host:port, optionally with a path, without user, query or fragment."
        )
    port = int(found["port"] or 443)
    path = found["path"].rstrip("/")
    if not 0 < port < 65536:
        raise AddressRefused(f"{port} is not a valid port.")
    if {".", ".."} & set(path.split("/")) or "//" in path:
        raise AddressRefused("The path of the address must not have empty or dotted segments.")
    return ServerUrl(_host(found["v6"], found["host"]), port, path)


def _host(v6: str | None, host: str | None) -> str:
    """The host in its one spelling. Numbers that are no plain IP address are refused."""
    text = v6 or (host or "").lower()
    numeric = v6 is not None or _NUMBER.fullmatch(text.rpartition(".")[2]) is not None
    try:
        return str(ip_address(text)) if numeric else _name(text)
    except ValueError:
        raise AddressRefused(f"{text} is not a valid host name or IP address.") from None


def _name(text: str) -> str:
    if all(_LABEL.fullmatch(label) for label in text.split(".")):
        return text
    raise ValueError(text)


def refused_because(address: Address, allowed: Sequence[Network]) -> str:
    """Why an address must not be reached; empty when it may be."""
    for network, why in NEVER:
        if address in network:
            return why
    if address in OLD_FORM and not address.is_loopback:
        return "an IPv4 address in IPv6 form"
    public = address.is_global and (address.version == 4 or address in PUBLIC_V6)
    if public or any(address in network for network in allowed):
        return ""
    what = "a loopback address" if address.is_loopback else "not a public address"
    return f"{what}, not allowed by RUNG_CLUSTER_ADDRESSES"


def system_resolver(host: str, port: int) -> list[str]:
    """Every address of a name, by the system. Raises ClusterUnreachable."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise ClusterUnreachable(f"{host} does not resolve.") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))
