"""An agent that writes the documents, in a process of its own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec import Struct

from antiphon import assembly
from antiphon.core.families.memory.ops import MAX_SIBLINGS, Inline, Strategy
from antiphon.core.families.memory.state import Document
from antiphon.core.families.memory.writing import Wanted
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Rejected, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.memory.documents import Documents, Settled
from chaos.cluster.child_process import begin

SPACE: Final = "chaos.notes"
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)
RESOLVED_FROM: Final = MAX_SIBLINGS // 2
"""An agent that sees so many siblings resolves all of them at once."""


class AgentConfig(Struct, frozen=True, kw_only=True):
    """How such a process works."""

    home: Path
    key: str
    """The name of its key; whoever takes its place has the same."""
    journal: Path
    log: Path
    writes: int
    """Under each strategy."""


class Deed(Struct, frozen=True, array_like=True):
    """What an agent was told about a put, as its journal has it."""

    strategy: Strategy
    number: int
    outcome: str
    """Empty: it is about to write."""
    revision: int = 0
    op_id: str = ""


def deeds_of(journal: Path) -> list[Deed]:
    """The journal of an agent; a last line that was cut off is left out."""
    text = journal.read_bytes() if journal.exists() else b""
    return [msgspec.json.decode(line, type=Deed) for line in text.split(b"\n")[:-1]]


class Agent:
    """Writes each of the documents in turn, so that two agents always meet."""

    def __init__(self, config: AgentConfig, documents: Documents, journal: int) -> None:
        self._config = config
        self._documents = documents
        self._journal = journal
        self._seen: dict[Strategy, int] = {}
        """The revision from which it makes its next value; it does not look before it writes."""

    async def run(self) -> None:
        begun = dict.fromkeys(STRATEGIES, 0)
        for deed in deeds_of(self._config.journal):
            begun[deed.strategy] = max(begun[deed.strategy], deed.number)
        for number in range(1, self._config.writes + 1):
            for strategy in STRATEGIES:
                if number > begun[strategy]:
                    await self._write(strategy, number)

    async def _write(self, strategy: Strategy, number: int) -> None:
        self._note(Deed(strategy, number, ""))
        while True:
            try:
                settled = await self._put(strategy, number)
            except Unavailable:
                continue  # it waits by itself before it gives up
            if settled.outcome != "skipped":
                break
        revision = settled.document.revision if settled.document is not None else 0
        self._note(Deed(strategy, number, settled.outcome, revision, settled.op_id))

    async def _put(self, strategy: Strategy, number: int) -> Settled:
        """One try; a writer that was skipped makes its value anew from what it was shown."""
        present: Document | None = None
        if strategy == "merge" or strategy not in self._seen:
            present = await self._documents.read(SPACE, strategy)
            self._seen[strategy] = present.revision if present is not None else 0
        value = {self._config.key: number}
        if strategy == "merge" and present is not None and isinstance(present.value, Inline):
            value = {**msgspec.json.decode(present.value.text), **value}
        try:
            settled = await self._documents.put(self._wanted(strategy, value))
        except Rejected as refused:
            if refused.reason != Verdict.UNRESOLVED.value:
                raise
            await self._resolve(await self._documents.read(SPACE, strategy))
            return Settled("skipped", None)
        document = settled.document
        if document is not None and (settled.outcome == "written" or strategy == "remote"):
            self._seen[strategy] = document.revision
        if document is not None and len(document.siblings) >= RESOLVED_FROM:
            await self._resolve(document)
        return settled

    async def _resolve(self, document: Document | None) -> None:
        """End all conflicts with one put; another agent may be faster."""
        if document is not None and document.siblings:
            named = tuple(one.op for one in document.siblings)
            wanted = self._wanted("remote", {"resolved": len(named)}, named, document)
            settled = await self._documents.put(wanted)
            if settled.document is not None:
                self._seen["defer"] = settled.document.revision

    def _wanted(
        self,
        strategy: Strategy,
        value: dict[str, int],
        resolves: tuple[str, ...] = (),
        document: Document | None = None,
    ) -> Wanted:
        return Wanted(
            space=SPACE,
            key=document.key if document is not None else strategy,
            agent=self._config.key,
            value=Inline(text=msgspec.json.encode(value, order="sorted").decode()),
            base=document.revision if document is not None else self._seen[strategy],
            strategy=strategy,
            resolves=resolves,
        )

    def _note(self, deed: Deed) -> None:
        os.write(self._journal, msgspec.json.encode(deed) + b"\n")


async def write(config: AgentConfig) -> None:
    """Write until all is written, or killed."""
    journal = os.open(config.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    whole = config.journal.read_bytes()
    if whole and not whole.endswith(b"\n"):
        os.write(journal, b"\n")  # killed within a line
    async with assembly.join(StateDirectory(config.home), "client", key=config.key) as connection:
        await connection.session.sync_control()
        await Agent(config, Documents(connection.session), journal).run()


def main(config: AgentConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log)
    asyncio.run(write(config))
