"""For whom this process writes while it answers somebody.

What answers requests runs in a `Visit` of the guard. As long as that lasts, nothing is signed with
this process's key unless the visit says for whom: the route, the verb or the service need not think
of it, and one that forgets it cannot write. Each op is judged as if that party had written it
(`core.acting`), counts at its rate, and is remembered as its own, so that its pace, its pauses and
its turns are those of its own records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.acting import chain_for, fault_as
from antiphon.core.authority.job_rights import SEND_BY
from antiphon.core.authority.scope import EVERY_KIND, admits
from antiphon.core.derivations.plan_authority import may_read
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.family import At
from antiphon.core.messages.send_right import fault as message_fault
from antiphon.core.messages.send_right import rights_of
from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.record.ids import short_node
from antiphon.core.record.op import subject_of
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import TOP, covers
from antiphon.errors import RateLimited, Rejected
from antiphon.guard import answered

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.core.protocol import Protocol
    from antiphon.core.record.op import Op
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.rate_books import RateBooks

RECORDS_A_SECOND: Final = 40.0
RECORDS_AT_ONCE: Final = 400.0
"""Of one party, of what nodes write and store for it: little beside what a mesh reads, so that
nobody has to be paused for it."""
ALLOWED: Final = Allowance(RECORDS_A_SECOND, RECORDS_AT_ONCE)
RECORD_BYTES: Final = 8 * 1024
"""A larger record counts as several."""
_LATER: Final = 2**53
"""As if it came after everything that is known."""


class Acting(Struct, frozen=True, kw_only=True):
    """A party that has this process write for it, and what shows that it may."""

    party: str
    key: str = ""
    """Whose right is asked. Empty: this process's own, such as a person's at this machine."""
    auth: tuple[str, ...] = ()
    """The delegations that it shows; none: whichever permit it."""
    command: str = TOP
    """What it narrowed that to."""
    kinds: tuple[str, ...] = (EVERY_KIND,)
    words: str = "this key"
    """What errors call it."""


OWN: Final = Acting(party="")
"""The person at this machine, or this machine itself."""


def acting() -> Acting | None:
    """For whom this process writes now; None: it answers nobody, and writes its own."""
    visit = answered()
    if visit is None:
        return None
    if not isinstance(visit.who.acts, Acting):
        raise TypeError(
            f"{visit.limits.room!r} answers {visit.who.party!r}, and nothing says that it writes"
            " for it"
        )
    return visit.who.acts


def is_for_others() -> bool:
    """Whether this process writes for somebody else now: what it kept would be sent as its own."""
    now = acting() if answered() is not None else None
    return now is not None and bool(now.key)


def require_own() -> None:
    """`Rejected` where this process writes for somebody else: that goes through `check`."""
    if (now := acting()) is not None and now.key:
        raise Rejected("this is not written for somebody else", reason=Verdict.COMMAND.value)


def check(op: Op, *, control: Control, protocol: Protocol, now_ms: int) -> None:
    """`Rejected` if whoever this process writes for could not write this op."""
    now = acting()
    if now is None or now is OWN:
        return
    kind, command = getattr(op.body, "kind", ""), op.command_of(op.body)
    _check_narrowed(now, command, kind)
    if not now.key:
        return
    place = protocol.place_of(subject_of(op))
    if place is None:
        raise Rejected("control is not written for somebody else", reason=Verdict.COMMAND.value)
    auth = now.auth or chain_for(control, now.key, op, now_ms)
    at = At(_LATER, now_ms, control, place.key)
    fault = fault_as(now.key, auth, op, at, family=protocol.family(place.key.family))
    if fault is not None:
        rights = protocol.rights
        verb = "submit" if command == JobSchedule.COMMAND else rights.word_for(command)
        raise Rejected(
            f"{now.words}, {short_node(now.key)}, may not {verb} {kind}: {fault.in_words}",
            reason=fault.value,
            hint=rights.how_to_grant(command, kind, now.key),
        )
    if isinstance(op, JobSchedule):
        _check_sources(op, now, control, protocol)


def _check_narrowed(now: Acting, command: str, kind: str) -> None:
    """`Rejected` for more than it narrowed its right to."""
    if not covers(now.command, command):
        raise Rejected(f"the token's role does not include {command}", reason="role")
    if not any(admits(one, kind) for one in now.kinds):
        raise Rejected(f"the token is not for {kind}", reason="project")


def _check_sources(op: JobSchedule, now: Acting, control: Control, protocol: Protocol) -> None:
    """The coordinator asks this process's right for the results that it repeats."""
    for kind in dict.fromkeys(kind for kind, _ in op.body.predecessors):
        if not may_read(control, protocol.branches, now.key, kind, op.hlc[0]):
            raise Rejected(
                f"{now.words}, {short_node(now.key)}, may not read {kind}",
                reason="not_readable",
                hint=f"antiphon delegate {now.key} --can read --kind {kind}",
            )


def party_acted_for() -> str:
    """For whom what this process does now counts; empty: for itself."""
    now = acting()
    return "" if now is None else now.party


def check_message(body: MessageBody, *, control: Control, now_ms: int) -> None:
    """`Rejected` if whoever this process sends it for may not send a message."""
    now = acting()
    if now is None or now is OWN:
        return
    _check_narrowed(now, SEND_BY[0], body.kind)
    if not now.key:
        return
    rights = rights_of(control, now.key)
    if now.auth:
        chain = control.grants.chain(control.owner, now.auth, before=_LATER)
        rights = replace(rights, chains=() if chain is None else (chain,))
    fault = message_fault(rights, body, now_ms // 1000)
    if fault is not None:
        words = f"{now.words}, {short_node(now.key)}, may not send this: {fault.in_words}"
        raise Rejected(words, reason=fault.value)


async def count(draft: Draft, written: RateBooks) -> None:
    """Count a record for whoever it is written for; `RateLimited` if there were too many."""
    now, visit = acting(), answered()
    if now is None or visit is None or not now.party:
        return
    visit.require_unpaused()
    await take(written, now.party, len(draft.payload))
    visit.note_written(draft.op_id)
    if isinstance(draft.op, JobSchedule) and draft.opened.place is not None:
        visit.note_written(draft.opened.place.key.name)


async def take(written: RateBooks, party: str, size: int) -> None:
    """Count a record that is written or stored for a party; `RateLimited` if it has too many."""
    wait_s = await written.take(party, max(1.0, size / RECORD_BYTES))
    if wait_s:
        raise RateLimited(
            f"{RECORDS_A_SECOND:g} records a second are stored for one party", retry_s=wait_s
        )
