"""What must hold after all attempts: every member works, and all see the same log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from antiphon import assembly
from antiphon.core.families.jobs import JOBS
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.lane_reader import REFUSED_KEPT
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica_jobs import job_records
from chaos.outsider.target import PATIENCE_S, RENDER, Breach, TargetMesh

MAX_LANES: Final = 400
JOB_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
Check = Callable[[TargetMesh], Awaitable[str]]


async def _victim_returns(target: TargetMesh) -> str:
    await target.restart_victim()
    await target.check_work()
    return "its worker logged in again and answered"


async def _own_kind_goes_on(target: TargetMesh) -> str:
    handle = await target.owner.submit(RENDER, "the last frame")
    async with target.answering(RENDER):
        await target.check_result(handle, "the last frame")
    return "the owner's own worker answered"


async def _nothing_lost(target: TargetMesh) -> str:
    await target.check_log()
    return f"{len(await target.read_log())} records, as the owner and the observer have them"


async def _restart_loses_nothing(target: TargetMesh) -> str:
    await target.restart_server()
    await target.check_log()
    await target.check_work(PATIENCE_S)
    return "killed and started again, and everybody went on"


async def _nodes_agree(target: TargetMesh) -> str:
    """The observer, and a full node that starts empty, against the owner's."""
    records = await target.read_log()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(assembly.join(target.owner_home, "client"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(":memory:", None, connection)
        )
        async with asyncio.timeout(PATIENCE_S):
            fresh = await stack.enter_async_context(
                assembly.replicating(connection, replica, caretaking=False)
            )
            for node in (*target.full_nodes, fresh):
                await node.reached(records[-1].seq)
        for record in records:
            said = {
                stored.verdict if stored is not None else None
                for stored in (
                    node.replica.record(record.seq) for node in (*target.full_nodes, fresh)
                )
            }
            if len(said) != 1:
                raise Breach(f"of record {record.seq} full nodes say {said}")
    return f"{len(records)} verdicts, three full nodes"


async def _light_readers_agree(target: TargetMesh) -> str:
    """Light readers of single lanes, and of the control ops, against the owner's full node."""
    records = await target.read_log()
    lanes = dict.fromkeys(PROTOCOL.lane_of(record.subject) for record in records)
    known = [
        (lane.kind, lane.name)
        for lane in lanes
        if lane is not None
        and lane.family == JOBS.name
        and subjects.is_kind(lane.kind)
        and JOB_ID.fullmatch(lane.name)
    ][-MAX_LANES:]
    victim = target.working.mesh.connection.session
    count = 0
    for kind, job in known:
        readers = [
            target.owner.connection.session,
            *([victim] if kind.startswith("build.") else []),
        ]
        full = {
            stored.record.seq: stored.verdict
            for stored in job_records(target.host.node.replica, kind, job)
        }
        for reader in readers:
            count += await _same_lane(reader, kind, job, full)
    for reader in (target.owner.connection.session, victim):
        await reader.sync_control()
        for seq, verdict in reader.control_verdicts.items():
            if await target.verdict(seq) is not verdict:
                raise Breach(f"of control op {seq} a light reader says {verdict!r}")
            count += 1
    return f"{count} verdicts"


async def _same_lane(reader: Session, kind: str, job_id: str, full: dict[int, Verdict]) -> int:
    view = await reader.read_lane(kind, job_id)
    light = {judged.opened.seq: judged.verdict for judged in view.history}
    expected = dict(full)
    if len(full) > REFUSED_KEPT:
        # Of a lane full of junk a light reader keeps what took effect, and the newest of the rest.
        refused = [seq for seq, verdict in full.items() if verdict is not Verdict.OK]
        for seq in refused[:-REFUSED_KEPT]:
            del expected[seq]
    if light != expected:
        raise Breach(f"of a lane of {kind} a light reader says {light}, the full node {full}")
    return len(light)


async def _nothing_seen(target: TargetMesh) -> str:
    if leaked := target.leaked():
        raise Breach(f"it received {leaked}")
    received = sum(len(connection.received) for connection in target.connections)
    count = len(target.connections)
    return f"nothing of {len(target.hidden)} jobs in {received} bytes on {count} connections"


FINAL_CHECKS: Final[dict[str, Check]] = {
    "the victim's worker comes back": _victim_returns,
    "jobs of the outsider's own kind are done by others": _own_kind_goes_on,
    "the log lost and changed nothing": _nothing_lost,
    "the server restarts with all of it": _restart_loses_nothing,
    "full nodes agree": _nodes_agree,
    "light readers agree with them": _light_readers_agree,
    "nothing of others' was received": _nothing_seen,
}
