"""Every error that Antiphon raises on purpose.

The branches are cut by what a caller can do about it, not by where it happened:

    AntiphonError
    ├── Rejected            the request is wrong; `reason` says which rule it broke
    │   ├── Malformed       bytes that are not a canonical op, manifest or key
    │   └── JobFailed       the job ended without a result
    ├── Conflict            someone else was first, or holds it
    │   ├── LostRace        the compare-and-set saw another last sequence
    │   ├── IdTaken         the engine holds other bytes under this message id
    │   └── Held            a key, a lease or a state directory is in use
    │       └── PortTaken   another program listens where our server was to
    ├── Unavailable         try again later
    │   ├── OutcomeUnknown  the write may or may not be stored: read before deciding
    │   ├── CircuitOpen     the engine left too many calls unanswered: none is made for a while
    │   └── EngineDenied    the engine's own permissions said no
    ├── Corrupt             stop: what was read cannot be true
    ├── Misconfigured       a person has to change a setting, a file or a command line
    │   └── Outdated        the mesh runs a protocol that this version does not have
    └── HandlerWish         raised by a handler, to say what is to become of its job
        ├── GiveUp          another attempt would end the same way: make none
        └── RetryLater      not before so many seconds

Engine exceptions are translated in the engine's adapter; no caller ever sees one of those.
"""

from __future__ import annotations

__all__ = [
    "AntiphonError",
    "CircuitOpen",
    "Conflict",
    "Corrupt",
    "EngineDenied",
    "GiveUp",
    "HandlerWish",
    "Held",
    "IdTaken",
    "JobFailed",
    "LostRace",
    "Malformed",
    "Misconfigured",
    "OutcomeUnknown",
    "Outdated",
    "PortTaken",
    "Rejected",
    "RetryLater",
    "Unavailable",
]


class AntiphonError(Exception):
    """Root of the tree. `hint` is what the person could type or change next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Rejected(AntiphonError):
    """The request breaks a rule; sending it again changes nothing."""

    def __init__(self, message: str, *, reason: str = "rejected", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class Malformed(Rejected):
    """Bytes that do not follow the canonical profile or the closed schema."""

    def __init__(self, message: str, *, reason: str = "malformed", hint: str = "") -> None:
        super().__init__(message, reason=reason, hint=hint)


class JobFailed(Rejected):
    """A job reached a terminal state that carries no result."""


class Conflict(AntiphonError):
    """Someone else was first."""


class LostRace(Conflict):
    """The engine's last sequence on the subject is not the one that the writer named."""


class IdTaken(Conflict):
    """The message id is already stored with different bytes."""


class Held(Conflict):
    """A lease, a lock file or a key is in someone else's hands."""


class PortTaken(Held):
    """Another program listens at the address that a server of ours was given."""


class Unavailable(AntiphonError):
    """The engine cannot answer now."""


class OutcomeUnknown(Unavailable):
    """A write went out and no answer came: it may be stored.

    `kind` and `job_id` name the job that it is about; empty where it is about none.
    """

    def __init__(self, message: str, *, hint: str = "", kind: str = "", job_id: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.job_id = job_id


class CircuitOpen(Unavailable):
    """Nothing was tried: the engine left too many calls in a row unanswered.

    After `retry_s` seconds one call tries again; 0 if one is at it.
    """

    def __init__(self, message: str, *, retry_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_s = retry_s


class EngineDenied(Unavailable):
    """The engine's permissions refused the subject."""


class Corrupt(AntiphonError):
    """What was read contradicts what is known; going on would spread it."""


class Misconfigured(AntiphonError):
    """Only a person can put this right."""


class Outdated(Misconfigured):
    """The mesh moved to a newer protocol: this code stops applying there, it never guesses."""


class HandlerWish(AntiphonError):
    """A handler failed, and knows better than the job's retry rules what should follow.

    Raised `from` another error, it is that error's name that the log keeps.
    """


class GiveUp(HandlerWish):
    """Another attempt would end the same way: the job fails now."""


class RetryLater(HandlerWish):
    """Try again, but not before `after_s` seconds; it counts as an attempt.

    The mesh's rule `retry_after_max_ms` is the longest wait there is.
    """

    def __init__(self, after_s: float, message: str = "") -> None:
        if not 0 <= after_s < float("inf"):
            raise ValueError(f"a job cannot wait for {after_s} seconds")
        super().__init__(message or f"asked to be tried again in {after_s:g} s")
        self.after_s = after_s
