"""Deliberate bugs, one at a time: each must be noticed by the simulator.

    python -m antiphon.testing.mutants

A zero from `antiphon.testing.simulate` means something only if a broken system does not get one.
Each mutant is a patch that lives here and nowhere else; it is switched on around a run and off
again. For each, short and stormy seeds are run until a law is broken; the same seeds must pass
without it. The last line on standard output is one JSON object; exits 0 only if all were caught.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import authority, codec, lanes, ops, records, seals, signing, transitions
from antiphon.core.grants import Grants
from antiphon.core.ids import digest
from antiphon.core.jobs import HELD, OPEN, Job
from antiphon.core.reasons import Reason
from antiphon.core.rules import PROTOCOL
from antiphon.core.ucan import Chain, signatures
from antiphon.core.ucan import chain as chain_rules
from antiphon.engines.memory.log import LogStore
from antiphon.runtime import worker
from antiphon.runtime.serving import Server
from antiphon.runtime.tenure import Tenure
from antiphon.testing.simulation.plans import Outcome, Plan
from antiphon.testing.simulation.world import run

SEEDS: Final = 200
"""How many seeds a mutant may survive."""
CHAOS_S: Final = 480.0
FAULTS_PER_HOUR: Final = 900.0
JOBS_PER_HOUR: Final = 450.0

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute (or a dictionary's entry) for a while."""
    is_table = isinstance(owner, dict)
    before = owner[name] if is_table else getattr(owner, name)
    put = owner.__setitem__ if is_table else lambda key, new: setattr(owner, key, new)
    put(name, value)
    try:
        yield
    finally:
        put(name, before)


# --- the mutants -----------------------------------------------------------------------------


@contextmanager
def no_fence_check() -> Iterator[None]:
    """The holder's ops count whatever fence they carry."""

    def only_the_claimer(job: Job, op: Any) -> Reason | None:
        return None if op.author == job.claimer else Reason.NOT_CLAIMER

    with patched(transitions, "_holder_fault", only_the_claimer):
        yield


@contextmanager
def early_ack() -> Iterator[None]:
    """A worker acknowledges before it has read the accepted end."""
    really_end: Any = Server._write  # noqa: SLF001 - a mutant reaches where nobody else does

    async def end(self: Server, tenure: Tenure, *rest: Any, **named: Any) -> None:
        tenure.delivery.ack()
        await really_end(self, tenure, *rest, **named)

    with patched(Server, "_write", end):
        yield


@contextmanager
def no_compare_and_set() -> Iterator[None]:
    """The engine stores whatever comes, and the rules do not look at `prev`."""
    really_append, really_judge = LogStore.append, lanes._judge  # noqa: SLF001 - as above

    def append(
        self: LogStore, subject: str, payload: bytes, message_id: str, _expected: int
    ) -> int:
        seqs = self._subjects.get(subject)
        return really_append(self, subject, payload, message_id, seqs[-1] if seqs else 0)

    def judge(control: Any, job: Any, before: int, entry: records.Entry, deps: Any) -> Any:
        named = entry.op.prev if entry.op is not None else before
        return really_judge(control, job, named, entry, deps)

    with patched(LogStore, "append", append), patched(lanes, "_judge", judge):
        yield


@contextmanager
def expiry_by_local_time() -> Iterator[None]:
    """Whoever believes that a lease is over may end it: the rules check no deadline."""
    table: Any = transitions.TRANSITIONS[ops.JobExpire]
    with ExitStack() as stack:
        for state in (*HELD, *OPEN):
            stack.enter_context(patched(table, state, _believing(table[state])))
        yield


def _believing(cell: Any) -> Any:
    def judge(job: Job, op: Any, at: Any) -> Any:
        return cell(replace(job, deadline_ms=-1, start_by_ms=-1), op, at)

    return judge


@contextmanager
def subject_unchecked() -> Iterator[None]:
    """A record counts on whatever subject it lies."""
    really_open = records.open_record

    def open_record(
        mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes
    ) -> records.Entry:
        entry = really_open(mesh, seq, commit_ms, subject, payload)
        if entry.fault is not Reason.SUBJECT:
            return entry
        op_bytes, block = signing.unframe(payload)
        op = codec.decode(op_bytes, ops.decoder)
        if not signing.is_block_valid(op.author, mesh, op_bytes, block):
            return entry
        return records.Entry(seq, commit_ms, subject, op, digest(op_bytes), None)

    with patched(records, "open_record", open_record):
        yield


@contextmanager
def revocation_ignored() -> Iterator[None]:
    """A lease outlives the revocation of what it was begun under."""
    really_revoked = Grants.revoked

    def revoked(self: Grants, cids: tuple[str, ...], *, before: int, after: int = 0) -> Any:
        # Only who asks about a tenure says since when.
        return {} if after else really_revoked(self, cids, before=before)

    with patched(Grants, "revoked", revoked):
        yield


@contextmanager
def quarantine_ends_no_lease() -> Iterator[None]:
    """Who is quarantined keeps what it holds."""
    really_ended = authority.has_ended

    def has_ended(control: Any, job: Job, seq: int) -> bool:
        return really_ended(replace(control, fallen={}), job, seq)

    with patched(authority, "has_ended", has_ended):
        yield


@contextmanager
def one_clock(at: slice) -> Iterator[None]:
    """Time bounds are held against one of the two clocks only."""
    really_judge = Chain.judge

    def judge(
        self: Chain, invoker: str, command: str, arguments: Any, times: Any, revoked: Any
    ) -> Any:
        return really_judge(self, invoker, command, arguments, times[at], revoked)

    with patched(Chain, "judge", judge):
        yield


def authors_clock_only() -> AbstractContextManager[None]:
    """Whoever dates an op back may still use what has expired."""
    return one_clock(slice(0, 1))


def commit_clock_only() -> AbstractContextManager[None]:
    """Whoever signed beforehand, or dates ahead, is not asked when."""
    return one_clock(slice(-1, None))


@contextmanager
def expiry_a_second_late() -> Iterator[None]:
    """A chain holds for a second longer than it says."""
    really_fault = Chain._time_fault  # noqa: SLF001 - as above

    def time_fault(self: Chain, times: Any) -> Any:
        return None if max(times) - 1 == self.expires else really_fault(self, times)

    with patched(Chain, "_time_fault", time_fault):
        yield


@contextmanager
def any_audience() -> Iterator[None]:
    """A chain serves whoever names it."""
    really_judge = Chain.judge

    def judge(
        self: Chain, _invoker: str, command: str, arguments: Any, times: Any, revoked: Any
    ) -> Any:
        return really_judge(self, self.holder, command, arguments, times, revoked)

    with patched(Chain, "judge", judge):
        yield


@contextmanager
def any_root() -> Iterator[None]:
    """A chain may begin with whoever issued its first link."""
    really_follow = chain_rules._follow  # noqa: SLF001 - as above

    def follow(root: str, links: Any, is_signed: Any) -> Any:
        return really_follow(links[0].payload.iss if links else root, links, is_signed)

    with patched(chain_rules, "_follow", follow):
        yield


@contextmanager
def any_kind() -> Iterator[None]:
    """What a policy says of the kind is not held against an op."""
    with patched(Chain, "_policy_fault", lambda *_: None):
        yield


@contextmanager
def anyone_revokes() -> Iterator[None]:
    """A revocation counts whoever wrote it."""
    with patched(Chain, "may_revoke", lambda *_: True):
        yield


@contextmanager
def routes_unread() -> Iterator[None]:
    """Whoever may claim may claim what is routed to somebody else."""
    with patched(transitions, "stands_for", lambda *_: True):
        yield


@contextmanager
def forged_delegations() -> Iterator[None]:
    """Nobody looks at the signature under a delegation."""
    with patched(signatures, "is_signed", lambda _: True):
        yield


@contextmanager
def proofs_unread() -> Iterator[None]:
    """A result counts with any proof, or without one."""
    with patched(transitions, "_is_proved", lambda *_: True):
        yield


@contextmanager
def seals_unread() -> Iterator[None]:
    """The coordinator may seal whatever it likes."""
    with patched(seals, "_judge_content", lambda *_: Reason.OK):
        yield


@contextmanager
def second_life() -> Iterator[None]:
    """A worker back with its dead predecessor's key renews that one's tenure, and runs it again."""
    with patched(worker, "HELD", frozenset()):
        yield


MUTANTS: Final[dict[str, Mutant]] = {
    mutant.__name__: mutant
    for mutant in (
        no_fence_check,
        early_ack,
        no_compare_and_set,
        expiry_by_local_time,
        subject_unchecked,
        revocation_ignored,
        quarantine_ends_no_lease,
        authors_clock_only,
        commit_clock_only,
        expiry_a_second_late,
        any_audience,
        any_root,
        any_kind,
        anyone_revokes,
        forged_delegations,
        routes_unread,
        proofs_unread,
        seals_unread,
        second_life,
    )
}


# --- the hunt --------------------------------------------------------------------------------


class Catch(Struct, frozen=True):
    """How a mutant was caught."""

    mutant: str
    seed: int
    law: str
    what: str


NEWEST: Final = frozenset({"proofs_unread", "seals_unread"})
"""Mutants of what only the newest protocol has. The others are hunted under the first, where less
is signed and a result needs no proof: a run takes half the time, and more comes through."""


def plan(seed: int, name: str = "") -> Plan:
    """A short and stormy run."""
    return Plan(
        seed=seed,
        protocol=PROTOCOL if name in NEWEST else 1,
        chaos_s=CHAOS_S,
        jobs_per_hour=JOBS_PER_HOUR,
        faults_per_hour=FAULTS_PER_HOUR,
        stop_at_first=True,
    )


def hunt(name: str, seeds: Sequence[int]) -> Catch | None:
    """The first seed whose run breaks a law under this mutant, or None."""
    for seed in seeds:
        with MUTANTS[name]():
            outcome = run(plan(seed, name))
        if outcome.violations:
            first = outcome.violations[0]
            return Catch(name, seed, first.law, first.what)
    return None


def unmutated(seeds: Sequence[int], name: str = "") -> list[Outcome]:
    """The same seeds without any mutant: those that break a law all the same."""
    return [outcome for seed in seeds if (outcome := run(plan(seed, name))).broken]


def main(argv: Sequence[str] | None = None) -> int:
    """Hunt them all; say by the exit code whether each was caught and the original was not."""
    parser = argparse.ArgumentParser(
        prog="python -m antiphon.testing.mutants", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many a mutant may survive")
    parser.add_argument("--quick", action="store_true", help="the same; it is quick already")
    arguments = parser.parse_args(argv)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    began, catches, needed = time.monotonic(), dict[str, Catch](), 0
    for name in MUTANTS:
        catch = hunt(name, seeds)
        if catch is None:
            print(f"{name}: SURVIVED {len(seeds)} seeds", file=sys.stderr)
            needed = len(seeds)
            continue
        catches[name] = catch
        needed = max(needed, catch.seed - arguments.seed + 1)
        print(f"{name}: caught at seed {catch.seed} by {catch.law}: {catch.what}", file=sys.stderr)
    broken = [*unmutated(seeds[:needed]), *unmutated(seeds[:needed], "seals_unread")]
    for outcome in broken:
        print(f"unmutated seed {outcome.seed} broke {outcome.violations[0]}", file=sys.stderr)
    report = {
        "mutants": len(MUTANTS),
        "caught": len(catches),
        "seeds_max": needed,
        "unmutated_violations": len(broken),
        "seconds": round(time.monotonic() - began, 1),
        "by": {name: {"seed": c.seed, "law": c.law} for name, c in catches.items()},
    }
    print(json.dumps(report))
    return 0 if len(catches) == len(MUTANTS) and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
