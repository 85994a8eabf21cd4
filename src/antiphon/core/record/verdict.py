"""Verdicts: the complete list of codes, and a sentence for each (spec §5).

The codes are part of the recorded log (seals cover them), so none is ever renamed or reused.
"""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Why a record was accepted, changed nothing, or was rejected."""

    # accepted
    OK = "ok"

    # accepted, but changes nothing: it is already so
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
    ARCHIVED = "archived"

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
    TEMPO = "tempo"
    PROTOCOL = "protocol"
    SEAL = "seal"
    PAUSES = "pauses"
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
    DELAY = "delay"
    LIMIT = "limit"
    PAUSED = "paused"
    RESULTS = "results"
    AFTER = "after"
    NOT_YET = "not_yet"
    TOO_LATE = "too_late"
    COOLDOWN = "cooldown"
    PRIORITY = "priority"
    ATTEMPTS = "attempts"
    PROOF = "proof"
    NOT_ENDED = "not_ended"
    NO_OUTPUT = "no_output"
    REPLICAS = "replicas"
    REPLICA = "replica"
    BY_QUORUM = "by_quorum"
    QUORUM = "quorum"
    CHECKPOINT = "checkpoint"
    ARTIFACT = "artifact"
    AUDIT = "audit"
    QUESTION = "question"
    SELF = "self"
    ANSWER = "answer"

    # plans
    PLAN = "plan"
    DERIVED = "derived"

    # locks
    LOCKED = "locked"
    NO_LOCK = "no_lock"

    # documents
    BASE = "base"
    SIBLINGS = "siblings"
    UNRESOLVED = "unresolved"

    @property
    def is_accepted(self) -> bool:
        """Whether the op took effect, or repeated what was already so."""
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
"""Verdicts that another delegation could change."""
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
"""Verdicts on the bytes alone: it is not known who signed them for this subject."""
ABOUT_TIME = frozenset({Verdict.DRIFT, Verdict.STALE, Verdict.TOO_OLD})
"""Verdicts that a wrong clock of the author can cause."""
_ACCEPTED = frozenset({Verdict.OK, Verdict.EXISTS, Verdict.ALREADY})

_WORDS = {
    Verdict.OK: "accepted",
    Verdict.EXISTS: "it already exists; the first one counts",
    Verdict.ALREADY: "it changes nothing",
    Verdict.FRAME: "the record does not consist of an op and a signature block",
    Verdict.SIZE: "the op is too large",
    Verdict.MALFORMED: "the op does not match the schema",
    Verdict.CANONICAL: "the bytes are not canonical",
    Verdict.VERSION: "the op's version is unknown",
    Verdict.TYPE: "the op's type is unknown",
    Verdict.AUTHOR: "the author's key is not usable",
    Verdict.SIGNATURE: "the signature is not valid",
    Verdict.MESH: "the op was made for another mesh",
    Verdict.SUBJECT: "the record is on the wrong subject",
    Verdict.DRIFT: "the author's clock is too far ahead",
    Verdict.TOO_OLD: "the op is older than the horizon",
    Verdict.PREV: "its prev is not the last record on its subject",
    Verdict.STALE: "it is not newer than the last accepted op",
    Verdict.EQUIVOCATION: "the author signed two ops with one timestamp",
    Verdict.MISSING_DEP: "a record that it depends on is not on the log",
    Verdict.ARCHIVED: "it is as old as what was archived there; sign it again",
    Verdict.NO_CHAIN: "no chain of delegations leads from the owner to the author",
    Verdict.CHAIN_EXPIRED: "a delegation in the chain has expired or is not valid yet",
    Verdict.REVOKED: "a delegation in the chain was revoked",
    Verdict.COMMAND: "the chain does not cover this command",
    Verdict.POLICY: "the chain's policy does not allow it",
    Verdict.NOT_OWNER: "only the owner may do this",
    Verdict.NOT_ROUTED: "the kind is routed to another node",
    Verdict.NOT_COORDINATOR: "only the coordinator may do this",
    Verdict.QUARANTINED: "the author is quarantined",
    Verdict.GENESIS: "a mesh has one genesis, and it is the first op",
    Verdict.RULES: "the rules contradict each other",
    Verdict.TEMPO: "the tempo policy contradicts itself",
    Verdict.PROTOCOL: "the protocol cannot be lowered",
    Verdict.SEAL: "the seal does not match the log",
    Verdict.UNSEEN: "only a node that reads the whole log can check it",
    Verdict.NO_JOB: "it does not exist",
    Verdict.WAITING: "the job has not been offered yet",
    Verdict.HELD: "someone else holds the lease",
    Verdict.FINISHED: "it has already ended",
    Verdict.FENCE: "its fence is not the current one",
    Verdict.NOT_CLAIMER: "the author does not hold the lease",
    Verdict.NOT_CLAIMED: "nobody holds the lease",
    Verdict.LEASE: "the lease is shorter or longer than allowed",
    Verdict.LEASE_OVER: "the lease had already expired",
    Verdict.EARLY: "its time has not come yet",
    Verdict.NOT_YET: "the job cannot be claimed again yet",
    Verdict.DELAY: "its delay is longer than the mesh's horizon ('antiphon rules' shows it), or it"
    " is a plan that begins in more than ten years",
    Verdict.PAUSED: "new claims of such jobs are paused ('antiphon pause' lists it)",
    Verdict.PAUSES: "too many pauses are in force; resume something first",
    Verdict.LIMIT: "it does not name the label of its kind's limit, or names that of other kinds"
    " ('antiphon limits')",
    Verdict.RESULTS: "it does not carry the results that the job waits for",
    Verdict.AFTER: "a yield names jobs to wait for exactly if its reason is 'after', and each of"
    " them once",
    Verdict.TOO_LATE: "the latest time to start has passed, or is not after the earliest",
    Verdict.COOLDOWN: "its lease on this job expired, so it has to wait for one lease",
    Verdict.PRIORITY: "its priority is not the job's",
    Verdict.ATTEMPTS: "it asks for more attempts than the rules allow",
    Verdict.PROOF: "the proof is not valid",
    Verdict.NOT_ENDED: "it has not ended yet",
    Verdict.NO_OUTPUT: "the job has no such output stored outside the log",
    Verdict.REPLICAS: "its quorum is not between 2 and the number of its replicas, or it leaves no"
    " room in a record for what a replica adds",
    Verdict.REPLICA: "it is not a replica of the job that it names",
    Verdict.BY_QUORUM: "the job is not run itself: it ends when enough of its replicas agree",
    Verdict.QUORUM: "too few of the replicas that it names agree",
    Verdict.CHECKPOINT: "only a renewal carries a checkpoint, beats and progress, or too many"
    " earlier checkpoints are still kept",
    Verdict.ARTIFACT: "its number is not the next one, it has no value or two, or the runs of the"
    " job have stored as much as they may",
    Verdict.AUDIT: "it does not account for its model calls: it has to say how many there were, and"
    " to name the snapshots that the runs of the job have stored, in their order",
    Verdict.QUESTION: "the question cannot be answered as it is, or the job is a question and the"
    " op is for other jobs, or the reverse",
    Verdict.SELF: "whoever asked may not answer, nor may the parties that the question excludes",
    Verdict.ANSWER: "the answer is not one of the choices, or does not match the schema, or answers"
    " another question",
    Verdict.PLAN: "the plan would trigger itself, has a time that only a single job can have, or"
    " leaves no room in a record for what a derived job adds",
    Verdict.DERIVED: "it does not follow from the plan that it names",
    Verdict.LOCKED: "the lock is held",
    Verdict.NO_LOCK: "nobody has ever taken that lock",
    Verdict.BASE: "the document has changed since the revision that the writer started from",
    Verdict.SIBLINGS: "it does not name the conflicting values that the document has",
    Verdict.UNRESOLVED: "the document has too many unresolved conflicts",
}
