"""Where requests may go: the hosts that a worker was told, and no address inside by accident.

A name is looked up once, all of its addresses are checked, and the connection is made to one of
them: a name that changes in between leads nowhere else. Addresses that are not public (loopback,
private, link-local, those of cloud metadata) are refused, unless the list has them as addresses.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.errors import Misconfigured, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL: Final = 2_000
PORTS: Final = {"https": 443, "http": 80}
_NAME: Final = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_URL: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)
"""Printable, without spaces, and without the backslash that some read as a slash."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


class Target(Struct, frozen=True):
    """Where a request goes."""

    scheme: str
    host: str
    port: int
    path: str
    """With its query."""

    @property
    def host_header(self) -> str:
        """What the header `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class _Entry(Struct, frozen=True):
    scheme: str
    host: str
    port: int


class AllowedHosts:
    """The list: `hooks.example`, `*.example:8443`, `http://127.0.0.1:8000`, `10.0.0.0/8`."""

    def __init__(self, entries: Iterable[str]) -> None:
        """`Misconfigured` if one is no host."""
        self._hosts: list[_Entry] = []
        self._networks: list[Network] = []
        for text in entries:
            self._add(text.strip().lower())
        if not self._hosts:
            raise Misconfigured("no host is allowed", hint="--post-to hooks.example")

    def _add(self, text: str) -> None:
        if "://" not in text and (network := _network(text)) is not None:
            self._networks.append(network)
            if network.num_addresses == 1:
                self._hosts.append(_Entry("https", str(network.network_address), 443))
            return
        target = _parts(text if "://" in text else f"https://{text}")
        if target is None or target.path != "/" or not _is_host(target.host, wild=True):
            raise Misconfigured(
                f"{text!r} is not a host",
                hint="--post-to hooks.example, or http://127.0.0.1:8000, or 10.0.0.0/8",
            )
        self._hosts.append(_Entry(target.scheme, target.host, target.port))
        if (network := _network(target.host)) is not None:
            self._networks.append(network)

    def target(self, url: str) -> Target:
        """Where a URL leads; `Rejected` if the list does not have it."""
        found = _parts(url)
        if found is None or not _is_host(found.host):
            raise Rejected("this is not an https address", reason="url")
        if not any(_matches(one, found) for one in self._hosts):
            raise Rejected(
                f"this worker posts nothing to {found.scheme}://{found.host}:{found.port}",
                reason="host",
                hint="whoever runs it can add it: antiphon worker --post-to HOST",
            )
        return found

    def check_address(self, text: str) -> None:
        """`Rejected` unless an address is public, or on the list as an address."""
        address = ipaddress.ip_address(text.partition("%")[0])
        inner = _inner(address) if isinstance(address, ipaddress.IPv6Address) else None
        meant = inner or address
        if any(one in network for one in (address, meant) for network in self._networks):
            return
        is_site_local = isinstance(meant, ipaddress.IPv6Address) and meant.is_site_local
        if not meant.is_global or meant.is_multicast or meant.is_reserved or is_site_local:
            raise Rejected(
                f"{address} is not a public address",
                reason="address",
                hint=f"if it is meant: antiphon worker --post-to HOST --post-to {address}",
            )


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _matches(one: _Entry, target: Target) -> bool:
    if (one.scheme, one.port) != (target.scheme, target.port):
        return False
    if one.host.startswith("*."):
        return target.host.endswith(one.host[1:])
    return one.host == target.host


def _parts(url: str) -> Target | None:
    """The parts of a URL; None unless it is one for HTTP, with nothing in it that could mislead."""
    if (
        len(url) > MAX_URL
        or not url.isascii()
        or any(char <= " " or char in "\\\x7f" for char in url)
    ):
        return None
    try:
        parts = urlsplit(url)
        port, host = parts.port, (parts.hostname or "").rstrip(".")
    except ValueError:
        return None
    is_plain = parts.username is None and parts.password is None
    if parts.scheme not in PORTS or not host or not is_plain:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, PORTS[parts.scheme] if port is None else port, path)


def _is_host(host: str, *, wild: bool = False) -> bool:
    if _network(host) is not None:
        return True
    # A last part of digits is an IPv4 address in disguise: 127.1, 0x7f.1.
    is_name = _NAME.fullmatch(host) is not None and not host.rpartition(".")[2][:1].isdigit()
    return is_name and (wild or not host.startswith("*"))


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        return None
