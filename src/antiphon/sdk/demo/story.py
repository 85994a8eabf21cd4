"""The demonstration: what happens on a mesh when machines fail, stall, lose their rights, or lie.

Everything is real: a server with TLS, three machines that join with tickets and sign with keys of
their own, worker processes that are killed and stopped by signals. Only the times are shorter than
usual: leases of two seconds, a seal every two.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from antiphon.assembly import owned_replica, replicating
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.proof.output import Output
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.writer import Intent, Policy, write_one
from antiphon.sdk.demo.machine import Machine
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.log_watch import event_of
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs import bundles

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.log_watch import Event

NAMES: Final = ("north", "south", "east")
KINDS: Final = ("example.*",)
RULES: Final = Rules(max_drift_ms=500, lease_min_ms=1_000, lease_ms=2_000, lease_ms_max=4_000)
SEAL_EVERY_S: Final = 2.0
JOBS: Final = 30
WORK_S: Final = 3.0
"""How long a job takes during which its worker fails."""
ALL_THE_SAME: Final = Policy(insists=False)
"""Workers foresee the verdict, and do not write what would be rejected; this writes it."""
PATIENCE_S: Final = 60.0
"""For each single thing that must happen."""

Say = Callable[[str, str], None]
"""Is told what happened, in words, and how it ended: `succeeded`, `failed` or empty."""


class Shown(Struct, frozen=True, kw_only=True):
    """What the demonstration showed."""

    machines: int
    jobs: int
    seconds_to_first_verified: float
    """From the start until one job had run, was sealed, and its bundle was verified."""
    takeover: float
    """Seconds from the kill of a worker until another one had claimed its job."""
    stale_refused: str
    """On the result that a worker signed after another one had taken over its job."""
    revoked_refused: str
    """What a machine is told that lost its rights."""
    tamper_refused: str
    """Why a bundle with one changed byte is refused."""
    seconds_total: float

    @property
    def is_as_promised(self) -> bool:
        """Whether everything that had to be refused was."""
        return self.stale_refused == Verdict.FENCE and bool(
            self.revoked_refused and self.tamper_refused
        )

    def facts(self) -> dict[str, object]:
        """The same for programs."""
        return structs.asdict(self)


class Stage:
    """The running mesh: its owner, a full node, and the machines."""

    def __init__(self, owner: Mesh, node: FullNode, machines: list[Machine]) -> None:
        self.owner = owner
        self.machines = machines
        self._events: list[Event] = []
        self._more = asyncio.Event()
        node.watchers.append(lambda applied: self._note(event_of(applied)))

    def _note(self, event: Event) -> None:
        self._events.append(event)
        self._more.set()

    async def event(self, is_it: Callable[[Event], bool]) -> Event:
        """Wait for a record that the full node judged."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self._more.clear()
                for event in self._events:
                    if is_it(event):
                        return event
                await self._more.wait()

    async def claimed(self, job: JobHandle[Any], *, besides: str = "") -> Machine:
        """Wait for the claim of a job; the machine whose worker it is."""
        claim = await self.event(
            lambda one: (
                one.job_id == job.id
                and one.op == "job.claim"
                and one.verdict is Verdict.OK
                and one.author != besides
            )
        )
        return next(one for one in self.machines if one.worker == claim.author)


Then = Callable[[Mesh], Awaitable[None]]


async def _nothing(_: Mesh) -> None:
    """Do nothing more."""


async def perform(
    directory: Path, say: Say, last_acts: list[Callable[[], None]], then: Then = _nothing
) -> Shown:
    """Show everything, in an empty directory; whatever was started has ended afterwards.

    `then` is called with the owner's mesh before that. Whoever cannot wait for the end calls
    `last_acts`, which end every process that was started.
    """
    begun = time.monotonic()
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        enter, home = stack.enter_async_context, directory / "owner"
        hosting = await enter(
            hosted_mesh.found_and_host(home, name="demo", listen=listen, rules=RULES)
        )
        last_acts.append(hosting.kill_server)
        owner = await enter(Mesh.open(home=home))
        node = await enter(_full_node(owner))
        await hosting.coordinate(node)
        await enter(hosting.gate(node))
        say(f"a mesh on a server of its own, {hosting.mesh.engine}, with TLS", "")
        machines = await asyncio.gather(*(_joined(stack, hosting.home, name) for name in NAMES))
        last_acts += [one.kill for one in machines]
        say(f"{', '.join(NAMES)} joined, each with a ticket and a key of its own", "succeeded")
        stage = Stage(owner, node, machines)
        seconds_to_first_verified = await _first_job(stage, begun, say)
        await _many_jobs(stage, say)
        takeover = await _killed(stage, say)
        stalled, late, bundle = await _stalled(stage, say)
        revoked = await _revoked(stage, stalled, say)
        tampered = _tampered(bundle, say)
        seconds = round(time.monotonic() - begun, 1)
        await then(owner)
        return Shown(
            machines=len(NAMES),
            jobs=JOBS + 4,
            seconds_to_first_verified=seconds_to_first_verified,
            takeover=takeover,
            stale_refused=late,
            revoked_refused=revoked,
            tamper_refused=tampered,
            seconds_total=seconds,
        )


@asynccontextmanager
async def _full_node(owner: Mesh) -> AsyncIterator[FullNode]:
    """As `Mesh.node` runs one, with more frequent seals."""
    async with AsyncExitStack() as stack:
        joined = await owner.connection.join(stack, "node", None)
        home = owner.home
        replica = await stack.enter_async_context(owned_replica(home.replica, home, joined))
        running = replicating(joined, replica, caretaking=True, bar_s=SEAL_EVERY_S)
        yield await stack.enter_async_context(running)


async def _joined(stack: AsyncExitStack, owner: StateDirectory, name: str) -> Machine:
    directory = owner.path.with_name(name)
    ticket = hosted_mesh.invite(owner, Terms(can=("claim",), kinds=KINDS, alias=name))
    await hosted_mesh.redeem(StateDirectory(directory), ticket, alias=name)
    machine = await Machine.start(name, directory)
    stack.push_async_callback(machine.end)
    return machine


async def _first_job(stage: Stage, begun: float, say: Say) -> float:
    """One job, from its submission to a verified bundle."""
    job = await stage.owner.submit("example.add", 2, 3)
    result = await job.result(PATIENCE_S)
    ran_on = await stage.claimed(job)
    say(f"2 + 3 = {result}, computed and signed by {ran_on.name}", "succeeded")
    report = bundles.open_bundle(await bundles.export(stage.owner, job.kind, job.id))
    took_s = round(time.monotonic() - begun, 1)
    say(f"verified offline: {report.records} signed records under one seal", "succeeded")
    return took_s


async def _many_jobs(stage: Stage, say: Say) -> None:
    """Work for all of them."""
    calls = [stage.owner.bind("example.add", number, number) for number in range(JOBS)]
    jobs = await stage.owner.submit_many(calls)
    await asyncio.gather(*(job.result(PATIENCE_S) for job in jobs))
    by: Counter[str] = Counter()
    for job in jobs:
        by[(await stage.claimed(job)).name] += 1
    shares = ", ".join(f"{name} {count}" for name, count in by.most_common())
    say(f"{JOBS} jobs: {shares}", "succeeded")


async def _killed(stage: Stage, say: Say) -> float:
    """A worker dies in the middle of a job."""
    job = await stage.owner.submit("example.sleep", WORK_S)
    holder = await stage.claimed(job)
    holder.kill()
    began = time.monotonic()
    say(f"{holder.name} is killed in the middle of a job", "failed")
    heir = await stage.claimed(job, besides=holder.worker)
    took_s = round(time.monotonic() - began, 1)
    say(f"its lease runs out, and {heir.name} takes the job over after {took_s} s", "")
    await job.result(PATIENCE_S)
    say(f"{heir.name} finishes it", "succeeded")
    stage.machines.remove(holder)
    return took_s


async def _stalled(stage: Stage, say: Say) -> tuple[Machine, str, bytes]:
    """A worker stalls, another one finishes its job, and then the first one's result arrives."""
    job = await stage.owner.submit("example.sleep", WORK_S)
    holder = await stage.claimed(job)
    fence = (await job.state()).fence
    holder.stall()
    say(f"{holder.name} stalls in the middle of a job", "failed")
    heir = await stage.claimed(job, besides=holder.worker)
    result = await job.result(PATIENCE_S)
    say(f"{heir.name} takes the job over and finishes it: {result!r}", "succeeded")
    await holder.end()
    verdict = await _late_result(holder, job, fence)
    say(f"{holder.name} wakes up and signs its own result anyway: refused, {verdict!r}", "failed")
    say(f"the result is still {heir.name}'s, for every reader of the log", "succeeded")
    bundle = await bundles.export(stage.owner, job.kind, job.id)
    report = bundles.open_bundle(bundle)
    say(f"the whole story in one file: {report.records} records, verified offline", "succeeded")
    return holder, verdict, bundle


async def _late_result(machine: Machine, job: JobHandle[Any], fence: str) -> str:
    """Commit a completion under a fence that is no longer current; the verdict on it."""
    output = Output(name="result", text='"late"')
    body = CompleteBody(
        kind=job.kind, job=job.id, fence=fence, status="succeeded", outputs=(output,)
    )
    async with Mesh.open(home=machine.home.path, role="worker") as mesh:
        session = mesh.connection.session
        lane = (await session.read_lane(job.kind, job.id)).lane
        written = await write_one(session, Intent(JobComplete, body, lane), ALL_THE_SAME)
        return str(written.verdict)


async def _revoked(stage: Stage, machine: Machine, say: Say) -> str:
    """A machine loses its rights."""
    async with with_authority(stage.owner.home.path) as acting:
        await acting.authority.revoke(machine.name)
    async with asyncio.timeout(PATIENCE_S):
        told = await _refused(machine)
    say(f"the owner revokes {machine.name}, which is told: {told}", "failed")
    job = await stage.owner.submit("example.add", 20, 22)
    result = await job.result(PATIENCE_S)
    ran_on = await stage.claimed(job)
    say(f"20 + 22 = {result}, computed by {ran_on.name}", "succeeded")
    return told


async def _refused(machine: Machine) -> str:
    """What the machine is told as soon as the revocation has reached the server."""
    while True:
        try:
            async with Mesh.open(home=machine.home.path, role="worker"):
                await asyncio.sleep(0.1)
        except AntiphonError as problem:
            return problem.message


def _tampered(bundle: bytes, say: Say) -> str:
    """One changed digit in the file."""
    at = bundle.index(b"slept") + len(b"slept ")
    changed = bundle[:at] + b"9" + bundle[at + 1 :]
    try:
        bundles.open_bundle(changed)
    except AntiphonError as problem:
        say(f"the same file with one changed digit: refused, {problem.message}", "failed")
        return problem.message
    return ""
