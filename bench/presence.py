"""`bench presence`: what the heartbeats of a fleet cost, for each node and for a full node.

One full node hears the heartbeats of many, in one process and without a network: what is measured
is signing, checking and keeping them, in processor time. Every heartbeat is another node's, with
kinds and labels as workers have them. The last round also counts sweeping over all of them, and
answering a roll call for all.

    cpu_us_per_heartbeat  for whoever hears it: share, signature, rights, table
    send_us               for the node that sends it
    heartbeats_per_s      of the whole fleet, one each six seconds
    full_node_cpu_pct     of one processor, for hearing all of them and sweeping once a second
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time

from antiphon.assembly import MemoryMesh
from antiphon.core.bus.subjects import HEARTBEAT
from antiphon.core.presence.cards import HEARTBEATS, SHORTEST_BEAT_MS, Card
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.presence.heartbeat_watch import SWEEP_S, HeartbeatWatch
from bench.measurement.report import conclude, median, say

KINDS = tuple(f"build.step{number}" for number in range(4))
LABELS = ("gpu=a100", "site=north")


def heartbeats(
    keys: list[SeedKeyring], mesh: str, at_ms: int
) -> tuple[list[tuple[str, bytes]], float]:
    """One of each node, and the processor time that signing took, in seconds."""
    began = time.process_time()
    made = []
    for number, key in enumerate(keys):
        card = Card(
            node=key.did,
            alias=f"machine-{number}/worker-1",
            role="worker",
            version="0.1.0",
            at_ms=at_ms,
            kinds=KINDS,
            labels=LABELS,
            slots=8,
            busy=number % 8,
        )
        where = HEARTBEAT.at(user=f"user{number}")
        me = (key.did, key.sign)
        made.append((where, HEARTBEATS.sign(card, me, mesh=mesh, subject=where, at_ms=at_ms)))
    return made, time.process_time() - began


async def run(nodes: int, rounds: int) -> dict[str, object]:
    memory = MemoryMesh()
    async with memory.connection("owner", memory.owner) as connection:
        session = connection.session
        await session.sync_control()
        changes = 0

        def count(*_: object) -> None:
            nonlocal changes
            changes += 1

        watch = HeartbeatWatch(session, count)
        keys = [SeedKeyring(os.urandom(32)) for _ in range(nodes)]
        heard_us, sent_us, size = [], [], 0
        for number in range(rounds):
            at_ms = session.wall.now_ms() + number
            made, signing_s = heartbeats(keys, session.mesh, at_ms)
            began = time.process_time()
            for where, payload in made:
                watch.hear(where, payload)
            heard_us.append((time.process_time() - began) / nodes * 1e6)
            sent_us.append(signing_s / nodes * 1e6)
            size = sum(len(payload) for _, payload in made) // nodes
            say(f"round {number + 1}: {heard_us[-1]:.0f} us to hear one, {sent_us[-1]:.0f} to send")
        assert len(watch.table) == changes == nodes, "each came once, and nothing else changed"
        began = time.process_time()
        watch.sweep()
        sweep_s = time.process_time() - began
        began = time.process_time()
        pages = list(watch.pages("inbox.1.1"))
        answer_s = time.process_time() - began
    per_s = nodes / (SHORTEST_BEAT_MS / 1000)
    hear_us = median(heard_us)
    return {
        "nodes": nodes,
        "heartbeats_per_s": round(per_s, 1),
        "cpu_us_per_heartbeat": round(hear_us, 1),
        "send_us": round(median(sent_us), 1),
        "bytes": size,
        "full_node_cpu_pct": round(per_s * hear_us / 1e4 + sweep_s / SWEEP_S * 100, 2),
        "full_node_bytes_per_s": round(per_s * size),
        "sweep_ms": round(sweep_s * 1000, 2),
        "answer_ms": round(answer_s * 1000, 1),
        "answer_pages": len(pages),
        "answer_bytes": sum(map(len, pages)),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench presence")
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="200 nodes, two rounds")
    args = parser.parse_args(argv)
    nodes, rounds = (200, 2) if args.quick else (args.nodes, args.rounds)
    conclude(**asyncio.run(run(nodes, rounds)))
    return 0
