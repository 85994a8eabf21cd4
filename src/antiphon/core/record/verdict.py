"""Every verdict there is (spec §5). One list; a verdict is one word of it.

Words are part of the recorded log (seals cover them), so none is ever renamed or reused.
"""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
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
        Verdict.NO_CHAIN,
        Verdict.CHAIN_EXPIRED,
        Verdict.REVOKED,
        Verdict.COMMAND,
        Verdict.POLICY,
        Verdict.NOT_OWNER,
        Verdict.NOT_COORDINATOR,
        Verdict.QUARANTINED,
    }
)
"""What another grant could mend."""
ABOUT_BYTES = frozenset(
    {
        Verdict.FRAME,
        Verdict.SIZE,
        Verdict.MALFORMED,
        Verdict.CANONICAL,
        Verdict.VERSION,
        Verdict.TYPE,
        Verdict.AUTHOR,
        Verdict.SIGNATURE,
        Verdict.MESH,
        Verdict.SUBJECT,
    }
)
"""What is said of bytes alone: nobody is known to have signed them for this place."""
ABOUT_TIME = frozenset({Verdict.DRIFT, Verdict.STALE, Verdict.TOO_OLD})
"""What the author's clock may be to blame for."""
_ACCEPTED = frozenset({Verdict.OK, Verdict.EXISTS, Verdict.ALREADY})

_WORDS = {
    Verdict.OK: "accepted",
    Verdict.EXISTS: "the job exists already; the first call stands",
    Verdict.ALREADY: "it says what already holds",
    Verdict.FRAME: "the record is not an op and a signature block",
    Verdict.SIZE: "the op is too large",
    Verdict.MALFORMED: "the op does not fit the schema",
    Verdict.CANONICAL: "the bytes are not canonical",
    Verdict.VERSION: "the op's version is unknown",
    Verdict.TYPE: "the op's type is unknown",
    Verdict.AUTHOR: "the author is not a usable key",
    Verdict.SIGNATURE: "the signature does not verify",
    Verdict.MESH: "the op was made for another mesh",
    Verdict.SUBJECT: "the record lies on a subject that is not its own",
    Verdict.DRIFT: "the author's clock is too far ahead",
    Verdict.TOO_OLD: "the op is older than the horizon",
    Verdict.PREV: "it names another predecessor than the lane has",
    Verdict.STALE: "it is not newer than the last accepted op",
    Verdict.EQUIVOCATION: "the author signed two ops with one timestamp",
    Verdict.MISSING_DEP: "a record that it depends on is not on the log",
    Verdict.NO_CHAIN: "no chain of delegations leads from the owner to the author",
    Verdict.CHAIN_EXPIRED: "a delegation in the chain had expired",
    Verdict.REVOKED: "a delegation in the chain was revoked",
    Verdict.COMMAND: "the chain does not cover this command",
    Verdict.POLICY: "the chain's policy does not admit it",
    Verdict.NOT_OWNER: "only the owner may do this",
    Verdict.NOT_ROUTED: "the kind is routed to another node",
    Verdict.NOT_COORDINATOR: "only the coordinator may do this",
    Verdict.QUARANTINED: "the author is quarantined",
    Verdict.GENESIS: "a mesh has one genesis, and it comes first",
    Verdict.RULES: "the rules contradict one another",
    Verdict.PROTOCOL: "a protocol is never lowered",
    Verdict.SEAL: "the seal does not match the log",
    Verdict.UNSEEN: "only who reads everything can compare it with the log",
    Verdict.NO_JOB: "there is no such job",
    Verdict.WAITING: "the job still waits for something",
    Verdict.HELD: "someone else holds the lease",
    Verdict.FINISHED: "the job has ended",
    Verdict.FENCE: "its fence is not the current one",
    Verdict.NOT_CLAIMER: "someone else is the claimer",
    Verdict.NOT_CLAIMED: "nobody holds the lease",
    Verdict.LEASE: "the lease lies outside the bounds",
    Verdict.LEASE_OVER: "the lease had already run out",
    Verdict.EARLY: "the time had not come yet",
    Verdict.NOT_YET: "the job may not be claimed again yet",
    Verdict.TOO_LATE: "the job had to start earlier",
    Verdict.COOLDOWN: "a worker whose lease expired waits one lease",
    Verdict.PRIORITY: "it names another priority than the job has",
    Verdict.ATTEMPTS: "more attempts than the rules allow",
    Verdict.OUTPUT: "an output does not match its digest",
    Verdict.PROOF: "the proof does not hold",
    Verdict.NOT_ENDED: "the job has not ended yet",
    Verdict.NO_OUTPUT: "the job keeps no such output beside the log",
}
