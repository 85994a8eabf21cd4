"""Bugs in the rules of a job, and in the log beneath them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core import opened_record, reducer
from antiphon.core.authority.control import Control
from antiphon.core.derivations import quorum_derivation
from antiphon.core.families.jobs import completion_proof, replicas, table
from antiphon.core.families.jobs.ops import JobClaim, JobExpire, JobOffer, JobYield
from antiphon.core.families.jobs.state import HELD, OPEN, Job, State
from antiphon.core.families.seals import table as seals_table
from antiphon.core.protocol import Protocol
from antiphon.core.record import codec, signing
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory.log import LogStore
from simulator.patch import patched

FAR_MS: Final = 2**52


@contextmanager
def no_fence_check() -> Iterator[None]:
    """The holder's ops count whatever fence they carry."""

    def only_the_claimer(job: Job, op: Any) -> Verdict | None:
        return None if op.author == job.claimer else Verdict.NOT_CLAIMER

    with patched(table, "_holder_fault", only_the_claimer):
        yield


@contextmanager
def no_compare_and_set() -> Iterator[None]:
    """The engine stores whatever comes, and the rules do not look at `prev`."""
    really_append, really_fault = LogStore.append, reducer._fault  # noqa: SLF001 - as above

    def append(
        self: LogStore, subject: str, payload: bytes, message_id: str, _expected: int
    ) -> int:
        seqs = self._subjects.get(subject)
        return really_append(self, subject, payload, message_id, seqs[-1] if seqs else 0)

    def fault(family: Any, state: Any, op: Any, at: Any, *, is_next: bool) -> Any:
        return really_fault(family, state, op, at, is_next=is_next or not family.is_control)

    with patched(LogStore, "append", append), patched(reducer, "_fault", fault):
        yield


@contextmanager
def expiry_by_local_time() -> Iterator[None]:
    """Whoever believes that a lease is over may end it: the rules check no deadline."""
    row: Any = table.TRANSITIONS[JobExpire]
    with ExitStack() as stack:
        for state in (*HELD, *OPEN):
            stack.enter_context(patched(row, state, _believing(row[state])))
        yield


def _believing(cell: Any) -> Any:
    def judge(job: Job, op: Any, at: Any) -> Any:
        return cell(replace(job, deadline_ms=-1, start_by_ms=-1), op, at)

    return judge


@contextmanager
def subject_unchecked() -> Iterator[None]:
    """A record counts on any subject."""
    really_open = opened_record.open_record

    def open_record(
        protocol: Protocol, mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes
    ) -> opened_record.OpenedRecord:
        opened = really_open(protocol, mesh, seq, commit_ms, subject, payload)
        if opened.fault is not Verdict.SUBJECT:
            return opened
        op_bytes, block = signing.unframe(payload)
        op = codec.decode(op_bytes, protocol.decoder)
        if not signing.is_block_valid(op.author, mesh, op_bytes, block):
            return opened
        return replace(opened, op=op, fault=None, family=protocol.family_of[type(op)])

    with patched(opened_record, "open_record", open_record):
        yield


@contextmanager
def routes_unread() -> Iterator[None]:
    """Whoever may claim may claim what is routed to somebody else."""
    with patched(table, "stands_for", lambda *_: True):
        yield


@contextmanager
def pauses_unread() -> Iterator[None]:
    """Whoever may claim may claim what is paused."""
    with patched(Control, "pause_of", lambda *_: None):
        yield


@contextmanager
def proofs_unread() -> Iterator[None]:
    """A result counts with any proof, or without one."""
    with patched(completion_proof, "is_proved", lambda *_, **__: True):
        yield


@contextmanager
def calls_unread() -> Iterator[None]:
    """An audited result counts whatever it says of its model calls."""
    with patched(completion_proof, "are_accounted_for", lambda *_: True):
        yield


@contextmanager
def seals_unread() -> Iterator[None]:
    """The coordinator may seal whatever it likes."""
    with patched(seals_table, "_matches", lambda *_: True):
        yield


@contextmanager
def claims_judged_as_of(**changes: int | tuple[()]) -> Iterator[None]:
    """Claims are judged as if the job said something else; afterwards it says what it said."""
    row: Any = table.TRANSITIONS[JobClaim]

    def blind(cell: Any) -> Any:
        def judge(job: Job, op: Any, at: Any) -> Any:
            found = cell(replace(job, **changes), op, at)
            if not isinstance(found, Job):
                return found
            return replace(found, **{name: getattr(job, name) for name in changes})

        return judge

    with ExitStack() as stack:
        for state in (State.PENDING, *HELD):
            stack.enter_context(patched(row, state, blind(row[state])))
        yield


def cooldown_skipped() -> AbstractContextManager[None]:
    """Whose lease expired may claim the job again at once."""
    return claims_judged_as_of(cooling=())


def start_by_ignored() -> AbstractContextManager[None]:
    """A job may be claimed however late it is."""
    return claims_judged_as_of(start_by_ms=FAR_MS)


def leases_without_bound() -> AbstractContextManager[None]:
    """A lease may be as long as its holder likes."""
    return claims_judged_as_of(lease_ms_max=FAR_MS)


def tenures_without_end() -> AbstractContextManager[None]:
    """Who goes on renewing keeps a job for ever."""
    return claims_judged_as_of(tenure_ms_max=0)


@contextmanager
def delays_unread() -> Iterator[None]:
    """A delayed job may be offered at any time."""
    row: Any = table.TRANSITIONS[JobOffer]
    cell = row[State.WAITING]

    def judge(job: Job, op: Any, at: Any) -> Any:
        found = cell(replace(job, not_before_ms=0), op, at)
        return replace(found, not_before_ms=job.not_before_ms) if isinstance(found, Job) else found

    with patched(row, State.WAITING, judge):
        yield


@contextmanager
def delays_by_local_time() -> Iterator[None]:
    """A delayed job may be offered by whoever believes that its time has come."""
    row: Any = table.TRANSITIONS[JobOffer]
    cell = row[State.WAITING]

    def judge(job: Job, op: Any, at: Any) -> Any:
        return cell(job, op, replace(at, commit_ms=max(at.commit_ms, job.not_before_ms)))

    with patched(row, State.WAITING, judge):
        yield


@contextmanager
def quorum_of_one() -> Iterator[None]:
    """One replica is enough, for the coordinator that resolves and for the rules."""
    really_fault, really_derive = replicas.quorum_fault, quorum_derivation.derive

    def fault(parent: Job, op: Any, at: Any) -> Any:
        return really_fault(replace(parent, quorum=1), op, at)

    def derive(parent: Job, *rest: Any) -> Any:
        return really_derive(replace(parent, quorum=1), *rest)

    with patched(replicas, "quorum_fault", fault), patched(quorum_derivation, "derive", derive):
        yield


@contextmanager
def attempts_uncounted() -> Iterator[None]:
    """Neither an expiry nor an error uses up an attempt."""

    def forgetful(cell: Any) -> Any:
        return lambda job, op, at: cell(replace(job, attempts=-1), op, at)

    with ExitStack() as stack:
        for kind in (JobExpire, JobYield):
            row: Any = table.TRANSITIONS[kind]
            for state in HELD:
                stack.enter_context(patched(row, state, forgetful(row[state])))
        yield


MUTANTS: Final = (
    no_fence_check,
    no_compare_and_set,
    expiry_by_local_time,
    subject_unchecked,
    routes_unread,
    pauses_unread,
    cooldown_skipped,
    start_by_ignored,
    delays_unread,
    delays_by_local_time,
    quorum_of_one,
    leases_without_bound,
    attempts_uncounted,
    proofs_unread,
    calls_unread,
    seals_unread,
    tenures_without_end,
)
