"""`chaos outsider`: a hostile contractor with its own credentials and a plain NATS client.

A mesh is founded, hosted and joined as people do it. Then somebody who may claim `render.*` and
nothing else tries everything that comes to mind: in subjects, headers, replies, acknowledgements,
signed ops, logins and floods. Each attempt must end at one of the walls, or harm nobody:

    server    the NATS server refused it
    gate      the mesh's gate refused it, or left it out
    rules     it was stored, and every node rejects it
    harmless  it went through, and the reason says why nobody minds

After each one the owner calls a job, the victim answers it, and the log is read and compared with
what it was. A breach is told, and the next attempt begins on a new mesh.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from nats import errors as nats_errors

from antiphon import telemetry
from antiphon.errors import AntiphonError
from chaos.outsider_aftermath import AFTERMATH
from chaos.outsider_attempt import REFUSALS, Attempt, Held
from chaos.outsider_blobs import BLOBS
from chaos.outsider_burdens import BURDENS
from chaos.outsider_encryption import ENCRYPTION
from chaos.outsider_floods import FLOODS, WEARING
from chaos.outsider_forgeries import FORGERIES
from chaos.outsider_grants import GRANTS
from chaos.outsider_headers import HEADERS
from chaos.outsider_logins import LEAVING, LOGINS
from chaos.outsider_replies import ACKNOWLEDGEMENTS, REPLIES
from chaos.outsider_scene import Breach, Scene, scene
from chaos.outsider_subjects import ADMINISTRATION, LISTENING, READING, WRITING

ATTEMPT_S: Final = 40.0
"""No attempt takes longer; most take milliseconds."""
RUN_S: Final = 150.0
"""Behind this no further attempt begins; times the rounds. It is only reached with breaches."""
ATTEMPTS: Final = {
    "writing": WRITING,
    "reading": READING,
    "listening": LISTENING,
    "administration": ADMINISTRATION,
    "headers": HEADERS,
    "replies": REPLIES,
    "acks": ACKNOWLEDGEMENTS,
    "forgeries": [*FORGERIES, *GRANTS],
    "logins": LOGINS,
    "encryption": ENCRYPTION,
    "blobs": BLOBS,
    "burdens": BURDENS,
    "floods": FLOODS,
    "wearing down": WEARING,
    "leaving": LEAVING,
}


class Report:
    """What came of it all."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.breaches: list[str] = []
        self.numbered = 0
        self.after: dict[str, bool] = {}

    def note(self, group: str, attempt: Attempt, held: Held) -> None:
        """An attempt that ended at a wall."""
        self.held.append(held)
        self._say(group, attempt, held.wall, held.why)

    def note_breach(self, group: str, attempt: Attempt, found: str) -> None:
        """One that did not."""
        self.breaches.append(f"{group}: {attempt.name}: {found}")
        self._say(group, attempt, "BREACH", found)

    def note_after(self, name: str, found: str, *, holds: bool) -> None:
        """What was looked at when the outsider was done."""
        self.after[name] = self.after.get(name, True) and holds
        if not holds:
            self.breaches.append(f"after: {name}: {found}")
        print(f"    {'after':14} {name:58} {'holds' if holds else 'BREACH':9} {found}")

    def _say(self, group: str, attempt: Attempt, wall: str, why: str) -> None:
        self.numbered += 1
        print(f"{self.numbered:3} {group:14} {attempt.name:58} {wall:9} {why}")

    @property
    def holds(self) -> bool:
        """Whether every attempt ended at a wall, and all was well afterwards."""
        ended = self.numbered == len(self.held) > 0
        return ended and not self.breaches and all(self.after.values())

    def summary(self, seconds: float) -> dict[str, object]:
        """The last line."""
        walls = Counter(one.wall for one in self.held)
        refused = sum(walls[wall] for wall in REFUSALS)
        return {
            "attempts": self.numbered,
            "refused": refused,
            "harmless": len(self.held) - refused,
            "breaches": self.breaches,
            "walls": dict(walls),
            "after": self.after,
            "seconds": round(seconds, 1),
        }


async def attack(here: Scene, attempt: Attempt) -> Held:
    """One attempt, and whether the mesh is sound behind it."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            if not here.line.is_up and not here.is_expelled:
                here.line = await here.enter()
            held = await attempt.act(here)
            await here.sound()
    except TimeoutError as late:
        raise Breach(f"not over after {ATTEMPT_S:g} s") from late
    except (AntiphonError, nats_errors.Error, OSError, ValueError) as problem:
        raise Breach(f"{problem!r}"[:300]) from problem
    if leaked := here.leaked():
        raise Breach(f"it received {leaked}")
    return held


async def look_back(here: Scene, report: Report) -> None:
    """Everything that must hold behind all attempts."""
    for name, check in AFTERMATH.items():
        try:
            async with asyncio.timeout(ATTEMPT_S):
                report.note_after(name, await check(here), holds=True)
        except (Breach, AntiphonError, TimeoutError, OSError, ValueError) as problem:
            report.note_after(name, f"{problem!r}"[:300], holds=False)


def chosen(pattern: str) -> Iterator[tuple[str, Attempt]]:
    """The attempts whose group or name contains a text."""
    for group, attempts in ATTEMPTS.items():
        for attempt in attempts:
            if pattern in f"{group}: {attempt.name}":
                yield group, attempt


async def run(*, rounds: int, only: str) -> int:
    begun, report = time.monotonic(), Report()
    left = list(chosen(only))

    def is_time_left() -> bool:
        return time.monotonic() - begun < RUN_S * rounds

    while left and is_time_left():
        async with scene(rounds) as here:
            while left and is_time_left():
                group, attempt = left.pop(0)
                try:
                    report.note(group, attempt, await attack(here, attempt))
                except Breach as found:
                    report.note_breach(group, attempt, str(found))
                    break
            else:
                await look_back(here, report)
    print(json.dumps({**report.summary(time.monotonic() - begun), "untried": len(left)}))
    return 0 if report.holds and not left else 1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos outsider")
    parser.add_argument("--quick", action="store_true", help="the same, with smaller floods")
    parser.add_argument("--only", default="", help="attempts with this in their name")
    args = parser.parse_args(argv)
    telemetry.configure("error", "text")
    # What the attacks make others log is expected here, and would bury the report.
    logging.disable(logging.CRITICAL)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return asyncio.run(run(rounds=1 if args.quick else 8, only=args.only))
