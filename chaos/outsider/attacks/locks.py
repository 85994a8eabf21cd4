"""What the outsider tries with locks: to take, end or pass on others' holds, or hold up waiters.

With its own login it may claim `render.*`, which opens no lock: the server refuses everything. A
second machine of the contractor's may take locks below `render`. What that one writes about a lock
that the owner holds is stored, and every node rejects it. After each such attempt the owner still
holds the lock, with the same fence, and can release it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.logins import log_in
from antiphon.core.bus.subjects import LOCK_WAIT
from antiphon.core.clock.hlc import pack
from antiphon.core.families.locks.ops import (
    BreakBody,
    LockBreak,
    LockRelease,
    LockTake,
    ReleaseBody,
    Successor,
    TakeBody,
)
from antiphon.core.families.locks.state import LockLane, lock_key
from antiphon.core.policy.locks.lock_turns import Arrival
from antiphon.core.record.ids import name_of_key
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.locks.lock_queue import ARRIVALS
from antiphon.runtime.log.lane_reader import ENTERED_FROM
from antiphon.runtime.node.sealer import Sealer
from antiphon.sdk.locks.lock import Lock
from antiphon.sdk.mesh import Mesh
from chaos.network.raw_connection import RawConnection, frame
from chaos.outsider.attacks.forgeries import Forger, Signed, now_ms
from chaos.outsider.attempt import DENIED, Attempt, Outcome, publish_attempt, subscribe_attempt
from chaos.outsider.target import PATIENCE_S, RENDER, SECRET, Breach, TargetMesh

KEY: Final = "deploy"
NAME: Final = name_of_key(KEY)
TTL_S: Final = 600
"""Long enough that nothing is renewed while an attempt is made."""
TTL_MS: Final = 30_000
AHEAD_MS: Final = 3_600_000
CROWD: Final = 40
TAKE: Final = "/lock/take"


class Held(Struct, frozen=True):
    """A lock of the owner's, and the outsider that may take locks of that scope."""

    target: TargetMesh
    lock: Lock
    prev: int
    forger: Forger
    connection: RawConnection

    def names(self, **more: Any) -> dict[str, Any]:
        """The scope and the key, and what else a body has."""
        return {"kind": RENDER, "key": self.lock.key, **more}

    def take(self, **more: Any) -> Signed:
        """A take or a renewal, correct in everything but what is tried."""
        body = {"agent": "main", "ttl_ms": TTL_MS, **more}
        return self.sign(LockTake, TakeBody(**self.names(**body)))

    def release(self, **more: Any) -> Signed:
        """A release, or a lock that is passed on."""
        body = {"agent": "main", "fence": self.lock.fence, **more}
        return self.sign(LockRelease, ReleaseBody(**self.names(**body)))

    def sign(self, type_: Callable[..., Any], body: Struct, **other: Any) -> Signed:
        """Signed by the outsider, under the delegation that it really has."""
        return self.forger.sign(
            type_, body, **{"prev": self.prev, "auth": self.forger.chain(TAKE), **other}
        )


Try = Callable[[Held], Awaitable[Outcome]]
_LOCKERS: WeakKeyDictionary[TargetMesh, StateDirectory] = WeakKeyDictionary()


async def _locker(target: TargetMesh) -> StateDirectory:
    """The contractor's machine that may take locks below `render`."""
    if target not in _LOCKERS:
        _LOCKERS[target] = await target.join("locker", can="lock")
    return _LOCKERS[target]


async def _tail(target: TargetMesh, key: str) -> int:
    lane = (await target.owner.connection.session.read(lock_key(RENDER, key))).lane
    if not isinstance(lane, LockLane):
        raise Breach("a lock's lane is none")
    return lane.tails[0]


@asynccontextmanager
async def _holding(target: TargetMesh) -> AsyncIterator[Held]:
    """A lock of the owner's, held while the block runs."""
    home = await _locker(target)
    await log_in(home, home.access(), [])
    connection = await target.connect(home)
    await target.host.node.session.sync_control()
    key, forger = f"{KEY}-{os.urandom(4).hex()}", Forger(target, home.signer("machine"))
    async with target.owner.lock(key, scope=RENDER, ttl=TTL_S) as lock:
        yield Held(target, lock, await _tail(target, key), forger, connection)
    await connection.close()


def _attempt(name: str, act: Try) -> Attempt:
    async def whole(target: TargetMesh) -> Outcome:
        async with _holding(target) as held:
            lock, fence = held.lock, held.lock.fence
            outcome = await act(held)
            lock.check()
            held_now = await target.owner.locks.list(RENDER)
            shown = [one.fence for one in held_now if one.key == lock.key]
            if shown != [fence]:
                raise Breach(f"the owner took the lock with {fence}; now it is {shown}")
        return outcome

    return Attempt(name, whole)


async def _stored(held: Held, record: Signed) -> Verdict:
    answer = await held.connection.store(record.subject, record.payload)
    if "seq" not in answer:
        raise Breach(f"this shows nothing, since the server says {answer}")
    return await held.target.verdict(int(answer["seq"]))


def _rejected(record: Callable[[Held], Signed], verdict: Verdict) -> Try:
    async def act(held: Held) -> Outcome:
        said = await _stored(held, record(held))
        if said is not verdict:
            raise Breach(f"the verdict is {said.value}, not {verdict.value}")
        return Outcome("rules", said.in_words)

    return act


def _forged_fence(held: Held) -> Signed:
    return held.take(fence=pack((now_ms() + 1_000, 0)))


def _pass_to_itself(held: Held) -> Signed:
    to = Successor(node=held.forger.key.did, agent="main", ttl_ms=TTL_MS)
    return held.release(pass_to=to)


def _break(held: Held) -> Signed:
    return held.sign(LockBreak, BreakBody(**held.names()))


def _in_the_owners_name(held: Held) -> Signed:
    body = ReleaseBody(**held.names(agent="main", fence=held.lock.fence))
    return held.sign(LockRelease, body, author=held.target.owner.did, auth=())


def _after_the_deadline(held: Held) -> Signed:
    body = TakeBody(**held.names(agent="main", ttl_ms=TTL_MS))
    return held.sign(LockTake, body, hlc=(now_ms() + AHEAD_MS, 0))


async def _replays(held: Held) -> Outcome:
    """The owner's own take once more: signed, and for a place on the log that is taken."""
    first = await held.target.owner.connection.session.log.read(held.prev - 1, limit=1)
    record = first.records[0]
    answer = await held.connection.store(record.subject, record.payload)
    if "seq" not in answer:
        return Outcome("server", f"{answer}"[:80])
    said = await held.target.verdict(int(answer["seq"]))
    if said.is_accepted:
        raise Breach(f"a record of the owner's counted twice: {said.value}")
    return Outcome("rules", said.in_words)


async def _another_scope(held: Held) -> Outcome:
    """The chain that it has, in a scope that it is not for."""
    body = TakeBody(kind=SECRET, key=KEY, agent="main", ttl_ms=TTL_MS)
    record = held.sign(LockTake, body, prev=0)
    if await held.connection.is_refused(record.subject, record.payload):
        return DENIED
    raise Breach(f"the server took a record on {record.subject}")


async def _crowds_a_waiter(target: TargetMesh) -> Outcome:
    """A thousand that came long ago, by a key of its own making: nobody may wait for them."""
    subject, key = LOCK_WAIT.at(kind=RENDER), SeedKeyring(os.urandom(32))
    where = f"apb.{target.mesh}.{subject}"
    async with _holding(target) as held:
        name = held.lock.key
        waiting = asyncio.ensure_future(
            target.owner.lock(name, scope=RENDER, agent="next", wait=None).take()
        )
        frames = []
        for _ in range(target.scaled(CROWD)):
            ticket = os.urandom(8).hex()
            said = Arrival(name=name_of_key(name), agent="main", ticket=ticket, arrived_ms=1)
            payload = ARRIVALS.sign(
                said, (key.did, key.sign), mesh=target.mesh, subject=subject, at_ms=now_ms()
            )
            frames.append(frame(where, payload))
        await held.connection.send(*frames)
        await held.connection.flush()
    try:
        await (await asyncio.wait_for(waiting, 2 * PATIENCE_S)).release()
    except TimeoutError as late:
        raise Breach("a waiter was kept from a free lock") from late
    return Outcome("harmless", "a waiter lets only a few go first, and forgets the silent ones")


async def _renews_for_less(target: TargetMesh) -> Outcome:
    """Renew its own hold for less than is left, on a lane that new readers enter there.

    The hold is renewed again before it ends. Whoever enters at the short renewal must not find the
    lock free.
    """
    home, key = await _locker(target), f"entered-{os.urandom(4).hex()}"
    shortest_ms = target.host.node.session.control.rules.lease_min_ms
    async with assembly.join(home, "client") as connection:
        line = LockLine(connection.session, RENDER, key, "main")
        await line.look()
        for _ in range(ENTERED_FROM // 2):
            await line.take(TTL_MS)
            await line.release(_fence(line))
        await line.take(TTL_MS)
        fence = _fence(line)
        said = await line.take(shortest_ms, fence=fence)
        renewed_s = time.monotonic()
        await _sealed(target, line.lane.tails[0])
        if said.is_accepted:
            await asyncio.sleep(max(0.0, renewed_s + 1.2 * shortest_ms / 1000 - time.monotonic()))
        again = await line.take(TTL_MS, fence=fence)
        await target.host.node.reached(line.lane.tails[0])
        found = await _taken_by_a_newcomer(target, key)
        full = target.host.node.replica.lane(lock_key(RENDER, key)).state
        is_held = full is not None and full.hold is not None and full.hold.fence == fence
        if found and is_held and again.is_accepted:
            raise Breach("a reader that entered at its renewal holds a lock that is held")
        await line.release(fence)
    return Outcome("rules", f"shorter: {said.in_words}; then, longer: {again.in_words}")


def _fence(line: LockLine) -> str:
    if line.hold is None:
        raise Breach("this shows nothing, since it could not take a lock of its own")
    return line.hold.fence


async def _sealed(target: TargetMesh, seq: int) -> None:
    """Have the coordinator seal now, and not at the end of its bar."""
    sealer = Sealer(target.host.node, bar_s=0.0)
    async with asyncio.timeout(PATIENCE_S):
        await target.host.node.reached(seq)
        while target.host.node.seals.upto < seq:
            await sealer.seal()
            await target.host.node.reached(target.host.node.applied)


async def _taken_by_a_newcomer(target: TargetMesh, key: str) -> bool:
    async with Mesh.open(home=target.owner_home.path, role="client") as mesh:
        lock = await mesh.locks.try_take(key, scope=RENDER, ttl=30)
        if lock is not None:
            with suppress(AntiphonError):
                await lock.release()
    return lock is not None


def _own_chain(name: str, sign: Callable[[Forger, str], Signed]) -> Attempt:
    """A signed op with the chain for jobs that the contractor has."""

    async def act(target: TargetMesh) -> Outcome:
        forger = Forger(target)
        for scope in (SECRET, RENDER):
            record = sign(forger, scope)
            if not await target.connection.is_refused(record.subject, record.payload):
                raise Breach(f"the server took a record on {record.subject}")
        return DENIED

    return Attempt(name, act)


def _take_by_jobs(forger: Forger, scope: str) -> Signed:
    body = TakeBody(kind=scope, key=KEY, agent="main", ttl_ms=TTL_MS)
    return forger.sign(LockTake, body, auth=forger.chain("/job/claim"))


def _break_by_jobs(forger: Forger, scope: str) -> Signed:
    return forger.sign(LockBreak, BreakBody(kind=scope, key=KEY), auth=forger.chain("/job/claim"))


LOCK_ATTEMPTS: Final = [
    publish_attempt("write on a lock", f"ap.<m>.lock.{SECRET}.{NAME}"),
    publish_attempt("write on a lock of a scope named like its kind", f"ap.<m>.lock.{RENDER}.x"),
    publish_attempt("wait for a lock in the others' queue", f"apb.<m>.await.{RENDER}"),
    subscribe_attempt("hear who holds what", "apr.<m>.lock.>"),
    subscribe_attempt("hear the locks of a scope named like its kind", f"apr.<m>.lock.{RENDER}.*"),
    subscribe_attempt("hear who waits for locks", "apb.<m>.await.>"),
    _own_chain("take a lock with a chain for jobs", _take_by_jobs),
    _own_chain("break a lock with a chain for jobs", _break_by_jobs),
    _attempt("take a lock that is held", _rejected(Held.take, Verdict.LOCKED)),
    _attempt("take it as if its time were over", _rejected(_after_the_deadline, Verdict.DRIFT)),
    _attempt(
        "renew another's hold with its fence",
        _rejected(lambda held: held.take(fence=held.lock.fence), Verdict.NOT_CLAIMER),
    ),
    _attempt("renew it with a forged fence", _rejected(_forged_fence, Verdict.FENCE)),
    _attempt("release another's hold", _rejected(Held.release, Verdict.NOT_CLAIMER)),
    _attempt("release it in its holder's name", _rejected(_in_the_owners_name, Verdict.SIGNATURE)),
    _attempt("pass another's lock to itself", _rejected(_pass_to_itself, Verdict.NOT_CLAIMER)),
    _attempt("break a lock without the right to", _rejected(_break, Verdict.COMMAND)),
    _attempt("replay the holder's own take", _replays),
    _attempt("take a lock of a scope that its right is not for", _another_scope),
    Attempt("hold up a waiter with a crowd", _crowds_a_waiter),
    Attempt("renew for less where readers enter", _renews_for_less),
]
