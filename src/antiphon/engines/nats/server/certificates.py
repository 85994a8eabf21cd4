"""TLS with the mesh's own certificate authority.

`antiphon init` makes the authority. A ticket has the digest of its certificate, which the server
shows behind its own (`pinned_authority`); so a member trusts this server and nobody else, and no
public authority has to be asked for a name.

Owns the files below one directory: the authority's key and the server's, readable by their owner
alone. Only making certificates needs the package `cryptography` (`certificate_authority`), so a
member's machine does without.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.errors import Misconfigured
from antiphon.files import PUBLIC_MODE, replace_file

if TYPE_CHECKING:
    from antiphon.engines.nats.server.certificate_authority import Authority


class TlsFiles(Struct, frozen=True):
    """What a server is started with, and what its clients trust."""

    certificate: Path
    key: Path
    authority: Path


def client_context(authority_pem: str) -> ssl.SSLContext:
    """The TLS context of a client that trusts one authority and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the host's name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=authority_pem)
    except (ssl.SSLError, ValueError) as error:
        raise Misconfigured(
            "the mesh's certificate cannot be read", hint="ask the mesh's owner for a new ticket"
        ) from error
    return context


def open_authority(directory: Path) -> Authority:
    """The one kept in a directory, made there the first time."""
    authority = _authority_class()
    if not (directory / "ca-key.pem").exists():
        authority.new().store(directory)
    return authority.load(directory)


def server_files(directory: Path, hosts: Sequence[str]) -> TlsFiles:
    """Files for a server that is reached by these names and addresses.

    Its certificate is made again for other hosts, and once half of its life is over: after a
    restart the certificate is valid for at least half a year.
    """
    authority = open_authority(directory)
    files = TlsFiles(
        certificate=directory / "server.pem",
        key=directory / "server-key.pem",
        authority=directory / "ca.pem",
    )
    if not (files.key.exists() and authority.is_fresh(files.certificate, hosts)):
        certificate, key = authority.issue(hosts)
        files.certificate.unlink(missing_ok=True)  # never a new key beside an old certificate
        replace_file(files.key, key.encode())
        shown = certificate + authority.certificate_pem
        replace_file(files.certificate, shown.encode(), mode=PUBLIC_MODE)
    return files


def _authority_class() -> type[Authority]:
    try:
        from antiphon.engines.nats.server.certificate_authority import Authority
    except ImportError as error:
        raise Misconfigured(
            "making certificates needs the package 'cryptography'",
            hint="pip install 'antiphon[server]'",
        ) from error
    return Authority
