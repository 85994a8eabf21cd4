"""Files that only their owner can read, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o600
PUBLIC = 0o644
DIRECTORY = 0o700


def replace_file(path: Path, text: str, *, mode: int = PRIVATE) -> None:
    """Write beside it, sync, rename: a crash leaves the old file or the new one.

    The mode holds from the first byte on, whatever an older file at that place had.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
