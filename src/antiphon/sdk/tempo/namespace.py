"""`mesh.tempo`: time in beats (docs/understand/time.md).

mesh = Mesh.open()

@mesh.tempo.on_downbeat
async def tidy(beat: Beat) -> None: ...

async with mesh:
    print((await mesh.tempo.now()).phase)
    await mesh.tempo.status("executing", task="render.video/night", progress=0.4)
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.scope import may_keep_time
from antiphon.core.bus.subjects import STATUS
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.record.ids import short_node
from antiphon.core.record.subjects import check_kind, is_kind
from antiphon.core.tempo.messages import StatusClaim, TaskState
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.core.tempo.pulse_view import degraded_words
from antiphon.core.tempo.time_text import hlc_text
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.presence.roll_call import roll_call
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS
from antiphon.sdk.defaults import ROLL_CALL_S
from antiphon.sdk.tempo.bar_reports import bar_reports
from antiphon.sdk.tempo.tempo_history import tempo_history
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from antiphon.core.presence.cards import Card
    from antiphon.core.tempo.addresses import Address
    from antiphon.core.tempo.phases import Phase, Phases
    from antiphon.core.tempo.pulse_view import Mode
    from antiphon.core.tempo.tempo_history import TempoHistory
    from antiphon.runtime.replica.replica_reports import KeptReport
    from antiphon.runtime.tempo.beat_clock import BeatClock
    from antiphon.runtime.tempo.help_threads import HelpAsked
    from antiphon.sdk.connection.connection import Connection

OnBeat = TypeVar("OnBeat", bound="Callable[[Beat], Any]")
_log = LazyLogger(__name__)


class TempoNow(Struct, frozen=True, kw_only=True):
    """How a mesh counts time right now, as one process knows it."""

    bpm: int
    bar_len: int
    beat: Beat
    """Its index in the bar and when it began."""
    phase: Phase
    phases: Phases
    mode: Mode
    leader: str
    """The node that sends the beats; empty without one."""
    term: int
    degraded: str
    """Why no leader is followed; empty if one is."""
    frozen: bool
    """Whether the adaptation may not change the tempo: by the operator, or without a leader."""
    policy: TempoPolicy
    policy_hash: str
    differing: dict[str, str]
    """Nodes that send beats by another policy, and its hash."""


class BeatCalls:
    """Calls functions on beats while a mesh is open."""

    def __init__(self, connection: Connection) -> None:
        """Nothing runs before the first function is added and the mesh is open."""
        self._connection = connection
        self._calls: list[tuple[Callable[[Beat], Any], bool]] = []
        self._clock: BeatClock | None = None

    def add(self, call: Callable[[Beat], Any], *, only_downbeats: bool) -> None:
        """Call it from the next beat on."""
        if not self._calls:
            self._connection.on_open.append(self._begin)
        self._calls.append((call, only_downbeats))
        if self._connection.is_open:
            self._begin()

    def _begin(self) -> None:
        clock = self._connection.clock
        if self._clock is not clock:  # each time that the mesh is opened
            self._clock = clock
            task = asyncio.ensure_future(self._follow(clock))
            self._connection.on_close(partial(_end, task))

    async def _follow(self, clock: BeatClock) -> None:
        async with clock.listen() as beats:
            async for beat in beats:
                for call, only_downbeats in self._calls:
                    if beat.is_downbeat or not only_downbeats:
                        await self._call(call, beat)

    async def _call(self, call: Callable[[Beat], Any], beat: Beat) -> None:
        try:
            answer = call(beat)
            if inspect.isawaitable(answer):
                await answer
        except Exception as problem:  # noqa: BLE001 - one function must not stop the others
            _log.error(
                "beat_call_failed",
                function=getattr(call, "__qualname__", repr(call)),
                problem=f"{type(problem).__name__}: {problem}",
            )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Tempo:
    """Time in beats, and what happened in the bars that have ended."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.tempo`."""
        self._connection = connection
        self._beat_calls = BeatCalls(connection)

    @property
    def clock(self) -> BeatClock:
        """The beats, as this process knows them."""
        return self._connection.clock

    @property
    def policy(self) -> TempoPolicy:
        """The tempo policy, as far as the log was read."""
        return self._connection.session.control.tempo

    async def history(self) -> TempoHistory:
        """Which beat it was at any time, by the tempo and the policy that held then.

        stamp = (await mesh.tempo.history()).at(line.commit_ms)
        print(stamp.beat, stamp.phase)

        Policies are on the log. What leaders changed beyond them is what a node of this machine has
        heard.
        """
        return await tempo_history(self._connection)

    def on_beat(self, function: OnBeat) -> OnBeat:
        """Call a function at every beat while the mesh is open; also a decorator.

        The next beat is waited for once it has returned, so a slow one misses beats.
        """
        self._beat_calls.add(function, only_downbeats=False)
        return function

    def on_downbeat(self, function: OnBeat) -> OnBeat:
        """Call a function at the first beat of every bar."""
        self._beat_calls.add(function, only_downbeats=True)
        return function

    async def now(self) -> TempoNow:
        """The tempo in force; listens for up to a beat and a quarter to hear a leader."""
        clock = self.clock
        async with clock.listen():
            with suppress(TimeoutError):
                async with asyncio.timeout(clock.meter().beat_ms * 5 / 4000):
                    while clock.mode() == "local":  # noqa: ASYNC110 - frames come from elsewhere
                        await asyncio.sleep(0.02)
        return tempo_now(clock)

    async def set(self, policy: TempoPolicy | Mapping[str, Any]) -> TempoPolicy:
        """Replace the tempo policy, from the next downbeat on; only the owner can."""
        policy = policy if isinstance(policy, TempoPolicy) else read_policy(policy)
        session = self._connection.session
        control = await session.sync_control()
        if session.author.did != control.owner:
            raise Rejected(
                f"only the owner of this mesh, {short_node(control.owner)}, may set the tempo",
                reason="not_owner",
                hint="run it on the machine that has the owner's key",
            )
        if policy != control.tempo:
            await write_one(session, Intent(MeshTempo, TempoBody(policy=policy)), BEHIND)
        return policy

    async def freeze(self) -> TempoPolicy:
        """Hold the tempo where it is, whatever the load is; only the owner can."""
        return await self._freeze(is_frozen=True)

    async def unfreeze(self) -> TempoPolicy:
        """Let the adaptation change the tempo again, if the policy enables it."""
        return await self._freeze(is_frozen=False)

    async def _freeze(self, *, is_frozen: bool) -> TempoPolicy:
        policy = (await self._connection.session.sync_control()).tempo
        adaptation = replace(policy.adaptation, frozen=is_frozen)
        return await self.set(replace(policy, adaptation=adaptation))

    async def status(  # noqa: PLR0913 - one argument per thing a person can say
        self,
        state: TaskState,
        *,
        task: str,
        progress: float = 0.0,
        beats_left: int = 0,
        wait_for: Sequence[str] = (),
        notes: str = "",
        cpu: float | None = None,
        gpu: float | None = None,
    ) -> StatusClaim:
        """Say what this process is doing, outside of jobs; workers say it about jobs by themselves.

        `task` is `KIND/NAME`: nodes that may read the kind hear it, those that work on it may say
        it. `cpu` and `gpu` are how much of the machine's processors and GPUs is in use, 0 to 1: an
        adaptive tempo follows the higher of the two. Workers say the first; only you know the
        second.
        """
        kind, _, name = task.partition("/")
        if not name or not is_kind(kind):
            raise Malformed(
                f"{task!r} does not say which kind it belongs to",
                reason="task",
                hint="write KIND/NAME, such as render.video/night",
            )
        session, key = self._connection.session, self._connection.keyring
        claim = StatusClaim(
            agent_id=key.did,
            task_id=task,
            beat_index=self._connection.clock.beat().index,
            state=state,
            hlc=hlc_text(session.author.now()),
            wait_for=tuple(wait_for),
            beats_left=beats_left,
            progress=progress,
            notes=notes,
            cpu=cpu,
            gpu=gpu,
        )
        where = STATUS.at(kind=kind)
        payload = STATUS_CLAIMS.sign(
            claim,
            (key.did, key.sign),
            mesh=session.mesh,
            subject=where,
            at_ms=session.wall.now_ms(),
        )
        await session.engine.bus.publish(where, payload)
        return claim

    def on_help(self, kind: str) -> AsyncIterator[HelpAsked]:
        """Requests for help with jobs of a kind, from now on (docs/do/scores.md).

        async for asked in mesh.tempo.on_help("report.render"):
            await asked.promise(2)
            await asked.answer("use the other font")
        """
        from antiphon.runtime.tempo.help_threads import help_asked

        return help_asked(self._connection.session, check_kind(kind))

    async def reports(self, address: str | Address = "", *, last: int = 1) -> list[KeptReport]:
        """The newest `last` reports up to a time such as `;beats=~~16`, the oldest of them first.

        With a job, such as `3f9a`: the newest of the bars in which it waited or ran. A node of this
        machine has to have made them: run `antiphon node`.
        """
        return await bar_reports(self._connection, address, last=last)

    def timekeepers(self, cards: Iterable[Card]) -> list[Card]:
        """The nodes that may send beats, and say what they count by; who leads comes first."""
        session = self._connection.session
        now_s = session.wall.now_ms() // 1000
        able = [
            card
            for card in cards
            if card.pulse is not None and may_keep_time(session.control, card.node, now_s)
        ]
        return sorted(able, key=lambda card: (not (card.pulse and card.pulse.leads), card.node))

    async def beat_s(self) -> float:
        """How long a beat takes now, in seconds; if nobody answers, by the policy."""
        session = self._connection.session
        policy = (await session.sync_control()).tempo
        if policy.adaptation.enable:
            # What nodes say in a roll call: nobody has to wait for a beat.
            leading = next(
                iter(self.timekeepers(await roll_call(session, wait_s=ROLL_CALL_S))), None
            )
            if leading is not None and leading.pulse is not None and leading.pulse.leads:
                return 60 / leading.pulse.bpm
        return policy.meter.beat_ms / 1000


def tempo_now(clock: BeatClock) -> TempoNow:
    """What a clock says, for people."""
    view, mode, meter = clock.view, clock.mode(), clock.meter()
    policy = view.policy
    return TempoNow(
        bpm=meter.bpm,
        bar_len=meter.bar_len,
        beat=clock.beat(),
        phase=clock.phase(),
        phases=clock.phases(),
        mode=mode,
        leader=clock.leader(),
        term=view.term if mode == "leader" else 0,
        degraded=degraded_words(mode, is_other_policy=bool(view.differing)),
        frozen=policy.adaptation.frozen or mode != "leader",
        policy=policy,
        policy_hash=policy_hash(policy),
        differing=dict(view.differing),
    )
