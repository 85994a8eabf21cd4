"""Every verdict there is (spec §5). One list; a verdict is one word of it.

Words are part of the recorded log (seals cover them), so none is ever renamed or reused.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a record was accepted, changed nothing, or was rejected."""

    # accepted
    OK = "ok"

    # accepted as harmless: it says what already holds
    EXISTS = "exists"
    ALREADY = "already"

    # the bytes
    FRAME = "frame"
    SIZE = "size"
    MALFORMED = "malformed"
    CANONICAL = "canonical"
    VERSION = "version"
    TYPE = "type"
    AUTHOR = "author"
    SIGNATURE = "signature"
    MESH = "mesh"
    SUBJECT = "subject"

    # time and order
    DRIFT = "drift"
    TOO_OLD = "too_old"
    PREV = "prev"
    STALE = "stale"
    EQUIVOCATION = "equivocation"
    MISSING_DEP = "missing_dep"

    # authority
    NO_CHAIN = "no_chain"
    CHAIN_EXPIRED = "chain_expired"
    REVOKED = "revoked"
    COMMAND = "command"
    POLICY = "policy"
    NOT_OWNER = "not_owner"
    NOT_ROUTED = "not_routed"
    NOT_COORDINATOR = "not_coordinator"
    QUARANTINED = "quarantined"

    # control
    GENESIS = "genesis"
    RULES = "rules"
    PROTOCOL = "protocol"
    SEAL = "seal"
    UNSEEN = "unseen"

    # jobs
    NO_JOB = "no_job"
    WAITING = "waiting"
    HELD = "held"
    FINISHED = "finished"
    FENCE = "fence"
    NOT_CLAIMER = "not_claimer"
    NOT_CLAIMED = "not_claimed"
    LEASE = "lease"
    LEASE_OVER = "lease_over"
    EARLY = "early"
    NOT_YET = "not_yet"
    TOO_LATE = "too_late"
    COOLDOWN = "cooldown"
    PRIORITY = "priority"
    ATTEMPTS = "attempts"
    PREDECESSOR = "predecessor"
    OUTPUT = "output"
    PROOF = "proof"
    NOT_ENDED = "not_ended"
    NO_OUTPUT = "no_output"

    @property
    def is_accepted(self) -> bool:
        """Whether the op took effect, or said what already held."""
        return self in _ACCEPTED

    @property
    def in_words(self) -> str:
        """The verdict as the end of a sentence."""
        return _WORDS[self]


LACKS_AUTHORITY = frozenset(
    {
        Reason.NO_CHAIN,
        Reason.CHAIN_EXPIRED,
        Reason.REVOKED,
        Reason.COMMAND,
        Reason.POLICY,
        Reason.NOT_OWNER,
        Reason.NOT_COORDINATOR,
        Reason.QUARANTINED,
    }
)
"""What another grant could mend."""
ABOUT_BYTES = frozenset(
    {
        Reason.FRAME,
        Reason.SIZE,
        Reason.MALFORMED,
        Reason.CANONICAL,
        Reason.VERSION,
        Reason.TYPE,
        Reason.AUTHOR,
        Reason.SIGNATURE,
        Reason.MESH,
        Reason.SUBJECT,
    }
)
"""What is said of bytes alone: nobody is known to have signed them for this place."""
ABOUT_TIME = frozenset({Reason.DRIFT, Reason.STALE, Reason.TOO_OLD})
"""What the author's clock may be to blame for."""
_ACCEPTED = frozenset({Reason.OK, Reason.EXISTS, Reason.ALREADY})

_WORDS = {
    Reason.OK: "accepted",
    Reason.EXISTS: "the job exists already; the first call stands",
    Reason.ALREADY: "it says what already holds",
    Reason.FRAME: "the record is not an op and a signature block",
    Reason.SIZE: "the op is too large",
    Reason.MALFORMED: "the op does not fit the schema",
    Reason.CANONICAL: "the bytes are not canonical",
    Reason.VERSION: "the op's version is unknown",
    Reason.TYPE: "the op's type is unknown",
    Reason.AUTHOR: "the author is not a usable key",
    Reason.SIGNATURE: "the signature does not verify",
    Reason.MESH: "the op was made for another mesh",
    Reason.SUBJECT: "the record lies on a subject that is not its own",
    Reason.DRIFT: "the author's clock is too far ahead",
    Reason.TOO_OLD: "the op is older than the horizon",
    Reason.PREV: "it names another predecessor than the lane has",
    Reason.STALE: "it is not newer than the last accepted op",
    Reason.EQUIVOCATION: "the author signed two ops with one timestamp",
    Reason.MISSING_DEP: "a record that it depends on is not on the log",
    Reason.NO_CHAIN: "no chain of delegations leads from the owner to the author",
    Reason.CHAIN_EXPIRED: "a delegation in the chain had expired",
    Reason.REVOKED: "a delegation in the chain was revoked",
    Reason.COMMAND: "the chain does not cover this command",
    Reason.POLICY: "the chain's policy does not admit it",
    Reason.NOT_OWNER: "only the owner may do this",
    Reason.NOT_ROUTED: "the kind is routed to another node",
    Reason.NOT_COORDINATOR: "only the coordinator may do this",
    Reason.QUARANTINED: "the author is quarantined",
    Reason.GENESIS: "a mesh has one genesis, and it comes first",
    Reason.RULES: "the rules contradict one another",
    Reason.PROTOCOL: "a protocol is never lowered",
    Reason.SEAL: "the seal does not match the log",
    Reason.UNSEEN: "only who reads everything can compare it with the log",
    Reason.NO_JOB: "there is no such job",
    Reason.WAITING: "the job still waits for something",
    Reason.HELD: "someone else holds the lease",
    Reason.FINISHED: "the job has ended",
    Reason.FENCE: "its fence is not the current one",
    Reason.NOT_CLAIMER: "someone else is the claimer",
    Reason.NOT_CLAIMED: "nobody holds the lease",
    Reason.LEASE: "the lease lies outside the bounds",
    Reason.LEASE_OVER: "the lease had already run out",
    Reason.EARLY: "the time had not come yet",
    Reason.NOT_YET: "the job may not be claimed again yet",
    Reason.TOO_LATE: "the job had to start earlier",
    Reason.COOLDOWN: "a worker whose lease expired waits one lease",
    Reason.PRIORITY: "it names another priority than the job has",
    Reason.ATTEMPTS: "more attempts than the rules allow",
    Reason.PREDECESSOR: "a job it should follow is not known",
    Reason.OUTPUT: "an output does not match its digest",
    Reason.PROOF: "the proof does not hold",
    Reason.NOT_ENDED: "the job has not ended yet",
    Reason.NO_OUTPUT: "the job keeps no such output beside the log",
}
