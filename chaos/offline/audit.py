"""What a round of `chaos offline` came to: the log against what the laptops were told."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from antiphon.core.families.jobs.ops import (
    ArtifactBody,
    CompleteBody,
    JobArtifact,
    JobComplete,
    JobSchedule,
)
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.memory.state import document_key
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.artifacts.waiting_blobs import named_in
from antiphon.runtime.log.session import Session
from chaos.offline.process import KIND, SPACE, Deed, Line

ENDS: Final = frozenset({"held", "dropped"})


class Findings(Struct):
    """Of one round, or of all."""

    dropped_told: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    disagreed: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """The findings of another round."""
        self.dropped_told += other.dropped_told
        self.lost += other.lost
        self.twice += other.twice
        self.disagreed += other.disagreed


def lane_of(deed: Deed, name: str) -> LaneKey | None:
    """The lane of a job or a document; None for what is on none."""
    match deed.what:
        case "job" | "call":
            return job_key(KIND, name)
        case "put":
            return document_key(SPACE, deed.where)
        case _:
            return None


async def judged(
    session: Session, deeds: tuple[Deed, ...], lines: list[Line], did: str, read: list[str]
) -> Findings:
    """What became of what one laptop was promised; `read` are the messages that arrived."""
    found = Findings()
    told = {one.name: one for one in lines if one.said == "told"}
    for line in (one for one in lines if one.said == "kept"):
        deed, end = deeds[line.number], told.get(line.name)
        what = f"{deed.what} {line.name}"
        if end is None or end.state not in ENDS:
            found.lost.append(f"{what}: {end.state if end else 'nothing'} was told")
            continue
        there = await _count(session, deed, line.name, did, read)
        if there > 1:
            found.twice.append(f"{what}: {there} times")
        if end.state == "held" and not there:
            found.lost.append(f"{what}: told as held, and not there")
        if end.state == "dropped":
            found.dropped_told += 1
            if there:
                found.disagreed.append(f"{what}: told as dropped ({end.why}), and there")
    return found


async def judged_run(
    session: Session, lines: list[Line], job: tuple[str, str], did: str, *, is_taken: bool
) -> Findings:
    """What became of what a laptop's worker made of its job, which another may have taken over."""
    found, kind_and_id = Findings(), f"run {job[1][:8]}"
    made = [one.state for one in lines if one.said == "made" and one.name == job[1]]
    told = [one for one in lines if one.said == "ran" and one.state == "dropped"]
    view = await session.read_lane(*job)
    bodies = [
        op.body
        for op in (one.opened.op for one in view.history if one.verdict is Verdict.OK)
        if isinstance(op, JobArtifact | JobComplete) and op.author == did
    ]
    there = [one.name if isinstance(one, ArtifactBody) else "end" for one in bodies]
    if is_taken:
        found.dropped_told += bool(told)
        if there:
            found.twice.append(f"{kind_and_id}: {there}, though another worker took over")
        if made and not told:
            found.lost.append(f"{kind_and_id}: {made}, and nothing was told")
        if len(told) > 1 or any("fence" not in one.why for one in told):
            found.disagreed.append(f"{kind_and_id}: told {[one.why for one in told]}")
        return found
    if there[: len(made)] != made:
        found.lost.append(f"{kind_and_id}: {made} was made, and {there} is there")
    if len(set(there)) < len(there):
        found.twice.append(f"{kind_and_id}: {there}")
    if told:
        found.disagreed.append(f"{kind_and_id}: told as dropped ({told[0].why})")
    for digest in _stored_by(bodies):
        if not await session.engine.blobs.has(digest):
            found.lost.append(f"{kind_and_id}: {digest} is named, and not stored")
    return found


def _stored_by(bodies: list[ArtifactBody | CompleteBody]) -> list[str]:
    """What is outside the log of what a run made."""
    steps = [one.digest for one in bodies if isinstance(one, ArtifactBody)]
    outputs = [one for body in bodies if isinstance(body, CompleteBody) for one in body.outputs]
    return [one for one in steps if one] + [one.hash for one in outputs if one.text is None]


async def _count(session: Session, deed: Deed, name: str, did: str, read: list[str]) -> int:
    """How often something is there; what is named and not stored is not."""
    lane = lane_of(deed, name)
    if deed.what == "message":
        return read.count(deed.text)
    if lane is None:
        return int(await session.engine.blobs.has(f"blake3:{name}"))
    view = await session.read(lane)
    accepted = [one.opened.op for one in view.history if one.verdict is Verdict.OK]
    if deed.what == "put":
        accepted = [op for op in accepted if op is not None and op.author == did]
    else:  # it may have been offered since
        accepted = [op for op in accepted if isinstance(op, JobSchedule)]
    for digest in named_in([op.body for op in accepted if op is not None]):  # whoever wrote a job
        if not await session.engine.blobs.has(digest):
            return 0
    return len(accepted)
