"""Commands on a mesh in memory, run by a worker in a sandbox."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Mesh
from antiphon.core import manifest
from antiphon.runtime.caller.submission import Ended, wait_for_end
from antiphon.sandbox import probe
from antiphon.sdk.call_options import CallOptions

KIND = "command"
ONCE = CallOptions(attempts=1)


def require_sandbox() -> None:
    """Not a quiet skip where a sandbox is missing, unless somebody said so."""
    found = probe()
    if found.can_sandbox:
        return
    why = f"commands cannot run in a sandbox here: {'; '.join(found.problems)}"
    if os.environ.get("ANTIPHON_TESTS_WITHOUT_SANDBOX") == "1":
        pytest.skip(why)
    pytest.fail(why)


@asynccontextmanager
async def a_mesh_with_commands(**worker: Any) -> AsyncIterator[Mesh]:
    async with (
        Mesh.open(engine="memory") as mesh,
        mesh.worker(**{"commands": [KIND], **worker}),
    ):
        yield mesh


async def ran(mesh: Mesh, *words: str, **fields: Any) -> Ended:
    """Run a command to its end, whatever that is."""
    options = fields.pop("options", ONCE)
    content = manifest.author({"command": list(words), "timeout": 30, **fields})
    handle = await mesh.submit_manifest(KIND, content, options=options)
    return await wait_for_end(mesh.connection.session, handle.kind, handle.id)


async def shell(mesh: Mesh, script: str, **fields: Any) -> Ended:
    return await ran(mesh, "sh", "-c", script, **fields)


async def stored(mesh: Mesh, path: Path, name: str) -> dict[str, Any]:
    """A file as an input."""
    kept = await mesh.artifacts.keep(path, name, inline_bytes=-1)
    return {"kind": "blobptr", "algo": "blake3", "hash": kept.hash, "name": name}


def texts(ended: Ended) -> dict[str, str | None]:
    return {output.name: output.text for output in ended.outputs}
