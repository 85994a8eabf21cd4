"""A worker's secrets: one file each, in a directory that only this user can read.

Commands ask for them by name. This module returns a path, for the code that mounts the file for
the command. It never reads the content, and no message contains it.
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
        """None means that there are no secrets. The directory need not exist yet."""
        self._folder = folder

    def check(self) -> None:
        """`Misconfigured` if the directory exists and others can read it."""
        if self._folder is None:
            return
        try:
            found = self._folder.stat()
        except FileNotFoundError:
            return
        except OSError as problem:
            raise Misconfigured(f"{self._folder} cannot be read: {problem.strerror}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise Misconfigured(
                f"{self._folder} is not a directory", hint="make it one, with one file per secret"
            )
        if not _is_private(found):
            raise Misconfigured(
                f"{self._folder} contains secrets, and other users of this machine could read them",
                hint=f"chmod 700 {self._folder}",
            )

    def find(self, name: str) -> Path:
        """The file of a secret; `Misconfigured` if it does not exist, or others can read it.

        The submitter may see the message, so only the hint says where the file is.
        """
        if self._folder is None:
            raise _missing(name, "a directory, and set ANTIPHON_SECRETS to it")
        path = self._folder / name
        try:
            found = path.lstat()
        except OSError:
            raise _missing(name, str(path)) from None
        if not stat.S_ISREG(found.st_mode):
            raise Misconfigured(f"the secret {name!r} is not a plain file")
        if not _is_private(found) or not _is_private(self._folder.stat()):
            raise Misconfigured(
                f"other users of the worker's machine could read the secret {name!r}",
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
