"""`bench lanes`: what it costs to open a document that was written many times.

Writes N puts of one document to a mesh in memory, seals them, and opens the document with new
sessions: once by reading the whole lane, and by entering it at a sealed record. No network is in
the figures: both ways pay for the same engine.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from antiphon import assembly
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.state import document_key
from antiphon.core.families.memory.writing import Wanted
from antiphon.runtime.memory.documents import Documents
from antiphon.runtime.node.sealer import Sealer
from bench.measurement.report import conclude, say

SPACE, KEY = "bench.notes", "document"


async def measure(puts: int, opens: int) -> dict[str, object]:
    """Write, seal, open both ways."""
    memory, lane = assembly.MemoryMesh(), document_key(SPACE, KEY)
    async with (
        memory.connection("owner", memory.owner) as own,
        assembly.owned_replica(":memory:", None, own) as replica,
        assembly.replicating(own, replica, caretaking=True, bar_s=3_600) as node,
    ):
        documents, base = Documents(own.session), 0
        begun = time.perf_counter()
        for number in range(puts):
            value = Inline(text=f'{{"number":{number},"text":"{"x" * 200}"}}')
            wanted = Wanted(space=SPACE, key=KEY, agent="bench", value=value, base=base)
            settled = await documents.put(wanted)
            base = settled.document.revision if settled.document is not None else 0
            if number % 2_000 == 1_999:
                say(f"wrote {number + 1:,} of {puts:,}")
        write_s = time.perf_counter() - begun
        await node.reached(base)
        if not await Sealer(node, bar_s=0).seal():
            raise RuntimeError("the log was not sealed")
        whole, entered, states = list[float](), list[float](), list[object]()
        for times, way in ((whole, "read"), (entered, "enter")):
            for _ in range(1 if way == "read" else opens):
                async with memory.connection("reader") as connection:
                    await connection.session.sync_control()
                    begun = time.perf_counter()
                    view = await getattr(connection.session, way)(lane)
                    times.append(time.perf_counter() - begun)
                    states.append(view.lane)
        if any(one != states[0] for one in states):
            raise RuntimeError("the two ways lead to different states")
    best = min(entered)
    return {
        "records": puts,
        "put_ms": round(1000 * write_s / puts, 3),
        "whole_s": round(min(whole), 3),
        "entered_ms": round(1000 * best, 2),
        "ratio": round(min(whole) / best, 1),
    }


def main(argv: list[str]) -> int:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(prog="bench lanes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer puts")
    parser.add_argument("--puts", type=int, default=10_000)
    given = parser.parse_args(argv)
    puts = 1_000 if given.quick else given.puts
    conclude(**asyncio.run(measure(puts, opens=5)))
    return 0
