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
    ├── Unavailable         try again later
    │   ├── OutcomeUnknown  the write may or may not be stored: read before deciding
    │   └── EngineDenied    the engine's own permissions said no
    ├── Corrupt             stop: what was read cannot be true
    │   └── Misbehaved      a peer signed something that only a broken or lying peer signs
    └── Misconfigured       a person has to change a setting, a file or a command line
        └── Outdated        the mesh runs a protocol that this version does not have

Engine exceptions are translated in the engine's adapter; no caller ever sees one of those.
"""

from __future__ import annotations

__all__ = [
    "AntiphonError",
    "Conflict",
    "Corrupt",
    "EngineDenied",
    "Held",
    "IdTaken",
    "JobFailed",
    "LostRace",
    "Malformed",
    "Misbehaved",
    "Misconfigured",
    "OutcomeUnknown",
    "Outdated",
    "Rejected",
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


class Unavailable(AntiphonError):
    """The engine cannot answer now."""


class OutcomeUnknown(Unavailable):
    """A write went out and no answer came: it may be stored."""


class EngineDenied(Unavailable):
    """The engine's permissions refused the subject."""


class Corrupt(AntiphonError):
    """What was read contradicts what is known; going on would spread it."""


class Misbehaved(Corrupt):
    """Signed evidence that a peer broke the rules."""


class Misconfigured(AntiphonError):
    """Only a person can put this right."""


class Outdated(Misconfigured):
    """The mesh moved to a newer protocol: this code stops applying there, it never guesses."""
