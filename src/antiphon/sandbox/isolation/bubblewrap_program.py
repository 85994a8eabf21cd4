"""Finds bubblewrap: in the usual folders, or on this user's PATH if nobody else can change it.

A user who could replace the program that makes the sandbox would run as the worker. So a PATH
entry counts only if it is an absolute path, and if the file and every directory above it belong
to root or to this user and nobody else can write to them. A sticky directory may be writable
(a Nix store is): what is in it can be replaced by its owner only.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

USUAL: Final = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin"
_BWRAP: Final = "bwrap"


def find_bwrap(usual: str = USUAL) -> tuple[str | None, str]:
    """Bubblewrap, or None and what is wrong with the one that was found: empty if none was."""
    found = shutil.which(_BWRAP, path=usual)
    if found is not None:
        return found, ""
    why = ""
    for folder in os.get_exec_path():
        # An empty or relative entry means the current directory.
        found = shutil.which(_BWRAP, path=folder) if Path(folder).is_absolute() else None
        if found is None:
            continue
        loose = _changeable(Path(found))
        if loose is None:
            return found, ""
        why = why or f"{found} is not used, because other users could change {loose}"
    return None, why


def _changeable(program: Path) -> Path | None:
    """What on the way to a program others than root and this user could change; None: nothing."""
    real = program.resolve()
    trusted = {0, os.geteuid()}
    for path in (program, *program.parents, real, *real.parents):
        try:
            status = path.stat()
        except OSError:
            return path
        is_open = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
        if status.st_uid not in trusted or (is_open and not is_sticky):
            return path
    return None
