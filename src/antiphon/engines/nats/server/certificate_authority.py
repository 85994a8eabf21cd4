"""A certificate authority: the only module that needs `cryptography`.

P-256, which Go's TLS and Python's have both always had. Extensions are those that a strict
verifier asks for (Python 3.13 is one).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antiphon.errors import Corrupt, Misconfigured
from antiphon.files import PUBLIC_MODE, replace_file

AUTHORITY_LIFE: Final = dt.timedelta(days=3652)
SERVER_LIFE: Final = dt.timedelta(days=365)
MAX_HOSTS: Final = 64
_MAX_NAME: Final = 64
_HOST: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*", re.ASCII)
_SKEW: Final = dt.timedelta(hours=1)
"""Clocks that are slow must not find a new certificate in their future."""


class Authority:
    """Signs server certificates; its key leaves only by `store`."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def new(cls) -> Self:
        """A new one, good for ten years and for nothing but server certificates."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _named("antiphon certificate authority")
        builder = _builder(subject, key, AUTHORITY_LIFE, is_authority=True).issuer_name(subject)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """What `store` kept."""
        try:
            certificate = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key(
                (directory / "ca-key.pem").read_bytes(), password=None
            )
        except OSError as error:
            raise Misconfigured(
                f"there is no certificate authority in {directory}: {error.strerror}"
            ) from error
        except ValueError as error:
            raise Corrupt(f"the certificate authority in {directory} cannot be read") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Corrupt(f"the key of the certificate authority in {directory} is of another kind")
        return cls(certificate, key)

    def store(self, directory: Path) -> None:
        """Keep it: the key for its owner alone, the certificate for everybody."""
        replace_file(directory / "ca.pem", self.certificate_pem.encode(), mode=PUBLIC_MODE)
        replace_file(directory / "ca-key.pem", _key_pem(self._key).encode())

    @property
    def certificate_pem(self) -> str:
        """What clients trust; public."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, hosts: Sequence[str], *, life: dt.timedelta = SERVER_LIFE) -> tuple[str, str]:
        """A server certificate for these names and addresses, and its key, both as PEM."""
        names = [_general_name(host) for host in hosts]
        if not 0 < len(names) <= MAX_HOSTS:
            raise Misconfigured(f"a certificate is for 1 to {MAX_HOSTS} hosts, not {len(names)}")
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = (
            _builder(_named(f"antiphon {hosts[0]}"), key, life, is_authority=False)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(usage, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode(), _key_pem(key)

    def is_fresh(self, path: Path, hosts: Sequence[str]) -> bool:
        """Whether a certificate is ours, for exactly these hosts, and not half expired."""
        try:
            held = x509.load_pem_x509_certificate(path.read_bytes())
            held.verify_directly_issued_by(self._certificate)
            names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        if set(names) != {_general_name(host) for host in hosts}:
            return False
        begun, ends = held.not_valid_before_utc, held.not_valid_after_utc
        return _now() < begun + (ends - begun) / 2

    def __repr__(self) -> str:
        return f"Authority({self._certificate.subject.rfc4514_string()!r})"


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: dt.timedelta, *, is_authority: bool
) -> x509.CertificateBuilder:
    now = _now()
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    path_length = 0 if is_authority else None
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(is_authority, path_length), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(own, critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_NAME])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name, then
    if _HOST.fullmatch(host) is None:
        raise Misconfigured(f"{host!r} is neither a host's name nor an address")
    return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
