"""The operator's token: one static secret per state directory, for whoever runs the machine.

A metrics scraper cannot sign, so it needs a secret that stays the same. It comes from
`ANTIPHON_HTTP_TOKEN`, or from the file `http-token` in the state directory, which is made on first
use and only this user can read. No log line, error or `repr` contains it.
"""

from __future__ import annotations

import hmac
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured
from antiphon.files import replace_file
from antiphon.runtime.identity.host_clock import SystemEntropy

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "http-token"
SECRET_BYTES: Final = 32
LEAST, MOST = 16, 256
"""Characters of a token that somebody wrote into the file."""
_OTHERS: Final = 0o077


class OperatorToken:
    """Compares what a client sent with the secret; keeps only its digest."""

    def __init__(self, secret: str) -> None:
        self._digest = sha256(secret.encode()).digest()

    def matches(self, text: str) -> bool:
        """Whether it is the secret, in a time that does not depend on the text."""
        return hmac.compare_digest(self._digest, sha256(text.encode()).digest())


def operator_token(folder: Path, given: str | None) -> OperatorToken:
    """The token that was given, or the one in the state directory, made if there is none."""
    return OperatorToken(given if given is not None else _stored(folder / FILE))


def _stored(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        secret = SystemEntropy().token(SECRET_BYTES).hex()
        replace_file(path, secret.encode() + b"\n")
        return secret
    except OSError as problem:
        raise Misconfigured(f"{path} cannot be read: {problem.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_mode & _OTHERS:
            raise Misconfigured(
                f"{path} contains the operator's token, and other users of this machine could"
                " read it",
                hint=f"chmod 600 {path}",
            )
        secret = file.read(MOST + 2).decode("ascii", "replace").strip()
    if not (LEAST <= len(secret) <= MOST and secret.isprintable() and secret.isascii()):
        raise Misconfigured(
            f"{path} is not a token: {LEAST} to {MOST} letters and digits on one line",
            hint=f"rm {path}; the next start makes a new one",
        )
    return secret


__all__ = ["FILE", "OperatorToken", "operator_token"]
