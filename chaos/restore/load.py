"""What a member does with the mesh all the time, and what it was told each time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.locks.state import lock_key
from antiphon.core.families.memory.state import document_key
from antiphon.core.record.branches import LaneKey
from antiphon.sdk.mesh import Mesh

KIND: Final = "chaos.restored"
SCOPE: Final = "chaos"
SPACE: Final = "chaos"
SHOP: Final = "shelf"
"""The agent whose inbox nobody reads until the end."""


class Acknowledged(Struct, frozen=True, kw_only=True):
    """One thing that the mesh confirmed."""

    what: str
    key: LaneKey | None = None
    """Its lane, if it is a record."""
    name: str = ""
    """A message's text, or a stored value's digest."""


class Load:
    """Jobs, locks, documents, messages and stored values, one after the other."""

    def __init__(self, mesh: Mesh, directory: Path) -> None:
        self._mesh = mesh
        self._file = directory / "value"
        self.acknowledged: list[Acknowledged] = []

    async def run(self, until: asyncio.Event) -> None:
        """Go on until told to stop, and finish what was begun."""
        number = 0
        while not until.is_set():
            number += 1
            await self.round(number)

    async def round(self, number: int) -> None:
        """One of each."""
        mesh, told = self._mesh, self.acknowledged
        job = await mesh.submit(KIND, number)
        told.append(Acknowledged(what="job", key=job_key(KIND, job.id)))
        async with mesh.locks.hold(f"file-{number}", scope=SCOPE):
            told.append(Acknowledged(what="lock", key=lock_key(SCOPE, f"file-{number}")))
        await mesh.memory[SPACE].put(f"page-{number}", {"number": number})
        told.append(Acknowledged(what="document", key=document_key(SPACE, f"page-{number}")))
        address = mesh.messages.address.rpartition("/")[0] + f"/{SHOP}"
        await mesh.messages.send(address, f"note {number}")
        told.append(Acknowledged(what="message", name=f"note {number}"))
        self._file.write_bytes(b"%d" % number * 1000)
        kept = await mesh.artifacts.keep(self._file, f"value-{number}", inline_bytes=0)
        told.append(Acknowledged(what="value", name=kept.hash))
        await job.result("120s")
