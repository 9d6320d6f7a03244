"""Authorities and certificates made for a test."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """The certificate as text."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key(self) -> str:
        """The key as text."""
        return self._key(NoEncryption())

    @property
    def locked_key(self) -> str:
        """The key under a passphrase."""
        return self._key(BestAvailableEncryption(b"a passphrase"))

    def _key(self, encryption: KeySerializationEncryption) -> str:
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def authority(name: str = "tests") -> Pair:
    """A certificate that may sign others."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name, name, key, days=30).add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    return Pair(builder.sign(key, SHA256()), key)


def signed(
    by: Pair, name: str, *, addresses: tuple[str, ...] = (), names: tuple[str, ...] = (), days: int = 30
) -> Pair:
    """A certificate of a server or client; negative days have passed already."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    builder = _builder(name, str(issuer), key, days=days)
    others: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
    others += [x509.IPAddress(ip_address(each)) for each in addresses]
    if others:
        builder = builder.add_extension(x509.SubjectAlternativeName(others), False)
    return Pair(builder.sign(by.private, SHA256()), key)


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, *, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
    )
