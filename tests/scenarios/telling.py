"""Plays a story on one engine, and holds every reader to what the script says."""

from contextlib import AsyncExitStack

from antiphon.core.authority.rules import Rules
from antiphon.engines.memory import MemoryServer
from tests.local_server import shared_server
from tests.scenarios.deeds import Names, perform
from tests.scenarios.script import NOBODY, UNSENT, Check, Line, Move, Step, Story
from tests.scenarios.stage import Stage, StoryClock, a_stage, key_of


class NotAsTold(AssertionError):
    """A reader saw something else than the script says."""


async def tell(story: Story, engine: str) -> None:
    """Play a story from beginning to end."""
    if engine == "nats":
        shared_server()  # the clock begins when it runs
    async with AsyncExitStack() as stack:
        telling = Telling(story, engine, stack)
        for scene in story.scenes:
            match scene:
                case Step():
                    await telling.step(scene)
                case Check():
                    await telling.check(scene)
                case Move():
                    await telling.clock.move(scene.to_ms)
        await telling.look_back()


class Telling:
    """One playing of a story."""

    def __init__(self, story: Story, engine: str, stack: AsyncExitStack) -> None:
        self.story = story
        self.names = Names(story)
        self.clock = StoryClock(is_settable=engine == "memory")
        self._engine = engine
        self._memory = MemoryServer(self.clock)
        self._stack = stack
        self._stages: dict[bool, Stage] = {}
        self._told: list[tuple[Step, Stage, int, str]] = []

    async def stage(self, *, is_elsewhere: bool = False) -> Stage:
        """The mesh of the story, or the other one; made when first asked for."""
        if is_elsewhere not in self._stages:
            self._stages[is_elsewhere] = await self._stack.enter_async_context(
                a_stage(
                    self._engine,
                    self.clock,
                    self._memory,
                    self.story.cast,
                    name=f"{self.story.name}{', elsewhere' * is_elsewhere}",
                    rules=Rules(**self.story.rules),
                )
            )
        return self._stages[is_elsewhere]

    async def step(self, step: Step) -> None:
        """Let somebody do something; everybody must come to the verdict that is told."""
        stage = await self.stage(is_elsewhere=step.is_elsewhere)
        self.clock.pass_a_moment()
        sent = await perform(step, stage, self.names)
        if sent is None:
            self._compare(step.line, step.expected, {"the stage": UNSENT})
            return
        seq = await stage.put(sent.subject, sent.payload)
        self._told.append((step, stage, seq, sent.subject))
        self._compare(step.line, step.expected, await stage.verdicts(seq, sent.subject))

    async def look_back(self) -> None:
        """Whoever comes late, and knows the end, must judge every step alike."""
        for step, stage, seq, subject in self._told:
            self._compare(step.line, step.expected, await stage.hindsight(seq, subject))

    async def check(self, check: Check) -> None:
        """What everybody must see here."""
        told, seen = await (self._job(check) if check.about == "job" else self._mesh(check))
        self._compare(check.line, told, seen)

    async def _job(self, check: Check) -> tuple[str, dict[str, str]]:
        words, stage = check.words, await self.stage()
        work = self.names.jobs[words["job"]]
        told, seen = words["job_state"], dict[str, str]()
        if "person" in words:
            told += f" by {words['person']}"
        for reader, job in (await stage.job(work.kind, work.id)).items():
            seen[reader] = "unknown" if job is None else job.state.value
            if job is not None and "person" in words:
                seen[reader] += f" by {self._who(job.claimer)}"
        return told, seen

    async def _mesh(self, check: Check) -> tuple[str, dict[str, str]]:
        words, stage = check.words, await self.stage()
        told = words.get("person") or words.get("target") or words["people"]
        if check.about == "coordinators":
            views = await stage.coordinators()
        else:
            views = {
                reader: {
                    "coordinator": [control.coordinator],
                    "owner": [control.owner],
                    "route": [control.route_for(words.get("kind", "")) or ""],
                    "quarantined": list(control.quarantined) or [""],
                }[check.about]
                for reader, control in (await stage.control()).items()
            }
        return told, {reader: ", ".join(map(self._who, dids)) for reader, dids in views.items()}

    def _who(self, did: str) -> str:
        """A person of the cast by its key."""
        known = {key_of(name).did: name for name in self.story.cast}
        return known.get(did, did) if did else NOBODY

    def _compare(self, line: Line, told: str, seen: dict[str, str]) -> None:
        if all(found == told for found in seen.values()):
            return
        found = "".join(f"\n    {reader}: {what}" for reader, what in seen.items())
        raise NotAsTold(
            f"{self.story.name}.txt:{line.number}: {line.text}\n    told: {told}{found}"
        )
