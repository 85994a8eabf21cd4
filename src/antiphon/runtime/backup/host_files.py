"""Which files of a host's state directory go into its backup, and which with its keys.

Everything else follows from them: the replica from the log, the server's certificate from its
authority, caches from what is stored.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from antiphon.errors import Corrupt
from antiphon.files import replace_file

HOST: Final = (
    "gate/members/*.json",
    "gate/tickets/open/*",
    "gate/tickets/used/*",
    "server/revoked.json",
    "server/listen.json",
)
"""What the gate knows, and where the server listens. None of it lets anybody in without a key."""
KEYS: Final = (
    "keys/*.key",
    "keys/*.mark",
    "access.json",
    "server/accounts.json",
    "server/credentials.json",
    "server/tls/*",
)
MAX_FILE_BYTES: Final = 1024 * 1024


def host_files(home: Path) -> dict[str, bytes]:
    """What belongs into the backup, by its path in the state directory."""
    return _found(home, HOST)


def key_files(home: Path) -> dict[str, bytes]:
    """What belongs into the file of keys."""
    return _found(home, KEYS)


def _found(home: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for pattern in patterns:
        for path in sorted(home.glob(pattern)):
            if path.is_file() and path.name[:1] != ".":
                found[path.relative_to(home).as_posix()] = path.read_bytes()
    return found


def put_back(home: Path, files: dict[str, bytes], *, patterns: tuple[str, ...]) -> None:
    """Write files of a backup into an empty state directory; only those that belong there."""
    for name, data in checked_files(files, patterns=patterns).items():
        replace_file(home / name, data)


def checked_files(files: dict[str, bytes], *, patterns: tuple[str, ...]) -> dict[str, bytes]:
    """These files, if each may be put back; else `Corrupt`."""
    for name, data in files.items():
        if not any(_matches(name, pattern) for pattern in patterns):
            raise Corrupt(f"{name!r} does not belong into a backup")
        if len(data) > MAX_FILE_BYTES:
            raise Corrupt(f"{name!r} is larger than any file of a host")
    return files


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(
        part not in {"", ".", ".."} and fnmatchcase(part, want)
        for part, want in zip(parts, wanted, strict=True)
    )
