"""How the outsider tries to wear the others down: by numbers, and by few things that cost much.

Floods are bounded in count and run beside the victim's work, which must go on meanwhile. What
costs much is written once, and everybody who has to look at it must still be quick.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from antiphon.core import subjects
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.grants import token_of
from antiphon.core.reasons import Reason
from antiphon.core.ucan import Policy
from antiphon.engines.nats import NatsEngine
from antiphon.engines.nats.streams import Streams
from antiphon.runtime import knocking
from antiphon.runtime.keys import SeedKeyring
from antiphon.sdk import authority
from antiphon.sdk.mesh import Mesh
from chaos.outsider_attempt import Attempt, Held
from chaos.outsider_forgeries import Forger, grants_of, tail_of
from chaos.outsider_headers import own
from chaos.outsider_line import Line, Pass, frame, header
from chaos.outsider_logins import asking, knock
from chaos.outsider_scene import PATIENCE_S, Breach, Scene

_BURST: Final = 50
_BEAT_S: Final = 0.02
"""A burst per beat: some thousands of messages a second, as one connection can send them."""
_BEARABLE_S: Final = 5.0
"""What one of the victim's jobs may take beside a flood."""
_MANY_CHAINS: Final = 70
"""More than anybody looks at when it looks for its own."""
_PIECES: Final = 5
_HELD_OFF_S: Final = 5.0
_SQUATTERS: Final = 10
_NOTICED_S: Final = 0.5
"""In which a gate notices a revocation, and shows out whom it concerns."""

Frames = Callable[[Scene, Line], Iterator[bytes]]

# --- floods -------------------------------------------------------------------------------------


async def _pour(
    line: Line, frames: Iterable[bytes], *, at_once: int = _BURST, beat_s: float = _BEAT_S
) -> int:
    sent = 0
    source = iter(frames)
    while burst := list(itertools.islice(source, at_once)):
        if not line.is_up:
            break
        await line.send(*burst)
        sent += len(burst)
        await asyncio.sleep(beat_s)
    await line.flush()
    return sent


async def _meanwhile(scene: Scene, flood: asyncio.Task[int], *, restarts: bool) -> float:
    """The victim's work while the flood runs, and once after it; the slowest, in seconds."""
    slowest = 0.0
    is_last = False
    while not is_last:
        is_last = flood.done()
        begun = time.monotonic()
        if restarts:
            await scene.restart_victim()
        await scene.pulse()
        slowest = max(slowest, time.monotonic() - begun)
        await asyncio.sleep(_BEAT_S)
    return slowest


def _flooding(
    name: str, count: int, frames: Frames, *, door: bool = False, restarts: bool = False
) -> Attempt:
    """`restarts`: the victim's worker comes back and logs in anew all the time."""

    async def act(scene: Scene) -> Held:
        access = scene.contractor.access()
        held = Pass(access.door_jwt, access.door_seed) if door else None
        line = await scene.enter(held=held)
        # It takes in all answers; what they hold is looked through later.
        for inbox in (line.inbox, f"apb.{scene.mesh}.inbox.{line.user}"):
            await line.send(b"SUB %b.flood %d\r\n" % (inbox.encode(), 1000 + len(inbox)))
        total = count * scene.rounds
        flood = asyncio.ensure_future(_pour(line, itertools.islice(frames(scene, line), total)))
        try:
            slowest = await _meanwhile(scene, flood, restarts=restarts)
        finally:
            flood.cancel()
            await asyncio.wait((flood,))
            await line.close()
        if slowest > _BEARABLE_S:
            raise Breach(f"the victim's job took {slowest:.1f} s meanwhile")
        sent = 0 if flood.cancelled() else flood.result()
        return Held("harmless", f"{sent} sent; the victim's job took at most {slowest:.2f} s")

    return Attempt(name, act)


def _reads(body: dict[str, Any]) -> Frames:
    def frames(scene: Scene, line: Line) -> Iterator[bytes]:
        text = json.dumps(body).encode()
        where = f"apg.{scene.mesh}.{line.user}.get"
        return itertools.repeat(frame(where, text, reply=f"{line.inbox}.flood"))

    return frames


def _logins(scene: Scene, line: Line) -> Iterator[bytes]:
    head = header(Antiphon_Reply=f"inbox.{line.user}.flood")
    return itertools.repeat(frame(f"apb.{scene.mesh}.gate.{line.user}.login", b"{}", head=head))


def _rolls(scene: Scene, line: Line) -> Iterator[bytes]:
    head = header(Antiphon_Reply=f"inbox.{line.user}.flood")
    return itertools.repeat(frame(f"apg.{scene.mesh}.{line.user}.roll", b"", head=head))


def _pulls(_scene: Scene, line: Line) -> Iterator[bytes]:
    where = f"$JS.API.CONSUMER.MSG.NEXT.{line.stream}.render=video=1"
    body = b'{"batch":1,"expires":1000000000}'
    return itertools.repeat(frame(where, body, reply=f"{line.inbox}.flood"))


def _settlements(_scene: Scene, line: Line) -> Iterator[bytes]:
    where = f"$JS.ACK.{line.stream}.render=video=1.1"
    words = (b"-NAK", b"+TERM", b"+WPI", b"+NXT", b"junk")
    for number in itertools.count(1):
        yield frame(f"{where}.{number}.{number}.1.0", words[number % len(words)])


def _junk(scene: Scene, _line: Line) -> Iterator[bytes]:
    subject = own(scene)
    return (frame(subject, b"%d" % number) for number in itertools.count())


def _junk_control(scene: Scene, _line: Line) -> Iterator[bytes]:
    subject = f"ap.{scene.mesh}.ctl.ucan.junk"
    return (frame(subject, b"%d" % number) for number in itertools.count())


def _own_delegations(scene: Scene, line: Line) -> Iterator[bytes]:
    forger = Forger(scene, SeedKeyring(os.urandom(32)))  # or its own allowance would be used up
    box = f"apg.{scene.mesh}.{line.user}.post"
    while True:
        made = forger.key.delegate(forger.delegation(forger.key.did))
        record = forger.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
        yield frame(box, record.payload, reply=f"{line.inbox}.flood")


async def _connections(scene: Scene) -> Held:
    lines = await asyncio.gather(*(scene.enter() for _ in range(40 * scene.rounds)))
    await scene.restart_victim()
    await scene.pulse()
    for line in lines:
        await line.close()
    return Held("harmless", f"{len(lines)} connections at once; the victim came back meanwhile")


async def _subscriptions(scene: Scene) -> Held:
    line = await scene.enter()
    count = 2_000 * scene.rounds
    frames = (b"SUB _I.%b.s%d %d\r\n" % (line.user.encode(), n, 100 + n) for n in range(count))
    await _pour(line, frames)
    await line.close()
    return Held("harmless", f"{count} subscriptions, all to its own inbox")


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
    _flooding("flood the gate with logins", 1_500, _logins, door=True, restarts=True),
    _flooding(
        "flood the gate with questions of 36,000 filters",
        40,
        _reads({"multi_last": ["a.>"] * 36_000}),
    ),
]

# --- what costs much ----------------------------------------------------------------------------


async def _unharmed(scene: Scene, why: str, *, for_s: float = 0.0) -> Held:
    """The victim comes back and works, now and for a while; a new client comes up quickly."""
    begun = time.monotonic()
    await asyncio.wait_for(scene.restart_victim(), PATIENCE_S)
    await scene.pulse()
    while time.monotonic() - begun < for_s:
        await scene.pulse()
        await asyncio.sleep(0.1)
    async with asyncio.timeout(PATIENCE_S), Mesh.open(home=scene.owner_home.path, role="client"):
        pass
    return Held("harmless", why)


def _many_grants(name: str, givers: Callable[[Scene], Iterator[Forger]]) -> Attempt:
    """Delegations to the victim's worker, more than anybody looks at."""

    async def act(scene: Scene) -> Held:
        worker = scene.working.worker
        if worker is None:
            raise Breach("the victim has no worker")
        verdicts: set[Reason] = set()
        for giver in itertools.islice(givers(scene), _MANY_CHAINS):
            verdicts.add((await giver.delegate(worker.peer.author.did, sub=None))[1])
        await scene.pulse()
        said = ", ".join(sorted(verdicts))
        return await _unharmed(scene, f"{_MANY_CHAINS} grants ({said}) stand in nobody's way")

    return Attempt(name, act)


def _nobodies(scene: Scene) -> Iterator[Forger]:
    while True:
        yield Forger(scene, SeedKeyring(os.urandom(32)))


def _itself(scene: Scene) -> Iterator[Forger]:
    return itertools.repeat(Forger(scene))


async def _grants_that_end(scene: Scene) -> Held:
    """Pass on its own right to the victim for a few seconds, on which no login may hang."""
    forger, lasting = Forger(scene), 1
    for extra in range(2):
        until = int(time.time()) + lasting + extra
        await forger.delegate(scene.victim.signer("machine").did, command="/job/claim", exp=until)
    return await _unharmed(
        scene, "the victim's login outlives what others passed on to it", for_s=lasting + 1.5
    )


async def _give_and_take(scene: Scene) -> Held:
    """Pass on its own right to the victim, and take it back: the victim's own rights remain."""
    forger, said = Forger(scene), set()
    for _ in range(2):
        cid, _ = await forger.delegate(scene.victim.signer("machine").did, command="/job/claim")
        await scene.restart_victim()
        prev = await tail_of(scene, subjects.control(scene.mesh, f"revoke.{cid}"))
        taken = forger.sign(UcanRevoke, RevokeBody(cid=cid), prev=prev)
        answer = await forger.post(taken)
        if not answer.get("seq"):
            raise Breach(f"this shows nothing, since the gate says {answer}")
        said.add(await scene.verdict(answer["seq"]))
        await asyncio.sleep(_NOTICED_S)
        await scene.pulse()
    words = ", ".join(sorted(said))
    return Held("harmless", f"{words}; the victim's login does not hang on it")


async def _queues_without_end(scene: Scene) -> Held:
    """Log in for ever new kinds: each has three queues, and a queue is never unmade."""
    access = scene.contractor.access()
    line = await scene.enter(held=Pass(access.door_jwt, access.door_seed))
    before = await _queues(scene)
    half = knocking.MAX_KINDS // 2
    for letter, count in (("z", half), ("y", half + 1)):
        kinds = [f"render.{letter}{number}" for number in range(count)]
        await knock(scene, line, "login", asking(scene, {"kinds": kinds}), within_s=20)
    await line.close()
    made, bound = await _queues(scene) - before, 3 * knocking.MAX_KINDS
    if made > bound:
        raise Breach(f"one member had {made} queues made; a login names up to {bound}")
    return Held("gate", f"{made} queues, and no more")


async def _queues(scene: Scene) -> int:
    engine = scene.owner.peer.engine
    if not isinstance(engine, NatsEngine):
        raise Breach("there is no server")
    info = await Streams(engine.log.pipeline).info(scene.line.stream)
    return int(info["state"]["consumer_count"]) if info else 0


async def _grants_of_many_kinds(scene: Scene) -> Held:
    """Pass on its own right to the victim, kind by kind."""
    forger, pieces = Forger(scene), 120
    begun = time.monotonic()
    for part in range(_PIECES):
        kinds = [["==", ".kind", f"render.k{part}x{number}"] for number in range(pieces)]
        await forger.delegate(
            scene.victim.signer("machine").did, command="/job/claim", pol=Policy([["or", kinds]])
        )
    await scene.pulse()
    held = await _unharmed(scene, "")
    return Held(held.wall, f"everybody was through with it in {time.monotonic() - begun:.1f} s")


async def _hold_off_revocation(scene: Scene) -> Held:
    """Keep writing where the owner's revocation belongs, on another machine of its own.

    The server lets it write nothing there. So it hands revocations of its own grant to the gate,
    signed by keys that stand above the owner in the book, since they have delegated to it.
    """
    home = await scene.join(f"squatter{os.urandom(2).hex()}")
    alias = home.access().alias
    await scene.host.node.peer.sync_control()
    cids = list(grants_of(scene, home.signer("machine").did).values())
    line = await scene.enter(home)
    above = [Forger(scene, SeedKeyring(os.urandom(32))) for _ in range(_SQUATTERS)]
    for forger in above:
        await forger.delegate(forger.owner)
    letters = [forger.sign(UcanRevoke, RevokeBody(cid=cid)) for forger in above for cid in cids]
    for letter in letters[: len(cids)]:
        answer = await above[0].post(letter, line)
        if "refused" not in answer:
            raise Breach(f"the gate said {answer}")
    box, to = f"apg.{scene.mesh}.{line.user}.post", f"{line.inbox}.flood"
    frames = [frame(box, letter.payload, reply=to) for letter in letters]
    many = itertools.islice(itertools.cycle(frames), 10_000)
    flood = asyncio.ensure_future(_pour(line, many, at_once=len(cids), beat_s=0.001))
    try:
        await asyncio.sleep(0.2)
        async with authority.with_authority(scene.owner_home.path) as mesh:
            begun = time.monotonic()
            async with asyncio.timeout(_HELD_OFF_S):
                await authority.revoke(mesh, alias)
                await line.ended.wait()
    except TimeoutError as late:
        raise Breach("the owner could not take its grant back") from late
    finally:
        flood.cancel()
        await asyncio.wait((flood,))
    return Held("gate", f"it stores none; revoked and gone after {time.monotonic() - begun:.2f} s")


WEARING: Final = [
    _many_grants("many grants by nobody, to the victim's worker", _nobodies),
    _many_grants("many grants of its own, to the victim's worker", _itself),
    Attempt("grants to the victim that soon end", _grants_that_end),
    Attempt("a grant to the victim that is taken back", _give_and_take),
    Attempt("hold off its revocation", _hold_off_revocation),
    Attempt("queues without end", _queues_without_end),
    Attempt("grants to the victim of 600 kinds", _grants_of_many_kinds),
]
