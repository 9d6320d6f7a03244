"""Which addresses a secret may be sent to. HTTPS everywhere; plain HTTP to this machine only."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from rung_cli.errors import UsageError

PLAIN = (
    "Over http the secret and all tokens can be intercepted. Use https, or --insecure-http (in the profile: "
    "insecure_http: true) on a private network."
)


def validate_address(text: str, *, insecure_http: bool = False) -> str:
    """`https://host[:port][/prefix]` without a trailing slash. UsageError for everything that is not safe to use."""
    parts = _split(text)
    if parts.username is not None or parts.password is not None:
        raise UsageError("The address contains a user or a secret before the @.", hint="Pass only the address.")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{_shortened(text)} is not a portal address.", hint="Such as https://rung.example.org")
    if parts.scheme == "http" and not insecure_http and not is_loopback(parts.hostname):
        raise UsageError(f"{origin_of(text)} is not encrypted.", hint=PLAIN)
    return f"{origin_of(text)}{parts.path.rstrip('/')}"


def origin_of(address: str) -> str:
    """Scheme, host and port: what a token belongs to."""
    parts = _split(address)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    port = "" if parts.port in {None, default} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def is_loopback(host: str) -> bool:
    """This machine: `localhost`, its subdomains, 127.0.0.0/8 and ::1."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text.strip())
        _ = parts.port  # reading it checks it
    except ValueError:
        raise UsageError(f"{_shortened(text)} is not an address.") from None
    return parts


def _shortened(text: str) -> str:
    """What may be repeated of an address that was not understood: nothing before an @."""
    return repr(text.rpartition("@")[2][:100])
