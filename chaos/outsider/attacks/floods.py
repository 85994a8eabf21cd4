"""Floods of the outsider: many messages, and few that cost others much.

Floods are bounded in count and run beside the victim's work, which must go on meanwhile. What
costs much is written once, and every member that has to read it must still be quick.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import Policy
from antiphon.engines.nats import NatsEngine
from antiphon.engines.nats.log.streams import Streams
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from chaos.network.raw_connection import Credentials, RawConnection, frame, header
from chaos.outsider.attacks.forgeries import Forger, grants_of, tail_of
from chaos.outsider.attacks.headers import own_subject
from chaos.outsider.attacks.logins import ask_gate, signed_request
from chaos.outsider.attempt import Attempt, Outcome
from chaos.outsider.target import PATIENCE_S, Breach, TargetMesh

_BURST: Final = 50
_BEAT_S: Final = 0.02
"""A burst per beat: some thousands of messages a second, as one connection can send them."""
_BEARABLE_S: Final = 40.0
"""What one of the victim's jobs may take beside a flood."""
_MANY_CHAINS: Final = 70
"""More than a member looks at when it looks for its own."""
_PIECES: Final = 5
_HELD_OFF_S: Final = 40.0
_SQUATTERS: Final = 10
_NOTICED_S: Final = 0.5
"""In this time a gate notices a revocation and ends the connections of that member."""

Frames = Callable[[TargetMesh, RawConnection], Iterator[bytes]]

# --- floods -------------------------------------------------------------------------------------


async def _send_all(
    connection: RawConnection,
    frames: Iterable[bytes],
    *,
    at_once: int = _BURST,
    beat_s: float = _BEAT_S,
) -> int:
    sent = 0
    source = iter(frames)
    while burst := list(itertools.islice(source, at_once)):
        if not connection.is_open:
            return sent
        await connection.send(*burst)
        sent += len(burst)
        await asyncio.sleep(beat_s)
    if connection.is_open:
        await connection.flush()
    return sent


async def _meanwhile(target: TargetMesh, flood: asyncio.Task[int], *, restarts: bool) -> float:
    """The victim's work while the flood runs, and once after it; the slowest, in seconds."""
    slowest = 0.0
    is_last = False
    while not is_last:
        is_last = flood.done()
        begun = time.monotonic()
        if restarts:
            await target.restart_victim()
        await target.check_work()
        slowest = max(slowest, time.monotonic() - begun)
        await asyncio.sleep(_BEAT_S)
    return slowest


def _flooding(
    name: str, count: int, frames: Frames, *, refresh_key: bool = False, restarts: bool = False
) -> Attempt:
    """`restarts`: the victim's worker restarts and logs in again all the time."""

    async def act(target: TargetMesh) -> Outcome:
        access = target.contractor.access()
        credentials = Credentials(access.refresh_jwt, access.refresh_seed) if refresh_key else None
        connection = await target.connect(credentials=credentials)
        # It takes in all answers; what they hold is looked through later.
        for inbox in (connection.inbox, f"apb.{target.mesh}.inbox.{connection.user}"):
            await connection.send(b"SUB %b.flood %d\r\n" % (inbox.encode(), 1000 + len(inbox)))
        total = target.scaled(count)
        flood = asyncio.ensure_future(
            _send_all(connection, itertools.islice(frames(target, connection), total))
        )
        try:
            slowest = await _meanwhile(target, flood, restarts=restarts)
        finally:
            flood.cancel()
            await asyncio.wait((flood,))
            await connection.close()
        if slowest > _BEARABLE_S:
            raise Breach(f"the victim's job took {slowest:.1f} s meanwhile")
        sent = 0 if flood.cancelled() else flood.result()
        return Outcome("harmless", f"{sent} sent; the victim's job took at most {slowest:.2f} s")

    return Attempt(name, act)


def _reads(body: dict[str, Any]) -> Frames:
    def frames(target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
        text = json.dumps(body).encode()
        where = f"apg.{target.mesh}.{connection.user}.get"
        return itertools.repeat(frame(where, text, reply=f"{connection.inbox}.flood"))

    return frames


def _logins(target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
    head = header(Antiphon_Reply=f"inbox.{connection.user}.flood")
    return itertools.repeat(
        frame(f"apb.{target.mesh}.gate.{connection.user}.login", b"{}", head=head)
    )


def _rolls(target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
    head = header(Antiphon_Reply=f"inbox.{connection.user}.flood")
    return itertools.repeat(frame(f"apg.{target.mesh}.{connection.user}.roll", b"", head=head))


def _pulls(_target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
    where = f"$JS.API.CONSUMER.MSG.NEXT.{connection.stream}.render=video=normal"
    body = b'{"batch":1,"expires":1000000000}'
    return itertools.repeat(frame(where, body, reply=f"{connection.inbox}.flood"))


def _settlements(_target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
    where = f"$JS.ACK.{connection.stream}.render=video=normal.1"
    words = (b"-NAK", b"+TERM", b"+WPI", b"+NXT", b"junk")
    for number in itertools.count(1):
        yield frame(f"{where}.{number}.{number}.1.0", words[number % len(words)])


def _junk(target: TargetMesh, _connection: RawConnection) -> Iterator[bytes]:
    subject = own_subject(target)
    return (frame(subject, b"%d" % number) for number in itertools.count())


def _junk_control(target: TargetMesh, _connection: RawConnection) -> Iterator[bytes]:
    subject = f"ap.{target.mesh}.ctl.ucan.junk"
    return (frame(subject, b"%d" % number) for number in itertools.count())


def _own_delegations(target: TargetMesh, connection: RawConnection) -> Iterator[bytes]:
    forger = Forger(target, SeedKeyring(os.urandom(32)))  # or its own allowance would be used up
    box = f"apg.{target.mesh}.{connection.user}.post"
    while True:
        made = forger.key.delegate(forger.delegation(forger.key.did))
        record = forger.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
        yield frame(box, record.payload, reply=f"{connection.inbox}.flood")


async def _connections(target: TargetMesh) -> Outcome:
    connections = await asyncio.gather(*(target.connect() for _ in range(target.scaled(40))))
    await target.restart_victim()
    await target.check_work()
    for connection in connections:
        await connection.close()
    return Outcome(
        "harmless", f"{len(connections)} connections at once; the victim came back meanwhile"
    )


async def _subscriptions(target: TargetMesh) -> Outcome:
    connection = await target.connect()
    count = target.scaled(2_000)
    frames = (
        b"SUB _I.%b.s%d %d\r\n" % (connection.user.encode(), n, 100 + n) for n in range(count)
    )
    await _send_all(connection, frames)
    await connection.close()
    return Outcome("harmless", f"{count} subscriptions, all to its own inbox")


FLOODS: Final = [
    _flooding("flood the gate with reads", 400, _reads({"seq": 1, "batch": 4096})),
    _flooding(
        "flood the gate with reads of nothing", 1_000, _reads({"seq": 1, "next_by_subj": "x.>"})
    ),
    _flooding("flood the roll", 1_000, _rolls),
    _flooding("flood its own queue with pulls", 1_000, _pulls),
    _flooding("flood its own queue with acknowledgements", 1_000, _settlements),
    _flooding("flood a job of its own kind", 500, _junk),
    _flooding("flood the control ops with junk", 200, _junk_control),
    _flooding("flood the control ops with grants to itself", 100, _own_delegations),
    Attempt("flood the server with connections", _connections),
    Attempt("flood the server with subscriptions", _subscriptions),
    _flooding("flood the gate with logins", 1_500, _logins, refresh_key=True, restarts=True),
    _flooding(
        "flood the gate with questions of 36,000 filters",
        40,
        _reads({"multi_last": ["a.>"] * 36_000}),
    ),
]

# --- what costs much ----------------------------------------------------------------------------


async def _unharmed(target: TargetMesh, why: str, *, for_s: float = 0.0) -> Outcome:
    """The victim comes back and works, now and for a while; a new client comes up quickly."""
    begun = time.monotonic()
    await asyncio.wait_for(target.restart_victim(), PATIENCE_S)
    await target.check_work()
    while time.monotonic() - begun < for_s:
        await target.check_work()
        await asyncio.sleep(0.1)
    async with asyncio.timeout(PATIENCE_S), Mesh.open(home=target.owner_home.path, role="client"):
        pass
    return Outcome("harmless", why)


def _many_grants(name: str, givers: Callable[[TargetMesh], Iterator[Forger]]) -> Attempt:
    """Delegations to the victim's worker, more than a member looks at."""

    async def act(target: TargetMesh) -> Outcome:
        worker = target.working.worker
        if worker is None:
            raise Breach("the victim has no worker")
        verdicts: set[Verdict] = set()
        for giver in itertools.islice(givers(target), _MANY_CHAINS):
            verdicts.add((await giver.delegate(worker.session.author.did, sub=None))[1])
        await target.check_work()
        said = ", ".join(sorted(verdicts))
        return await _unharmed(target, f"{_MANY_CHAINS} grants ({said}) stand in nobody's way")

    return Attempt(name, act)


def _nobodies(target: TargetMesh) -> Iterator[Forger]:
    while True:
        yield Forger(target, SeedKeyring(os.urandom(32)))


def _itself(target: TargetMesh) -> Iterator[Forger]:
    return itertools.repeat(Forger(target))


async def _grants_that_end(target: TargetMesh) -> Outcome:
    """Delegate its own right to the victim for a few seconds; no login may depend on that."""
    forger, lasting = Forger(target), 1
    for extra in range(2):
        until = int(time.time()) + lasting + extra
        await forger.delegate(target.victim.signer("machine").did, command="/job/claim", exp=until)
    return await _unharmed(
        target, "the victim's login outlives what others passed on to it", for_s=lasting + 1.5
    )


async def _give_and_take(target: TargetMesh) -> Outcome:
    """Delegate its right to the victim and revoke it: the victim's own rights remain."""
    forger, said = Forger(target), set()
    for _ in range(2):
        cid, _ = await forger.delegate(target.victim.signer("machine").did, command="/job/claim")
        await target.restart_victim()
        prev = await tail_of(target, subjects.control(target.mesh, f"revoke.{cid}"))
        taken = forger.sign(UcanRevoke, RevokeBody(cid=cid), prev=prev)
        answer = await forger.post(taken)
        if not answer.get("seq"):
            raise Breach(f"this shows nothing, since the gate says {answer}")
        said.add(await target.verdict(answer["seq"]))
        await asyncio.sleep(_NOTICED_S)
        await target.check_work()
    words = ", ".join(sorted(said))
    return Outcome("harmless", f"{words}; the victim's login does not hang on it")


async def _queues_without_end(target: TargetMesh) -> Outcome:
    """Log in for more and more new kinds: each has three queues, and queues are never removed."""
    access = target.contractor.access()
    connection = await target.connect(
        credentials=Credentials(access.refresh_jwt, access.refresh_seed)
    )
    before = await _queues(target)
    half = gate_requests.MAX_KINDS // 2
    for letter, count in (("z", half), ("y", half + 1)):
        kinds = [f"render.{letter}{number}" for number in range(count)]
        await ask_gate(
            target, connection, "login", signed_request(target, {"kinds": kinds}), within_s=20
        )
    await connection.close()
    made, bound = await _queues(target) - before, 3 * gate_requests.MAX_KINDS
    if made > bound:
        raise Breach(f"one member had {made} queues made; a login names up to {bound}")
    return Outcome("gate", f"{made} queues, and no more")


async def _queues(target: TargetMesh) -> int:
    engine = target.owner.connection.session.engine
    if not isinstance(engine, NatsEngine):
        raise Breach("there is no server")
    info = await Streams(engine.log.requester).info(target.connection.stream)
    return int(info["state"]["consumer_count"]) if info else 0


async def _grants_of_many_kinds(target: TargetMesh) -> Outcome:
    """Delegate its own right to the victim, kind by kind."""
    forger, pieces = Forger(target), 120
    begun = time.monotonic()
    for piece in range(_PIECES):
        kinds = [["==", ".kind", f"render.k{piece}x{number}"] for number in range(pieces)]
        await forger.delegate(
            target.victim.signer("machine").did, command="/job/claim", pol=Policy([["or", kinds]])
        )
    await target.check_work()
    outcome = await _unharmed(target, "")
    return Outcome(
        outcome.wall, f"everybody was through with it in {time.monotonic() - begun:.1f} s"
    )


async def _hold_off_revocation(target: TargetMesh) -> Outcome:
    """Keep writing where the owner's revocation belongs, on another machine of its own.

    The server lets it write nothing there. So it hands revocations of its own grant to the gate,
    signed by keys that stand above the owner in the book, since they have delegated to it.
    """
    home = await target.join(f"squatter{os.urandom(2).hex()}")
    alias = home.access().alias
    await target.host.node.session.sync_control()
    cids = list(grants_of(target, home.signer("machine").did).values())
    connection = await target.connect(home)
    above = [Forger(target, SeedKeyring(os.urandom(32))) for _ in range(_SQUATTERS)]
    for forger in above:
        await forger.delegate(forger.owner)
    letters = [forger.sign(UcanRevoke, RevokeBody(cid=cid)) for forger in above for cid in cids]
    for letter in letters[: len(cids)]:
        answer = await above[0].post(letter, connection)
        if "refused" not in answer:
            raise Breach(f"the gate said {answer}")
    box, to = f"apg.{target.mesh}.{connection.user}.post", f"{connection.inbox}.flood"
    frames = [frame(box, letter.payload, reply=to) for letter in letters]
    many = itertools.islice(itertools.cycle(frames), 10_000)
    flood = asyncio.ensure_future(_send_all(connection, many, at_once=len(cids), beat_s=0.001))
    try:
        await asyncio.sleep(0.2)
        async with with_authority(target.owner_home.path) as mesh:
            begun = time.monotonic()
            async with asyncio.timeout(_HELD_OFF_S):
                await mesh.authority.revoke(alias)
                await connection.ended.wait()
    except TimeoutError as late:
        raise Breach("the owner could not take its grant back") from late
    finally:
        flood.cancel()
        await asyncio.wait((flood,))
    return Outcome(
        "gate", f"it stores none; revoked and gone after {time.monotonic() - begun:.2f} s"
    )


WEARING: Final = [
    _many_grants("many grants by nobody, to the victim's worker", _nobodies),
    _many_grants("many grants of its own, to the victim's worker", _itself),
    Attempt("grants to the victim that soon end", _grants_that_end),
    Attempt("a grant to the victim that is taken back", _give_and_take),
    Attempt("hold off its revocation", _hold_off_revocation),
    Attempt("queues without end", _queues_without_end),
    Attempt("grants to the victim of 600 kinds", _grants_of_many_kinds),
]
