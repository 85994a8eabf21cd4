"""`chaos outsider`: a hostile contractor with its own credentials and a plain NATS client.

A mesh is founded, hosted and joined as people do it. Then somebody who may claim `render.*` and
nothing else tries everything that comes to mind: in subjects, headers, replies, acknowledgements,
signed ops, logins and floods. Each attempt must be stopped by one of the walls, or harm nobody:

    server    the NATS server refused it
    gate      the mesh's gate refused it, or left it out
    door      the door of an HTTP interface refused it
    rules     it was stored, and every node rejects it
    harmless  it went through, and the reason says why it does no harm

After each one the owner calls a job, the victim answers it, and the log is read and compared with
what it was. A breach is reported, and the next attempt begins on a new mesh. If the server is gone
when the final checks are made, they are reported as unchecked, and the command exits with 3.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from traceback import extract_tb
from typing import Final

from msgspec import to_builtins
from nats import errors as nats_errors

from antiphon.errors import AntiphonError
from chaos.cluster.command_frame import parser_for, run_to_end
from chaos.cluster.participant import BroughtDown
from chaos.outsider.archive_attacks import ARCHIVE_ATTEMPTS
from chaos.outsider.attacks.amplification import AMPLIFICATION
from chaos.outsider.attacks.batches import BATCHES
from chaos.outsider.attacks.blobs import BLOBS
from chaos.outsider.attacks.delegations import DELEGATIONS
from chaos.outsider.attacks.documents import DOCUMENTS
from chaos.outsider.attacks.encryption import ENCRYPTION
from chaos.outsider.attacks.floods import FLOODS, WEARING
from chaos.outsider.attacks.forgeries import FORGERIES
from chaos.outsider.attacks.gate_load import GATE_LOAD
from chaos.outsider.attacks.headers import HEADERS
from chaos.outsider.attacks.locks import LOCK_ATTEMPTS
from chaos.outsider.attacks.logins import LEAVING, LOGINS
from chaos.outsider.attacks.messages import MESSAGE_ATTEMPTS
from chaos.outsider.attacks.replies import ACKNOWLEDGEMENTS, REPLIES
from chaos.outsider.attacks.subjects import ADMINISTRATION, LISTENING, READING, WRITING
from chaos.outsider.attacks.waits import WAITS
from chaos.outsider.attempt import REFUSALS, Attempt, Outcome
from chaos.outsider.final_checks import FINAL_CHECKS
from chaos.outsider.http.parties import HTTP_PARTIES
from chaos.outsider.http.routes import HTTP_ROUTES, Survey, survey
from chaos.outsider.target import Breach, TargetMesh, target_mesh

ATTEMPT_S: Final = 320.0
"""No attempt takes longer, also on a busy machine; most take milliseconds."""
COULD_NOT_CHECK: Final = 3
"""The exit code if no breach was found, and not everything could be checked."""
ATTEMPTS: Final = {
    "writing": WRITING,
    "reading": READING,
    "listening": LISTENING,
    "administration": ADMINISTRATION,
    "headers": HEADERS,
    "batches": BATCHES,
    "replies": REPLIES,
    "acks": ACKNOWLEDGEMENTS,
    "forgeries": [*FORGERIES, *DELEGATIONS],
    "logins": LOGINS,
    "encryption": ENCRYPTION,
    "blobs": BLOBS,
    "documents": DOCUMENTS,
    "locks": LOCK_ATTEMPTS,
    "messages": MESSAGE_ATTEMPTS,
    "archive": ARCHIVE_ATTEMPTS,
    "waits": WAITS,
    "gate load": GATE_LOAD,
    "http": [*HTTP_ROUTES, *HTTP_PARTIES],
    "burdens": AMPLIFICATION,
    "floods": FLOODS,
    "wearing down": WEARING,
    "leaving": LEAVING,
}


class Report:
    """The outcomes of all attempts."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.breaches: list[str] = []
        self.numbered = 0
        self.after: dict[str, bool] = {}
        self.unchecked: list[str] = []
        """Final checks that could not be made, and why: they say nothing about the attempts."""
        self.survey = Survey()

    def note(self, group: str, attempt: Attempt, outcome: Outcome) -> None:
        """Add an attempt that did no harm."""
        self.outcomes.append(outcome)
        self._print(group, attempt, outcome.wall, outcome.why)

    def note_breach(self, group: str, attempt: Attempt, found: str) -> None:
        """Add one that did."""
        self.breaches.append(f"{group}: {attempt.name}: {found}")
        self._print(group, attempt, "BREACH", found)

    def note_after(self, name: str, found: str, *, holds: bool) -> None:
        """Add a final check."""
        self.after[name] = self.after.get(name, True) and holds
        if not holds:
            self.breaches.append(f"after: {name}: {found}")
        print(f"    {'after':14} {name:58} {'holds' if holds else 'BREACH':9} {found}")

    def note_unchecked(self, name: str, why: str) -> None:
        """Add a final check that could not be made."""
        self.unchecked.append(f"{name}: {why}")
        print(f"    {'after':14} {name:58} {'UNCHECKED':9} could not check: {why}")

    def _print(self, group: str, attempt: Attempt, wall: str, why: str) -> None:
        self.numbered += 1
        print(f"{self.numbered:3} {group:14} {attempt.name:58} {wall:9} {why}")

    @property
    def holds(self) -> bool:
        """Whether no attempt did harm, and every final check holds."""
        ended = self.numbered == len(self.outcomes) > 0
        is_stated = not self.survey.unstated
        return ended and is_stated and not self.breaches and all(self.after.values())

    @property
    def code(self) -> int:
        """What the command exits with."""
        if not self.holds:
            return 1
        return COULD_NOT_CHECK if self.unchecked else 0

    def summary(self, seconds: float) -> dict[str, object]:
        """The last line of the report."""
        walls = Counter(one.wall for one in self.outcomes)
        refused = sum(walls[wall] for wall in REFUSALS)
        return {
            "attempts": self.numbered,
            "refused": refused,
            "harmless": len(self.outcomes) - refused,
            "breaches": self.breaches,
            "walls": dict(walls),
            "after": self.after,
            "unchecked": self.unchecked,
            **to_builtins(self.survey),
            "seconds": round(seconds, 1),
        }


def _place(late: TimeoutError) -> str:
    """Where in our code an attempt was when its time was over."""
    cancelled = late.__cause__ or late
    frames = [one for one in extract_tb(cancelled.__traceback__) if "/chaos/" in one.filename]
    return f"in {frames[-1].name}: {frames[-1].line}" if frames else "nowhere in particular"


async def attack(target: TargetMesh, attempt: Attempt, *, is_checked: bool = True) -> Outcome:
    """Make one attempt, and check the mesh after it."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            if not target.connection.is_open and not target.is_expelled:
                target.connection = await target.connect()
            outcome = await attempt.act(target)
            if is_checked:
                await target.check_all()
    except TimeoutError as late:
        raise Breach(f"not over after {ATTEMPT_S:g} s, {_place(late)}") from late
    except (AntiphonError, BroughtDown, nats_errors.Error, OSError, ValueError) as problem:
        raise Breach(f"{problem!r}"[:300]) from problem
    if leaked := target.leaked():
        raise Breach(f"it received {leaked}")
    return outcome


async def run_final_checks(target: TargetMesh, report: Report) -> None:
    """Everything that must hold after all attempts; and which HTTP routes answer strangers."""
    report.survey = await survey(target)
    for name in FINAL_CHECKS:
        await run_final_check(target, report, name)


async def run_final_check(target: TargetMesh, report: Report, name: str) -> None:
    """One of them."""
    try:
        async with asyncio.timeout(ATTEMPT_S):
            report.note_after(name, await FINAL_CHECKS[name](target), holds=True)
    except (Breach, BroughtDown, AntiphonError, TimeoutError, OSError, ValueError) as problem:
        # Every attempt was checked while the server answered. If it is gone now, nothing that
        # needs it can be checked, and nobody has shown a breach.
        if gone := await target.server_fault():
            report.note_unchecked(name, gone)
        else:
            report.note_after(name, f"{problem!r}"[:300], holds=False)


def select(pattern: str) -> Iterator[tuple[str, Attempt]]:
    """The attempts whose group or name contains a text."""
    for group, attempts in ATTEMPTS.items():
        for attempt in attempts:
            if pattern in f"{group}: {attempt.name}":
                yield group, attempt


async def run(*, rounds: float, only: str, check_every: int = 1) -> int:
    begun, report = time.monotonic(), Report()
    left = list(select(only))
    while left:
        async with target_mesh(rounds) as target:
            while left:
                group, attempt = left.pop(0)
                try:
                    is_checked = not left or len(left) % check_every == 0
                    found = await attack(target, attempt, is_checked=is_checked)
                    report.note(group, attempt, found)
                except Breach as breach:
                    report.note_breach(group, attempt, str(breach))
                    break
            else:
                await run_final_checks(target, report)
    print(json.dumps(report.summary(time.monotonic() - begun)))
    if report.unchecked:
        print(
            f"{len(report.unchecked)} final checks could not be made: {report.unchecked[0]}. "
            "Run it again.",
            file=sys.stderr,
        )
    return report.code


def main(argv: list[str]) -> int:
    parser = parser_for("outsider", "the same, with smaller floods", has_seed=False)
    parser.add_argument("--floods", type=float, help="multiplies the floods; --quick is 1, else 8")
    parser.add_argument(
        "--check-every",
        type=int,
        default=1,
        help="look at the mesh after so many attempts: what a breach names is the last of them",
    )
    parser.add_argument("--only", default="", help="attempts with this in their name")
    args = parser.parse_args(argv)
    # What the attacks make others log is expected, and would hide the report.
    logging.disable(logging.CRITICAL)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    rounds = args.floods or (1 if args.quick else 8)
    return run_to_end(run(rounds=rounds, only=args.only, check_every=max(args.check_every, 1)))
