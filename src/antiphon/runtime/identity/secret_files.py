"""A worker's secrets: one file each, in a directory that nobody else can look into.

Commands ask for them by name. What leaves this module is a path, for whoever shows the file to
the command; the content is never read here, and no message holds it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from antiphon.errors import Misconfigured

MAX_BYTES: Final = 1 << 20
_OTHERS: Final = 0o077


class SecretFiles:
    """The secrets of one machine."""

    def __init__(self, folder: Path | None) -> None:
        """Without a directory there are none; one that is not there yet is fine, too."""
        self._folder = folder

    def check(self) -> None:
        """`Misconfigured` if there is a directory and others can look into it."""
        if self._folder is None:
            return
        try:
            found = self._folder.stat()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise Misconfigured(f"{self._folder} cannot be looked at: {problem.strerror}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise Misconfigured(
                f"{self._folder} is not a directory", hint="put each secret into a file in one"
            )
        if not _is_private(found):
            raise Misconfigured(
                f"{self._folder} holds secrets, and others on this machine could reach them",
                hint=f"chmod 700 {self._folder}",
            )

    def find(self, name: str) -> Path:
        """The file of a secret; `Misconfigured` if it is not there, or not only this user's.

        The message may go to whoever called the job; where the file lies is in the hint alone.
        """
        if self._folder is None:
            raise _missing(name, "a directory, and that into ANTIPHON_SECRETS")
        path = self._folder / name
        try:
            found = path.lstat()
        except OSError:
            raise _missing(name, str(path)) from None
        if not stat.S_ISREG(found.st_mode):
            raise Misconfigured(f"the secret {name!r} is not a plain file")
        if not _is_private(found) or not _is_private(self._folder.stat()):
            raise Misconfigured(
                f"others on the worker's machine could reach the secret {name!r}",
                hint=f"chmod 700 {self._folder}; chmod 600 {path}",
            )
        if found.st_size > MAX_BYTES:
            raise Misconfigured(f"the secret {name!r} is larger than {MAX_BYTES >> 20} MiB")
        return path


def _is_private(found: os.stat_result) -> bool:
    return not found.st_mode & _OTHERS and found.st_uid in (os.getuid(), 0)


def _missing(name: str, where: str) -> Misconfigured:
    return Misconfigured(
        f"this worker has no secret called {name!r}", hint=f"put it into {where}, mode 600"
    )
