"""Which program a command starts: the file that the command will find, and that file's digests."""

from __future__ import annotations

import hashlib
import os
import platform
import posixpath
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Final

from blake3 import blake3

from antiphon.core.proof.statement import Digests, Runner
from antiphon.runtime.identity.host_clock import installed_version
from antiphon.sandbox import Command, environment_of

MAX_BYTES: Final = 1 << 30
"""A program larger than this gets no digest."""
_BLOCK: Final = 1 << 20
_WORK: Final = "/job/"
_IN_SIGHT: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")
_NAME: Final = 255


def runner_of(command: Command, *, sandboxed: bool) -> Runner:
    """The proof's description of the program: its name, and its digest where it is one file."""
    path = _find(command, sandboxed=sandboxed)
    digests = None if path is None else _digests(path)
    name = command.argv[0] if path is None or path in _inputs(command) else str(path)
    return Runner(
        name=name.encode("utf-8", "replace").decode()[:_NAME],
        version=installed_version(),
        platform=f"{platform.system().lower()}-{platform.machine()}",
        digest=digests,
    )


def _inputs(command: Command) -> list[Path]:
    return [path for _, path in command.inputs]


def _find(command: Command, *, sandboxed: bool) -> Path | None:
    word = command.argv[0]
    if "/" in word and (not word.startswith("/") or word.startswith(_WORK)):
        name = posixpath.normpath(posixpath.join(_WORK, command.cwd or "", word))
        return dict(command.inputs).get(name.removeprefix(_WORK))
    found = shutil.which(word, path=environment_of(command)["PATH"])
    if found is None or not found.startswith("/"):
        return None
    path = Path(found).resolve()
    return path if not sandboxed or str(path).startswith(_IN_SIGHT) else None


def _digests(path: Path) -> Digests | None:
    try:
        found = path.stat()
        if found.st_size > MAX_BYTES:
            return None
        return _hashed(str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=256)
def _hashed(path: str, _inode: int, _size: int, _changed_ns: int) -> Digests:
    """Both digests; computed once for each content of a path, as the file's metadata shows it."""
    ours, theirs = blake3(), hashlib.sha256()
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while block := os.read(file, _BLOCK):
            ours.update(block)
            theirs.update(block)
    finally:
        os.close(file)
    return Digests(blake3=ours.hexdigest(), sha256=theirs.hexdigest())
