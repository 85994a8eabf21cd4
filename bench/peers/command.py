"""`bench peers`: jobs per second drained from a full queue, by Antiphon and by other job queues.

Every side is durable (an answer means that the disk was synced), has the same number of worker
processes, and drains a queue that is full when they start. Sides take turns on fresh servers; a
lead is the median of the rounds' ratios. Time runs from the first job that is claimed
or acknowledged to the last that is done, so that the start of processes does not count.

What the sides do is not the same: our jobs are signed, checked, fenced against a second result, and
end in a proof and a result that stay on the log; Dramatiq's are acknowledged and forgotten.

With `--work-ms` every job waits that long, in the same number of slots or threads on every side;
the ideal is what these could do if nothing else took time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import asdict

from bench.measurement.report import conclude, median, say
from bench.peers.antiphon_side import antiphon_round
from bench.peers.dramatiq_side import dramatiq_round
from bench.peers.redis_server import find_redis, require_dramatiq
from bench.peers.side import Figures, PeerLoad

OURS: Final = "antiphon"
SIDES: Final[dict[str, Callable[[PeerLoad], Awaitable[Figures]]]] = {
    OURS: antiphon_round,
    "dramatiq": dramatiq_round,
}
DURABILITY: Final = {
    OURS: "JetStream, sync_interval always",
    "dramatiq": "Redis, AOF, appendfsync always",
}
WANTED_LEAD: Final = 0.7
SLOTS: Final = 384
THREADS: Final = 8
"""Dramatiq's own default."""


async def run(load: PeerLoad, rounds: int) -> int:
    found: dict[str, list[Figures]] = {name: [] for name in SIDES}
    names = list(SIDES)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            one = await SIDES[name](load)
            found[name].append(one)
            say(
                f"round {number + 1}: {name} {one.per_s:,.0f} jobs/s; ms of processor per job:"
                f" worker {one.worker_cpu_ms:.2f}, server {one.server_cpu_ms:.2f},"
                f" caller {one.caller_cpu_ms:.2f}"
            )
    rates = {name: median([one.per_s for one in each]) for name, each in found.items()}
    best = max((name for name in names if name != OURS), key=rates.__getitem__)
    leads = [ours.per_s / peer.per_s for ours, peer in zip(found[OURS], found[best], strict=True)]
    ideal = _ideal_per_s(load)
    peers = {name: _summary(each, ideal) for name, each in found.items()}
    conclude(
        antiphon_per_s=round(rates[OURS]),
        best_peer=best,
        best_peer_per_s=round(rates[best]),
        lead=round(median(leads), 3),
        lead_spread=[round(min(leads), 3), round(max(leads), 3)],
        peers={name: {**peers[name], "durability": DURABILITY[name]} for name in names},
        **({"ideal_per_s": round(ideal)} if ideal else {}),
        **asdict(load),
        rounds=rounds,
    )
    return 0 if ideal or median(leads) >= WANTED_LEAD else 1


def _ideal_per_s(load: PeerLoad) -> float:
    return load.processes * load.slots * 1000 / load.work_ms if load.work_ms else 0.0


def _summary(rounds: list[Figures], ideal: float) -> dict[str, object]:
    names = ("worker_cpu_ms", "server_cpu_ms", "caller_cpu_ms")
    per_s = [one.per_s for one in rounds]
    return {
        "per_s": round(median(per_s)),
        "spread": [round(min(per_s)), round(max(per_s))],
        **{name: round(median([getattr(one, name) for one in rounds]), 3) for name in names},
        **({"of_ideal": round(median(per_s) / ideal, 3)} if ideal else {}),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench peers")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--replicas", type=int, choices=[1, 3], default=1)
    parser.add_argument("--work-ms", type=float, default=0)
    parser.add_argument("--threads", type=int, default=THREADS, help="of each peer's process")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    require_dramatiq()
    find_redis()
    load = PeerLoad(
        jobs=args.jobs or (1_500 if args.quick else 6_000),
        processes=args.processes,
        slots=args.threads if args.work_ms else SLOTS,
        threads=args.threads,
        work_ms=args.work_ms,
        replicas=args.replicas,
    )
    return asyncio.run(run(load, args.rounds or (1 if args.quick else 5)))
