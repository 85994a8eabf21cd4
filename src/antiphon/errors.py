"""Every error that Antiphon raises on purpose.

The branches follow what a caller can do about the error, not where it happened:

    AntiphonError
    ├── Rejected            the request is wrong; `reason` says which rule it broke
    │   ├── Malformed       bytes that are not a canonical op, manifest or key
    │   ├── Unreadable      what was made here would be refused by its readers: it is not sent
    │   └── JobFailed       the job ended without a result
    ├── Conflict            someone else was first, or holds it
    │   ├── LostRace        compare-and-set failed: the subject has a newer record
    │   ├── IdTaken         the engine stores other bytes under this message id
    │   ├── Held            a key, a lock, a lease or a state directory is in use
    │   │   └── PortTaken   another program listens on the server's port
    │   ├── LockLost        a lock is no longer, or may no longer be, this agent's
    │   └── StaleFence      a later holder of the lock has already written
    ├── Unavailable         try again later
    │   ├── OutcomeUnknown  the write may or may not be stored: read before deciding
    │   ├── CircuitOpen     too many requests went unanswered: none is sent for a while
    │   ├── RateLimited     too many messages of one sender: none of them is stored
    │   ├── InboxFull       the receiver has not read enough of its messages
    │   └── EngineDenied    the engine's permissions do not allow it
    │       └── NotPermitted    this key lacks a permission for some kind: the hint says which
    ├── PartlySubmitted     of a list of jobs some are on the log, and one could not be submitted
    ├── Corrupt             stop: what was read cannot be true
    │   └── LogReplaced     the log lacks what was read from it: an older copy was restored
    ├── Misconfigured       a person has to change a setting, a file or a command line
    │   ├── Outdated        the mesh runs a protocol that this version does not have
    │   └── Forked          used in a forked child, but opened by its parent
    ├── NoAnswer            nobody answered a question in time
    ├── BeatsOver           a handler used up the beats that its score has for something
    │   ├── Overrun         for a phase: the run ends
    │   └── WaitExhausted   for waiting: a handler may catch it and go on
    └── HandlerDecision         raised by a handler, to say what happens to its job
        ├── GiveUp          fail now, without another attempt
        ├── RetryLater      retry, but not before a number of seconds
        └── After           no failure: continue when other jobs have ended

`NobodyAnswers` is a warning: whoever waits for a job goes on waiting.

The engine's adapter translates engine exceptions into these; callers never see the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "After",
    "AntiphonError",
    "BeatsOver",
    "CircuitOpen",
    "Conflict",
    "Corrupt",
    "EngineDenied",
    "Forked",
    "GiveUp",
    "HandlerDecision",
    "Held",
    "IdTaken",
    "InboxFull",
    "JobFailed",
    "LockLost",
    "LogReplaced",
    "LostRace",
    "Malformed",
    "Misconfigured",
    "NoAnswer",
    "NobodyAnswers",
    "NotPermitted",
    "OutcomeUnknown",
    "Outdated",
    "Overrun",
    "PartlySubmitted",
    "PortTaken",
    "RateLimited",
    "Rejected",
    "RetryLater",
    "StaleFence",
    "Unavailable",
    "Unreadable",
    "WaitExhausted",
]


class AntiphonError(Exception):
    """Root of the tree. Python prints its hint below it. It can be pickled and copied."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self._hint = ""
        self.hint = hint

    @property
    def hint(self) -> str:
        """What the person could type or change next; empty if there is nothing to say."""
        return self._hint

    @hint.setter
    def hint(self, hint: str) -> None:
        # A note, so that whoever sees only the traceback sees it, too.
        shown = f"  try: {self._hint}"
        if shown in getattr(self, "__notes__", ()):
            self.__notes__.remove(shown)
        self._hint = hint
        if hint:
            self.add_note(f"  try: {hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class: several have arguments that an exception does not keep.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    made_of: type[AntiphonError], args: tuple[Any, ...], fields: dict[str, Any]
) -> AntiphonError:
    error = made_of.__new__(made_of, *args)
    error.__dict__.update(fields)
    if "__notes__" in fields:
        error.__notes__ = list(fields["__notes__"])  # a copy has notes of its own
    return error


class Rejected(AntiphonError):
    """The request breaks a rule; sending it again changes nothing."""

    def __init__(self, message: str, *, reason: str = "rejected", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class Malformed(Rejected):
    """Bytes that do not follow the canonical profile or the closed schema."""

    def __init__(self, message: str, *, reason: str = "malformed", hint: str = "") -> None:
        super().__init__(message, reason=reason, hint=hint)


class Unreadable(Rejected):
    """What was made here would be refused by its readers, or taken for something else.

    Nobody was told of it, and nothing was removed because of it.
    """

    REASON = "unreadable"

    def __init__(self, message: str, *, reason: str = REASON, hint: str = "") -> None:
        super().__init__(message, reason=reason, hint=hint)


class JobFailed(Rejected):
    """A job ended without a result.

    `reason` is its outcome: failed, exhausted, expired or cancelled. The other attributes say
    which job it is and what its last error was, as far as there is one. `traceback` is the
    worker's, a short text without values of variables; Python prints it below this error.
    """

    def __init__(  # noqa: PLR0913 - what is known about a failed job
        self,
        message: str,
        *,
        reason: str = "rejected",
        hint: str = "",
        kind: str = "",
        job_id: str = "",
        error_type: str = "",
        error_message: str = "",
        attempts: int = 0,
        traceback: str = "",
    ) -> None:
        super().__init__(message, reason=reason)
        self.kind = kind
        self.job_id = job_id
        self.error_type = error_type
        """The name of the handler's error, or what ended a command: `exit:3`."""
        self.error_message = error_message
        self.attempts = attempts
        self.traceback = traceback
        if traceback:
            self.add_note(f"On the worker, innermost call last:\n{traceback}")
        self.hint = hint


class Conflict(AntiphonError):
    """Someone else was first."""


class LostRace(Conflict):
    """The engine's last sequence on the subject is not the one that the writer named."""


class IdTaken(Conflict):
    """The message id is already stored with different bytes."""


class Held(Conflict):
    """Someone else holds the lease, the lock file or the key."""


class PortTaken(Held):
    """Another program already listens at the server's address."""


class LockLost(Conflict):
    """A lock is no longer, or may no longer be, this agent's: what it protects must stop."""


class StaleFence(Conflict):
    """A write with a fence below the highest one seen: its author's hold is over."""


class Unavailable(AntiphonError):
    """The engine cannot answer now."""


class OutcomeUnknown(Unavailable):
    """A write was sent and not answered: it may or may not be stored.

    `kind` and `job_id` name the job it is about; empty if it is not about a job.
    """

    def __init__(self, message: str, *, hint: str = "", kind: str = "", job_id: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.job_id = job_id


class CircuitOpen(Unavailable):
    """Nothing was sent: the engine left too many requests in a row unanswered.

    After `retry_s` seconds one request tries again; 0 if one is already trying.
    """

    def __init__(self, message: str, *, retry_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_s = retry_s


class RateLimited(Unavailable):
    """Nothing was stored: this sender sends too much. There is room again after `retry_s`."""

    def __init__(self, message: str, *, retry_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint or f"try again in {max(retry_s, 0.1):.1f} s")
        self.retry_s = retry_s


class InboxFull(Unavailable):
    """Nothing was stored: the receiver, or this sender's share of its inbox, is full."""


class EngineDenied(Unavailable):
    """The engine's permissions do not allow this subject."""


def is_away(problem: AntiphonError) -> bool:
    """Whether an error says that the engine cannot be reached, and not that it refused."""
    refusals = (EngineDenied, RateLimited, InboxFull)
    return isinstance(problem, Unavailable) and not isinstance(problem, refusals)


class NotPermitted(EngineDenied):
    """This key lacks a permission for a kind, a space or a scope; the mesh's owner can grant it."""

    reason = "permission"


class PartlySubmitted(AntiphonError):
    """A list of jobs was not submitted to its end; its cause says why.

    `position` counts from 0 and names the job that failed. `submitted` are those that are on the
    log all the same: they are run.
    """

    def __init__(
        self, message: str, *, position: int, submitted: Sequence[Any], hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.position = position
        self.submitted = list(submitted)


class Corrupt(AntiphonError):
    """What was read contradicts what is known; continuing would spread the damage."""


class LogReplaced(Corrupt):
    """The log no longer has what was read from it before; a person decides which copy is right."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "ask the mesh's owner. If it was restored: 'antiphon restore --accept' here"
        " shows what is lost and goes on",
    ) -> None:
        super().__init__(message, hint=hint)


class Misconfigured(AntiphonError):
    """A person has to change a setting, a file or a command line."""


class Outdated(Misconfigured):
    """The mesh moved to a newer protocol: this version stops there instead of guessing."""


class Forked(Misconfigured):
    """Opened before the process forked. Only the parent may use it: it signs with one clock."""

    def __init__(
        self,
        message: str = "this was opened in the parent process, before the fork",
        *,
        hint: str = "open the mesh again in this process, with 'async with' or 'with'",
    ) -> None:
        super().__init__(message, hint=hint)


class NoAnswer(AntiphonError):
    """A question has no answer: none came in time, or it was cancelled (docs/do/questions.md).

    `reason` is the outcome of the question's job: `expired`, `cancelled`, or how else it ended.
    """

    def __init__(self, message: str, *, reason: str = "expired") -> None:
        super().__init__(message)
        self.reason = reason


class BeatsOver(AntiphonError):
    """A handler used up the beats that its score has for something (docs/do/scores.md)."""


class Overrun(BeatsOver):
    """A phase has used up its beats: the run is cut."""


class WaitExhausted(BeatsOver):
    """A wait has used up its beats. If the handler does not catch it, the score's fallback runs.

    `what` is `help` or `io`; `on` names what was waited for. `on_fail` is what a helper that broke
    its promise said to do then: the name of a fallback, which runs before the score's.
    """

    def __init__(self, message: str, *, what: str, on: str, on_fail: str = "") -> None:
        super().__init__(message)
        self.what = what
        self.on = on
        self.on_fail = on_fail


class HandlerDecision(AntiphonError):
    """What a handler wants to happen to its job, whatever the job's retry rules say.

    If it is raised `from` another error, the log keeps that error's name.
    """


class GiveUp(HandlerDecision):
    """Another attempt would end the same way: the job fails now."""


class RetryLater(HandlerDecision):
    """Try again, but not before `after_s` seconds; it does not count as an attempt.

    The mesh's rule `retry_after_max_ms` bounds the wait, and `postponed_max` how often.
    """

    def __init__(self, after_s: float, message: str = "") -> None:
        if not 0 <= after_s < float("inf"):
            raise ValueError(f"a job cannot wait {after_s} seconds")
        super().__init__(message or f"asked for a retry in {after_s:g} s")
        self.after_s = after_s


class CallToSubmit(Protocol):
    """A call of a task that is not submitted yet: `task.bind(...)`."""

    @property
    def kind(self) -> str:
        """Its task's kind."""

    @property
    def text(self) -> bytes:
        """Its arguments."""


class SubmittedJob(Protocol):
    """A handle of a job."""

    def job_key(self) -> tuple[str, str]:
        """Its kind and its id."""


class After(HandlerDecision):
    """Submit these jobs, and call the handler again when all of them have ended.

    Until then the job waits on the log, and no worker holds it. The next call finds the results
    in its context: `ctx.results(task)` (docs/do/graphs.md).
    """

    def __init__(self, children: Iterable[CallToSubmit | SubmittedJob]) -> None:
        self.children: tuple[Any, ...] = tuple(children)
        if not self.children:
            raise ValueError("After needs at least one job to wait for")
        for one in self.children:
            if not hasattr(one, "job_key") and not hasattr(one, "text"):
                raise TypeError(f"After takes task.bind(...) or handles of jobs, not {one!r}")
        super().__init__(f"waits for {len(self.children)} jobs")


class NobodyAnswers(UserWarning):
    """No worker that is online runs the kind of a job that somebody waits for."""
