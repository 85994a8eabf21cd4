"""The executor interface: one assignment in, one result out, whatever runs it.

Registered functions and commands are the two executors. An executor knows nothing of leases or the
log. It is cancelled when the job is lost, and must then leave nothing running.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from antiphon.core.families.jobs.ops import Checkpoint, Failure, JobKey, Result, ScheduleBody
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.proof import statement
from antiphon.core.proof.output import Output
from antiphon.runtime.executors.run_services import ExecutorServices, WithoutWorker

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest


class GivenBack(Exception):
    """This worker cannot run the job now; another may, and no attempt is counted."""


class Assignment(Struct, frozen=True, kw_only=True):
    """One tenure of one job, as its executor sees it."""

    kind: str
    job_id: str
    fence: str
    attempt: int
    """1 for the first tenure of this job."""
    manifest: Manifest
    """As it was submitted, with results of other jobs as inputs by content."""
    texts: Mapping[str, str] = {}
    """Inputs that came with the offer, by digest; the others are artifacts."""
    continuations: int = 0
    """How often the job has waited for children."""
    children: tuple[JobKey, ...] = ()
    """The jobs that it waited for last, and their results in the same order."""
    child_results: tuple[Result, ...] = ()
    submitter: str = ""
    """The party that submitted it."""
    trace: str | None = None
    """The `traceparent` that it was submitted with."""
    auth: tuple[str, ...] = ()
    """The delegations under which the job was claimed, by CID; none for the owner itself."""
    checkpoint: Checkpoint | None = None
    """What earlier tenures have stored of the work."""
    run: ExecutorServices = field(default_factory=WithoutWorker)
    """What it may tell its worker, and ask of it."""


class Ran(Struct, frozen=True, kw_only=True):
    """The result of a run, and what is known about it."""

    runner: statement.Runner
    outputs: tuple[Output, ...] = ()
    fault: Fault | None = None
    """What went wrong, and whether another attempt may help; None: it succeeded."""
    after: tuple[ScheduleBody | JobKey, ...] = ()
    """It did not end: it continues when these jobs have. Those that are new are to be submitted."""
    exit: int | None = None
    isolation: statement.Isolation = statement.IN_PROCESS
    environment: str | None = None
    """SHA-256 of the environment that the job saw."""

    @property
    def failure(self) -> Failure | None:
        """What the log keeps of what went wrong; None: it succeeded."""
        return None if self.fault is None else self.fault.failure


class Executor(Protocol):
    """Runs assignments."""

    @property
    def grace_s(self) -> float:
        """Seconds after the job's timeout until the run is cut off; 0 if it has no timer itself."""

    @property
    def goes_on(self) -> bool:
        """Whether a run continues without the engine, though another worker may begin it, too."""

    async def run(self, assignment: Assignment) -> Ran:
        """Run it to its end. An exception is the job's failure; a cancellation ends the run."""

    async def fall_back(self, name: str, assignment: Assignment) -> Ran | None:
        """A coarser result, by the fallback of this name; None: there is none."""


class Executors(Protocol):
    """What one worker can run."""

    @property
    def kinds(self) -> list[str]:
        """The kinds whose announcements it wants."""

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """The executor for this manifest as a job of this kind; None: this worker has none."""


class CombinedExecutors:
    """Several `Executors` as one: the first that can run a job does."""

    def __init__(self, *sources: Executors) -> None:
        """In the order in which they are asked."""
        self._sources = sources

    @property
    def kinds(self) -> list[str]:
        """All kinds, each once."""
        return sorted({kind for one in self._sources for kind in one.kinds})

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """The executor for this manifest as a job of this kind; None: this worker has none."""
        found = (one.find(kind, manifest) for one in self._sources)
        return next((executor for executor in found if executor is not None), None)
