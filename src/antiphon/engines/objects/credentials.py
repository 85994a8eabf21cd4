"""The credentials file that other tools of the same store read too.

Only keys in the file itself are used. What else a profile may name (a role, a sign-on, a program
to run) is left to the tools that know it: they can set the environment.
"""

from __future__ import annotations

import os
from configparser import ConfigParser
from configparser import Error as Unreadable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3CredentialProvider

READ_AGAIN_S: Final = 300
"""A key that was changed in the file is used this much later at the latest."""
HINT: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile with both"
)
_TAKES_OVER: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""With any of these set, the client finds its credentials by itself."""


class ProfileKeys:
    """One profile of a credentials file, read again at intervals."""

    def __init__(self, path: Path, profile: str) -> None:
        self._path = path
        self._profile = profile

    def __call__(self) -> S3Credential:
        """What the client signs with."""
        found = self.read()
        if found is None:
            raise Misconfigured(f"{self._path} has no keys for {self._profile!r}", hint=HINT)
        return found

    def read(self) -> S3Credential | None:
        """The profile's keys, or None if it has none."""
        # Values are secrets: a `%` in one is not a reference, and an error must not quote a line.
        parser = ConfigParser(interpolation=None)
        is_readable = True
        try:
            parser.read_string(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, Unreadable, UnicodeDecodeError):
            is_readable = False
        if not is_readable:
            raise Misconfigured(f"{self._path} cannot be read as a credentials file", hint=HINT)
        if not parser.has_section(self._profile):
            return None
        section = parser[self._profile]
        access, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
        if not access or not secret:
            return None
        return {
            "access_key_id": access,
            "secret_access_key": secret,
            "token": section.get("aws_session_token") or None,
            "expires_at": datetime.now(UTC) + timedelta(seconds=READ_AGAIN_S),
        }


def find_provider() -> S3CredentialProvider | None:
    """The file's profile that applies here; None: the client finds its credentials itself."""
    if any(os.environ.get(name) for name in _TAKES_OVER):
        return None
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(named).expanduser() if named else Path.home() / ".aws" / "credentials"
    profile = os.environ.get("AWS_PROFILE")
    keys = ProfileKeys(path, profile or "default")
    if keys.read() is not None:
        return keys
    if profile:
        raise Misconfigured(f"{path} has no keys for the profile {profile!r}", hint=HINT)
    return None
