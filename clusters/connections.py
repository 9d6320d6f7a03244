"""How a real cluster is reached: what an admin may give, and nothing else. Addresses are checked elsewhere."""

from dataclasses import dataclass, field


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
class Target:
    """A server whose address was resolved once and checked: connect to `address`, keep `host` for TLS and Host."""

    host: str
    address: str
    port: int
