"""One HTTP exchange of a handler, as it was captured: what a snapshot is made of.

The values of credentials are taken out where it is captured, before it goes anywhere else
(`antiphon.runtime.inference.credentials`).
"""

from __future__ import annotations

from msgspec import Struct


class Exchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and its answer, without credentials."""

    library: str
    method: str
    url: str
    """Without its query, its fragment and its credentials."""
    request: bytes
    response: bytes = b""
    request_cut: tuple[str, int] | None = None
    """Digest and size of a request that is too long, and then not here; size 0: not known."""
    response_cut: tuple[str, int] | None = None
    request_headers: dict[str, str] = {}
    response_headers: dict[str, str] = {}
    status: int | None = None
    is_complete: bool = False
    """Whether the answer was read to its end."""
    error: str = ""
    started: str
    ended: str
    duration_ms: int = 0
    first_byte_ms: int | None = None
    secrets: int = 0
    """How often the value of a credential was taken out."""
