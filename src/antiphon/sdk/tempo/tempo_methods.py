"""Time in beats for programs (docs/explanation/time.md).

mesh = Mesh.open()

@mesh.on_downbeat
async def tidy(beat: Beat) -> None: ...

async with mesh:
    print((await mesh.tempo()).phase)
    await mesh.status("executing", task="render.video/night", progress=0.4)
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.bus.subjects import STATUS
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.record.ids import short_node
from antiphon.core.record.subjects import is_kind
from antiphon.core.tempo.messages import StatusClaim, TaskState
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.core.tempo.pulse_view import degraded_words
from antiphon.core.tempo.time_text import hlc_text
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.tempo_messages import STATUS_CLAIMS
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antiphon.assembly import MeshConnection
    from antiphon.core.tempo.phases import Phase, Phases
    from antiphon.core.tempo.pulse_view import Mode
    from antiphon.runtime.log.session import Session

OnBeat = TypeVar("OnBeat", bound="Callable[[Beat], Any]")
_log = LazyLogger(__name__)


class Tempo(Struct, frozen=True, kw_only=True):
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

    def __init__(self) -> None:
        """Nothing runs before `begin`."""
        self._calls: list[tuple[Callable[[Beat], Any], bool]] = []
        self._task: asyncio.Task[None] | None = None
        self._clock: BeatClock | None = None

    def add(self, call: Callable[[Beat], Any], *, only_downbeats: bool) -> None:
        """Call it from the next beat on."""
        self._calls.append((call, only_downbeats))
        self._run()

    def begin(self, clock: BeatClock) -> None:
        """The mesh was opened."""
        self._clock = clock
        self._run()

    async def end(self) -> None:
        """The mesh is about to be closed."""
        task, self._task, self._clock = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def forget(self) -> None:
        """Begin anew, in a forked child: the task is the parent's."""
        self._task = self._clock = None

    def _run(self) -> None:
        if self._calls and self._clock is not None and self._task is None:
            self._task = asyncio.ensure_future(self._follow(self._clock))

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


class TempoMethods:
    """What `Mesh` can do with time."""

    _beat_calls: BeatCalls
    _clock: BeatClock | None

    if TYPE_CHECKING:

        @property
        def session(self) -> Session:
            """See `Mesh`."""

        @property
        def connection(self) -> MeshConnection:
            """See `Mesh`."""

    @property
    def clock(self) -> BeatClock:
        """The beats, as this process knows them."""
        if self._clock is None:
            self._clock = BeatClock(self.session)
        return self._clock

    @property
    def tempo_policy(self) -> TempoPolicy:
        """The tempo policy, as far as the log was read."""
        return self.session.control.tempo

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

    async def tempo(self) -> Tempo:
        """The tempo in force; listens for up to a beat and a quarter to hear a leader."""
        clock = self.clock
        async with clock.listen():
            with suppress(TimeoutError):
                async with asyncio.timeout(clock.meter().beat_ms * 5 / 4000):
                    while clock.mode() == "local":  # noqa: ASYNC110 - frames come from elsewhere
                        await asyncio.sleep(0.02)
        return tempo_now(clock)

    async def set_tempo(self, policy: TempoPolicy | Mapping[str, Any]) -> TempoPolicy:
        """Replace the tempo policy, from the next downbeat on; only the owner can."""
        policy = policy if isinstance(policy, TempoPolicy) else read_policy(policy)
        control = await self.session.sync_control()
        if self.session.author.did != control.owner:
            raise Rejected(
                f"only the owner of this mesh, {short_node(control.owner)}, may set the tempo",
                reason="not_owner",
                hint="run it on the machine that has the owner's key",
            )
        if policy != control.tempo:
            await write_one(self.session, Intent(MeshTempo, TempoBody(policy=policy)), BEHIND)
        return policy

    async def freeze_tempo(self) -> TempoPolicy:
        """Hold the tempo where it is, whatever the load is; only the owner can."""
        return await self._freeze(is_frozen=True)

    async def unfreeze_tempo(self) -> TempoPolicy:
        """Let the adaptation change the tempo again, if the policy enables it."""
        return await self._freeze(is_frozen=False)

    async def _freeze(self, *, is_frozen: bool) -> TempoPolicy:
        policy = (await self.session.sync_control()).tempo
        adaptation = replace(policy.adaptation, frozen=is_frozen)
        return await self.set_tempo(replace(policy, adaptation=adaptation))

    async def status(
        self,
        state: TaskState,
        *,
        task: str,
        progress: float = 0.0,
        beats_left: int = 0,
        wait_for: Sequence[str] = (),
        notes: str = "",
    ) -> StatusClaim:
        """Say what this process is doing, outside of jobs; workers say it about jobs by themselves.

        `task` is `KIND/NAME`: nodes that may read the kind hear it, those that work on it may say
        it.
        """
        kind, _, name = task.partition("/")
        if not name or not is_kind(kind):
            raise Malformed(
                f"{task!r} does not say which kind it belongs to",
                reason="task",
                hint="write KIND/NAME, such as render.video/night",
            )
        session, key = self.session, self.connection.keyring
        claim = StatusClaim(
            agent_id=key.did,
            task_id=task,
            beat_index=self.clock.beat().index,
            state=state,
            hlc=hlc_text(session.author.now()),
            wait_for=tuple(wait_for),
            beats_left=beats_left,
            progress=progress,
            notes=notes,
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


def tempo_now(clock: BeatClock) -> Tempo:
    """What a clock says, for people."""
    view, mode, meter = clock.view, clock.mode(), clock.meter()
    policy = view.policy
    return Tempo(
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
