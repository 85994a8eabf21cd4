"""Credentials of a captured request: what of it is told, and which values must not be.

Only headers that `TOLD_HEADERS` names are kept. The values of all others that may be credentials,
those of the query and those within the address are looked for in what was sent and what came back,
and marked there: a server may repeat them in an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from antiphon.core.inference.snapshot import TOLD_HEADERS

SECRET_MARK: Final = b"[secret]"
LEAST_SECRET: Final = 6
"""A shorter value is no credential, and would be found in half of all texts."""
MAX_HEADER: Final = 256
_PUBLIC: Final = frozenset(
    {
        *TOLD_HEADERS,
        "accept",
        "accept-encoding",
        "accept-language",
        "connection",
        "content-encoding",
        "content-length",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
"""Headers whose values are no secrets, also if they are not told."""
_PUBLIC_PREFIXES: Final = ("x-stainless-",)
"""Of the official clients, about themselves."""


def plain_url(url: str) -> str:
    """A URL without its query, its fragment and its credentials."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def told_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The few headers that a snapshot has."""
    found = ((name.lower(), value[:MAX_HEADER]) for name, value in headers)
    return {name: value for name, value in found if name in TOLD_HEADERS}


def secrets_in(url: str, headers: Mapping[str, str]) -> tuple[bytes, ...]:
    """The values of a request that must not be told: of its credentials, its query, its cookies."""
    parts = urlsplit(url)
    found = [value for _, value in parse_qsl(parts.query)]
    found += [parts.password or "", parts.username or ""]
    for name, value in headers.items():
        lower = name.lower()
        if lower not in _PUBLIC and not lower.startswith(_PUBLIC_PREFIXES):
            # `Bearer …` and `Basic …`: the word before the value is no part of it.
            found += [value, value.rpartition(" ")[2]]
            found += [one.partition("=")[2].strip() for one in value.split(";")]
    kept = {one.encode() for one in found if len(one) >= LEAST_SECRET}
    return tuple(sorted(kept, key=len, reverse=True))


def without_secrets(data: bytes, secrets: Iterable[bytes]) -> tuple[bytes, int]:
    """Bytes in which these values are marked, and how often one was found."""
    count = 0
    for secret in secrets:
        if secret in data:
            count += data.count(secret)
            data = data.replace(secret, SECRET_MARK)
    return data, count
