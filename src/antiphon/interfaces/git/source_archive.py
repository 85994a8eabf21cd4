"""The files of a commit as a tar archive: the same bytes on every machine, with any version of git.

So whoever has the commit can make the archive again, and compare its digest with what a push's job
stored. Only what the commit says is in it: no attributes of the repository leave files out or
change them. Submodules are left out. `git get-tar-commit-id` reads the commit's id from it.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from typing import IO, TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository

MAX_FILES: Final = 50_000
MAX_BYTES: Final = 256 * 1024 * 1024
BYTES_AT_ONCE: Final = 16 * 1024 * 1024
FILES_AT_ONCE: Final = 2_000
_MODES: Final = {"100644": 0o644, "100755": 0o755, "120000": 0o777}
_LINK: Final = "120000"


class _File(Struct, frozen=True):
    mode: str
    id: str
    size: int
    path: str


async def write_source(repository: Repository, commit: str, to: IO[bytes]) -> None:
    """Write a commit's files as an archive; `Malformed` if they are too many or too large."""
    files = await _files(repository, commit)
    at_s = int((await repository.git("show", "-s", "--format=%ct", commit)).split()[0])
    with tarfile.open(
        fileobj=to, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": commit}
    ) as archive:
        for some in _slices(files):
            contents = await repository.objects_named({one.id for one in some})
            await asyncio.to_thread(_add, archive, some, contents, max(at_s, 0))


async def _files(repository: Repository, commit: str) -> list[_File]:
    listed = await repository.git("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    found: list[_File] = []
    for line in listed.decode(errors="surrogateescape").split("\0")[:-1]:
        head, _, path = line.partition("\t")
        mode, _, id_, length = head.split()
        if mode in _MODES:
            found.append(_File(mode, id_, int(length), path))
    size = sum(one.size for one in found)
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise Malformed(
            f"the commit {commit[:8]} has {len(found):,} files and {size:,} bytes; at most"
            f" {MAX_FILES:,} and {MAX_BYTES:,} can be given to jobs",
            reason="size",
        )
    return found


def _slices(files: list[_File]) -> Iterator[list[_File]]:
    """Few enough to be in memory at once."""
    some: list[_File] = []
    size = 0
    for one in files:
        if some and (size + one.size > BYTES_AT_ONCE or len(some) == FILES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append(one)
        size += one.size
    if some:
        yield some


def _add(
    archive: tarfile.TarFile, files: list[_File], contents: dict[str, bytes], at_s: int
) -> None:
    for one in files:
        data = contents[one.id]
        entry = tarfile.TarInfo(one.path)
        entry.mode, entry.mtime = _MODES[one.mode], at_s
        if one.mode == _LINK:
            entry.type, entry.linkname = tarfile.SYMTYPE, data.decode(errors="surrogateescape")
            archive.addfile(entry)
        else:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


async def source_digest(repository: Repository, commit: str) -> str:
    """The digest of a commit's archive, as the log names content."""
    from blake3 import blake3

    sink = _Digest(blake3())
    await write_source(repository, commit, cast("IO[bytes]", sink))
    return f"blake3:{sink.state.hexdigest()}"


class _Digest(io.RawIOBase):
    """A file whose content is only hashed."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        self.state.update(data)
        self._size += len(data)
        return len(data)


async def write_source_file(repository: Repository, commit: str, path: Path) -> None:
    """The same, into a new file."""
    with path.open("xb") as file:
        await write_source(repository, commit, file)
