"""What a worker can run, whatever runs it: one assignment in, one account of the run out.

Registered functions and commands are two executors behind this. An executor knows nothing of
leases or the log; it is cancelled when the job is lost, and must leave nothing running then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from antiphon.core.families.jobs.ops import Failure
from antiphon.core.policy.tenure_end import Fault
from antiphon.core.proof import statement
from antiphon.core.proof.output import Output

if TYPE_CHECKING:
    from antiphon.core.manifest import Manifest

IN_PROCESS = statement.Isolation(level="none")

Stream = Literal["stdout", "stderr"]


class Live(Protocol):
    """Where a job's words go while it runs. Nothing is stored, anything may be lost."""

    def output(self, stream: Stream, data: bytes) -> None:
        """Pass on what the job wrote."""

    def progress(self, done: float, note: str = "") -> None:
        """Say how far it is, from 0 to 1."""


class Unheard:
    """A `Live` that nobody listens to."""

    def output(self, stream: Stream, data: bytes) -> None:
        """Drop it."""

    def progress(self, done: float, note: str = "") -> None:
        """Drop it."""


class Assignment(Struct, frozen=True, kw_only=True):
    """One tenure of one job, as its executor sees it."""

    kind: str
    job_id: str
    fence: str
    attempt: int
    """1 for the first tenure of this job."""
    manifest: Manifest
    auth: tuple[str, ...] = ()
    """The delegations under which the job was claimed, by CID; none for the owner itself."""
    live: Live = Unheard()


class Ran(Struct, frozen=True, kw_only=True):
    """What came of a run, and what is known about it."""

    runner: statement.Runner
    outputs: tuple[Output, ...] = ()
    failure: Failure | None = None
    """None: it succeeded."""
    is_final: bool = False
    """Whether another attempt would fail the same way, so that none is made."""
    lineage: tuple[str, ...] = ()
    """The failure's kind and everything that it is a kind of, by name: what retry rules match."""
    retry_after_ms: int | None = None
    """The wait before another attempt that the job asked for; None: as its retry rules say."""
    exit: int | None = None
    isolation: statement.Isolation = IN_PROCESS
    environment: str | None = None
    """SHA-256 of what the job saw as its environment."""
    cpu_ms: int | None = None
    max_rss_kb: int | None = None

    @property
    def fault(self) -> Fault | None:
        """What went wrong, as the job's end is decided from it; None: it succeeded."""
        if self.failure is None:
            return None
        return Fault(
            failure=self.failure,
            lineage=self.lineage,
            is_final=self.is_final,
            asked_ms=self.retry_after_ms,
        )


class Executor(Protocol):
    """Runs assignments."""

    @property
    def grace_s(self) -> float:
        """Seconds beyond the job's timeout before the run is cut off: 0 if it keeps no time."""

    @property
    def goes_on(self) -> bool:
        """Whether a run goes on while the engine is away, though another worker may begin it."""

    async def run(self, assignment: Assignment) -> Ran:
        """Run it to its end. An exception is the job's failure; a cancellation ends the run."""


class Repertoire(Protocol):
    """What one worker runs."""

    @property
    def kinds(self) -> list[str]:
        """The kinds whose announcements it wants."""

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """What runs this manifest as a job of this kind; None: this worker cannot."""


class Together:
    """Several repertoires as one: the first that can run something does."""

    def __init__(self, *repertoires: Repertoire) -> None:
        """In the order in which they are asked."""
        self._repertoires = repertoires

    @property
    def kinds(self) -> list[str]:
        """All kinds, each once."""
        return sorted({kind for one in self._repertoires for kind in one.kinds})

    def find(self, kind: str, manifest: Manifest) -> Executor | None:
        """What runs this manifest as a job of this kind; None: this worker cannot."""
        found = (one.find(kind, manifest) for one in self._repertoires)
        return next((executor for executor in found if executor is not None), None)
