"""`chaos extremes`: everything that a schema admits, at its ends, and everybody must agree on it.

Members with real logins and real rights write ops of every class of the protocol, through a real
server: times at 0 and at 2^48-1, the longest texts, lists at their caps, names again and again,
references to themselves and to nothing. Beside them they send signed messages on the bus and
requests about messages that are as odd. Meanwhile

- two full nodes judge everything, and the lanes of locks and documents are entered by new light
  readers; at the end a light reader reads every lane;
- the coordinator, the plan runner, the worker and the gate handle all of it, and at the end each
  of them must still do ordinary work for somebody who did nothing odd.

`--families` leaves some out, such as one with a known fault.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from typing import Any, Final

from antiphon.core.protocol import PROTOCOL
from bench.measurement.report import say
from chaos.cluster.command_frame import parser_for, report, run_directory, run_to_end
from chaos.cluster.participant import BroughtDown
from chaos.extremes.comparison import TOLD, compare
from chaos.extremes.known import Known
from chaos.extremes.long_lanes import LONG, EntryCheck, LongLanes
from chaos.extremes.messages import Messages
from chaos.extremes.ops import CONTROL, Drawer
from chaos.extremes.ordinary_work import services_ended
from chaos.extremes.records import CONTROL_EVERY, Records
from chaos.extremes.target import Target, target_mesh
from chaos.extremes.values import Extremes

RECORDS: Final = 100_000
QUICK_RECORDS: Final = 1_500
LONG_LANES: Final = 4
MESSAGES_A_ROUND: Final = 12
FAMILIES: Final = tuple(family.name for family in PROTOCOL.families)
SAY_S: Final = 10.0


class Trial:
    """One mesh, and everything that is written on it."""

    def __init__(self, target: Target, seed: int, families: tuple[str, ...]) -> None:
        chance = random.Random(seed)
        dids = [one.session.author.did for one in target.writers]
        self.target = target
        self.families = families
        self.known = Known(chance, dids, target.host.node.replica)
        extremes = Extremes(chance, self.known.pools())
        written = tuple(name for name in families if name not in CONTROL)
        self.drawer = Drawer(extremes, self.known, written)
        self.records = Records(target, self.drawer, self.known)
        owned = Drawer(extremes, self.known, tuple(CONTROL & set(families)))
        self.control = Records(target, owned, self.known)
        self.entries = EntryCheck()
        target.host.node.watchers.append(self.entries.applied)
        self.lanes = LongLanes(target, self.drawer, self.known, self.records)
        self.messages = [Messages(one, extremes, self.known) for one in target.writers]

    @property
    def written(self) -> int:
        """Records on the log."""
        return self.records.written + self.control.written

    async def run(self, count: int, long_lanes: int, length: int) -> None:
        """Write so many records; a part of the mesh that ends, ends this too."""
        told_s, next_control = time.monotonic(), 0
        await self.lanes.run(long_lanes, length)
        for number in itertools.count():
            if self.written >= count:
                break
            if self.written >= next_control:
                next_control = self.written + CONTROL_EVERY
                await self.control.write_control()
            sent = [one.send(MESSAGES_A_ROUND) for one in self.messages] if not number % 3 else []
            await asyncio.gather(self.records.write_round(count - self.written), *sent)
            self.target.check()
            if time.monotonic() - told_s > SAY_S:
                told_s = time.monotonic()
                say(f"{self.written} records, {len(self.records.lanes)} lanes")

    def summary(self) -> dict[str, Any]:
        """What was written, and what became of it."""
        both = (self.records, self.control)
        accepted = {name: many for one in both for name, many in sorted(one.accepted.items())}
        refused = sum((one.refused for one in both), type(self.records.refused)())
        return {
            "records": self.written,
            "lanes": len(self.records.lanes),
            "entered": self.lanes.entered,
            "entries": self.entries.entries,
            "accepted": accepted,
            "refused": dict(refused.most_common(20)),
            "messages": sum(sum(one.sent.values()) for one in self.messages),
        }


async def trial(
    count: int,
    *,
    seed: int,
    families: tuple[str, ...],
    long_lanes: int,
    length: int = LONG,
    replicas: int = 1,
) -> dict[str, Any]:
    """One run; the report of it."""
    begun = time.monotonic()
    with run_directory("extremes") as directory:
        async with target_mesh(directory, replicas) as target:
            made = Trial(target, seed, families)
            differing: list[str] = []
            try:
                await made.run(count, long_lanes, length)
                differing = await compare(target, made.records, made.records.lanes)
            except BroughtDown as down:
                say(str(down))
            differing += [*made.entries.differing, *made.lanes.differing]
            ended = await services_ended(target)
            summary = made.summary()
    for one in (*differing[:TOLD], *ended):
        say(one)
    return {
        **summary,
        "disagreements": len(differing),
        "services_ended": len(ended),
        "ended": ended,
        "families": list(families),
        "replicas": replicas,
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
    }


def holds(summary: dict[str, Any]) -> bool:
    """Whether everybody agrees and every service works."""
    return not summary["disagreements"] and not summary["services_ended"]


async def run(count: int, **how: Any) -> int:
    """The command."""
    say(f"seed {how['seed']}")
    summary = await trial(count, **how)
    return report(summary, holds=holds(summary))


def main(argv: list[str]) -> int:
    parser = parser_for("extremes", f"{QUICK_RECORDS} records")
    parser.add_argument("--records", type=int)
    parser.add_argument("--replicas", type=int, choices=[1, 3], default=1)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    args = parser.parse_args(argv)
    count = args.records or (QUICK_RECORDS if args.quick else RECORDS)
    long_lanes = 1 if args.quick else LONG_LANES
    return run_to_end(
        run(
            count,
            seed=args.seed,
            replicas=args.replicas,
            long_lanes=long_lanes,
            families=tuple(args.families),
        )
    )
