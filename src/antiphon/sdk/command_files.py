"""Which files of this machine a command names although nobody gave them to it.

A command runs elsewhere, in a directory that holds only its inputs. A program that is a relative
path (`./backup.sh`) can only be an input, so it becomes one. An argument that is the name of a
file here may be meant to be read, written or printed: only its author knows.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from antiphon.errors import Misconfigured

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest


class Named(NamedTuple):
    """Files by the names under which the command would find them."""

    program: str
    """The program, which becomes an input; empty if it needs none."""
    argument: str
    """The first argument that is a file here and neither an input nor an output; or empty."""


def files_named(
    words: Sequence[str],
    folder: Path,
    *,
    cwd: str = "",
    inputs: Collection[str] = (),
    outputs: Collection[str] = (),
) -> Named:
    """What the command names of a folder here; `Misconfigured` if its program is nowhere."""
    given = {posixpath.normpath(one) for one in inputs}
    if cwd.startswith("/"):  # the worker refuses it
        return Named("", "")

    def name_of(word: str) -> str:
        return posixpath.normpath(posixpath.join(cwd, word))

    def is_unknown_file(word: str) -> bool:
        name = name_of(word)
        if not word or word.startswith("/") or name in given or name.startswith("../"):
            return False
        return _is_file(folder / name) and not _is_output(name, outputs)

    first, program = words[0], ""
    if "/" in first and not first.startswith("/") and name_of(first) not in given:
        program = name_of(first)
        if program.startswith("../"):
            raise Misconfigured(
                f"{first} is outside this directory, and a command sees only its own files",
                hint=f"give it as an input: --input {first}, then ./{Path(first).name}",
            )
        if not _is_file(folder / program):
            raise Misconfigured(
                f"there is no file {folder / program}, and {first} is no input of the command",
                hint="a command sees only its inputs: --input PATH=NAME gives it a file",
            )
    return Named(program, next((name_of(one) for one in words[1:] if is_unknown_file(one)), ""))


def _is_file(path: Path) -> bool:
    with suppress(OSError, ValueError):  # too long for a name, or no name at all
        return path.is_file()
    return False


def _is_output(name: str, globs: Collection[str]) -> bool:
    from antiphon.sandbox.output_files import matches  # loads the whole sandbox

    return any(matches(one, tuple(name.split("/"))) for one in globs)


def manifest_files(content: Manifest, files: Sequence[tuple[Path, str]], folder: Path) -> Named:
    """The same for a command's manifest, and the files that come with it."""
    kept = () if content.inputs is UNSET else content.inputs
    named = [name for one in kept if isinstance(name := getattr(one, "name", None), str)]
    return files_named(
        [*content.command, *content.args],
        folder,
        cwd=content.cwd or "",
        inputs=[*named, *(name for _, name in files)],
        outputs=() if content.outputs is UNSET else content.outputs,
    )


__all__ = ["Named", "files_named", "manifest_files"]
