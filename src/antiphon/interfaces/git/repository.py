"""One bare repository, through the installed `git`: objects in packs, refs in transactions.

Measured for 10,000 jobs (docs/do/git.md), packs of our own into `git index-pack` were
faster than `git fast-import`, and than the two libraries that Python programs use.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from antiphon.errors import Corrupt, Misconfigured
from antiphon.interfaces.git.objects import Objects

LOOSE_OBJECTS: Final = 100
"""Fewer are stored one by one: a pack for each would be many packs."""
MESSAGE_BYTES: Final = 400
_NEEDED: Final = (2, 29)
"""The first version whose servers can hand a pushed ref to a program."""


class Repository:
    """A bare repository on this machine's disk."""

    def __init__(self, path: Path, algorithm: str) -> None:
        """Use `open_repository`."""
        self.path = path
        self.algorithm = algorithm

    async def git(self, *words: str, given: bytes = b"") -> bytes:
        """Run git here; its output. `Corrupt` with git's words if it fails."""
        code, out, err = await self.try_git(*words, given=given)
        if code != 0:
            said = err.decode(errors="replace").strip()[:MESSAGE_BYTES]
            raise Corrupt(
                f"git {words[0]} failed in {self.path}: {said or f'exit code {code}'}",
                hint=f"git -C {self.path} fsck",
            )
        return out

    async def try_git(self, *words: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run git here: its exit code, output and errors."""
        done = await asyncio.to_thread(_run, ["git", "-C", str(self.path), *words], given)
        return done.returncode, done.stdout, done.stderr

    async def refs(self, *below: str) -> dict[str, str]:
        """The refs below these names and what they point to."""
        listed = await self.git("for-each-ref", "--format=%(objectname) %(refname)", *below)
        # Names may have any bytes, and characters that Python takes for the end of a line.
        lines = listed.decode(errors="replace").split("\n")
        pairs = (line.partition(" ") for line in lines if line)
        return {name: target for target, _, name in pairs}

    async def targets(self, names: Iterable[str]) -> dict[str, str]:
        """What these refs point to, without those that do not exist: one look-up each."""
        wanted = list(names)
        asked = "".join(f"{one}\n" for one in wanted).encode()
        out = await self.git("cat-file", "--batch-check=%(objectname)", given=asked)
        lines = out.decode().splitlines()
        pairs = zip(wanted, lines, strict=True)
        return {name: line for name, line in pairs if " " not in line}

    async def store(self, objects: Objects) -> None:
        """Add objects; those that it has already are no error."""
        if not len(objects):
            return
        pack = await asyncio.to_thread(objects.pack)
        if len(objects) < LOOSE_OBJECTS:
            await self.git("unpack-objects", "-q", "--strict", given=pack)
        else:
            await self.git("index-pack", "--stdin", "--strict", given=pack)

    async def update(self, changes: Iterable[str]) -> None:
        """Change refs, all or none: lines of `git update-ref --stdin`."""
        lines = list(changes)
        if lines:
            text = "".join(f"{one}\n" for one in ["start", *lines, "prepare", "commit"])
            await self.git("update-ref", "--stdin", given=text.encode())

    async def objects_named(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of objects, by what names them; without those that are not there."""
        wanted = list(names)
        asked = "".join(f"{one}\n" for one in wanted).encode()
        out = memoryview(await self.git("cat-file", "--batch", given=asked))
        found: dict[str, bytes] = {}
        at = 0
        for name in wanted:
            end = at + bytes(out[at : at + 4096]).index(b"\n")
            words = bytes(out[at:end]).decode(errors="replace").split()
            at = end + 1
            if not words[-1].isdigit():
                continue  # "missing", or "ambiguous"
            size = int(words[-1])
            found[name] = bytes(out[at : at + size])
            at += size + 1
        return found

    async def configure(self, values: Mapping[str, str]) -> None:
        """Set values in the repository's own configuration, in place of all that were there."""
        for name, value in values.items():
            await self.git("config", "--replace-all", name, value)


def _run(words: list[str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - git, and words of our own
        words, input=given, capture_output=True, check=False, env=git_environment()
    )


def git_environment() -> dict[str, str]:
    """Git's environment: what the caller's own repository set there must not reach another one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


async def open_repository(path: Path, *, create: bool = False) -> Repository:
    """The repository at a path; made there, bare, where nothing is and `create` says so."""
    if shutil.which("git") is None:
        raise Misconfigured("git is not installed", hint="apt install git")
    await _check_version()
    path, is_free = await asyncio.to_thread(_look, path)
    here = Repository(path, "sha1")
    if create and is_free:
        await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
        await here.git("init", "--quiet", "--bare")
    code, out, _ = await here.try_git("rev-parse", "--absolute-git-dir", "--show-object-format")
    lines = out.decode().splitlines()
    if code != 0 or not lines:
        raise Misconfigured(
            f"{path} is not a Git repository", hint=f"git init --bare {path}, or name another one"
        )
    folder, algorithm = lines[0], lines[-1]
    return Repository(Path(folder), algorithm)


def _look(path: Path) -> tuple[Path, bool]:
    """The whole path, and whether nothing is there."""
    whole = path.resolve()
    if whole.exists() and not whole.is_dir():
        raise Misconfigured(f"{path} is not a directory")
    return whole, not whole.exists() or not any(whole.iterdir())


async def _check_version() -> None:
    out = (await Repository(Path("/"), "sha1").git("version")).decode()
    found = re.search(r"(\d+)\.(\d+)", out)
    if found is None or (int(found[1]), int(found[2])) < _NEEDED:
        needed = ".".join(map(str, _NEEDED))
        raise Misconfigured(f"this is {out.strip()}; version {needed} or newer is needed")
