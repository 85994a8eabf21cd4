"""Commands on the submitter's side: what to run as a manifest, with its files on the mesh.

    content = await with_inputs(
        mesh.artifacts, command(["wc", "-l", "data.csv"]), [Path("data.csv")]
    )
    handle = await mesh.submit_manifest("command", content)
    ended = await handle.end()

The end has the exit code, the outputs and the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.manifest import BlobInput, Manifest, author
from antiphon.core.proof.output import Output
from antiphon.errors import Malformed
from antiphon.sdk.defaults import TIMEOUT_S

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.store import OnProgress
    from antiphon.runtime.identity.state_directory import StateDirectory

_AS_A_BLOB: Final = -1
"""An input is named by its digest, so even the smallest one is stored."""

Given = Path | tuple[Path, str]
"""A file, or a file and the name under which the command finds it."""
Telling = Callable[[str], "OnProgress"]
"""Returns the progress callback for one file."""


class Keeps(Protocol):
    """Where files are stored: `mesh.artifacts`."""

    async def keep(
        self,
        path: Path,
        name: str,
        *,
        on_progress: OnProgress | None = ...,
        inline_bytes: int = ...,
    ) -> Output:
        """Store a file."""


def command(  # noqa: PLR0913 - one argument per field of a manifest
    words: Sequence[str],
    *,
    outputs: Sequence[str] = (),
    secrets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    network: bool = False,
    timeout: int | str = TIMEOUT_S,
) -> Manifest:
    """A command's manifest, without inputs."""
    if words and words[0].startswith("@"):
        raise Malformed(
            f"{words[0]} names a registered handler, not a program",
            reason="manifest",
            hint=f"submit it with 'antiphon submit {words[0][1:]}'",
        )
    fields: dict[str, Any] = {
        "command": list(words),
        "timeout": timeout,
        "outputs": list(outputs),
        "secrets": list(secrets),
        "env": dict(env or {}),
        "cwd": cwd,
        "network": network,
    }
    return author({name: value for name, value in fields.items() if value or name == "timeout"})


async def with_inputs(
    artifacts: Keeps,
    content: Manifest,
    inputs: Sequence[Given],
    *,
    telling: Telling | None = None,
) -> Manifest:
    """The same command with more inputs, which are on the mesh when this returns."""
    kept: list[BlobInput] = []
    for one in inputs:
        path, name = one if isinstance(one, tuple) else (one, one.name)
        stored = await _stored(artifacts, path, name, telling)
        kept.append(BlobInput(algo="blake3", hash=stored.hash, size=stored.size, name=name))
    if not kept:
        return content
    before = () if content.inputs is UNSET else tuple(content.inputs)
    return replace(content, inputs=(*before, *kept))


def with_outputs(content: Manifest, globs: Sequence[str]) -> Manifest:
    """The same command with more outputs."""
    if not globs:
        return content
    before = () if content.outputs is UNSET else tuple(content.outputs)
    return replace(content, outputs=(*before, *(one for one in globs if one not in before)))


async def _stored(artifacts: Keeps, path: Path, name: str, telling: Telling | None) -> Output:
    return await artifacts.keep(
        path,
        name,
        on_progress=telling(name) if telling is not None else None,
        inline_bytes=_AS_A_BLOB,
    )


def sandbox_status(home: StateDirectory | None) -> tuple[bool, str, str]:
    """Whether this machine can run commands in a sandbox; a sentence, and what to do. Blocks."""
    from antiphon.assembly.command_executor import probe
    from antiphon.sdk.worker import hidden_from_commands

    found = probe(hidden=hidden_from_commands(home))
    if not found.can_sandbox or found.tools is None:
        return False, "; ".join(found.problems), "; ".join(found.remedies)
    words = f"commands run in a sandbox with bubblewrap {found.tools.version}"
    return True, "; ".join([words, *found.notes]), ""


__all__ = ["command", "sandbox_status", "with_inputs", "with_outputs"]
