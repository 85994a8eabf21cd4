"""Which records of members the gate writes to the log: those that the rules accept.

The branches declare their types. Every node reads all of control, for good. So the gate stores
only records that take effect, and of one party no more than a number of records and bytes per
hour, counted in the engine by all gates. It decides nothing by that: a record refused for its
content would be rejected, or have no effect, on the log.

Members without a login at the engine (`member_door`) send all their records this way: also those
that a login would let them write themselves, where its permissions would, and at a bounded rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.delegations import open_token
from antiphon.core.authority.scope import Scope, has_ended
from antiphon.core.families.grants.ops import UcanDelegate, UcanRevoke
from antiphon.core.opened_record import open_anywhere
from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.record.ids import message_id
from antiphon.core.record.verdict import Verdict
from antiphon.errors import LostRace, Rejected
from antiphon.runtime.log.acting import take
from antiphon.runtime.rate_books import RateBooks

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.branches import LaneKey
    from antiphon.core.record.op import Op
    from antiphon.ports import MessageStore
    from antiphon.runtime.log.session import Session

RECORDS_AN_HOUR: Final = 240
BYTES_AN_HOUR: Final = 512 * 1024
"""For one party and one type of op: a member that used up its delegations can still revoke."""
_HOUR_S: Final = 3600.0
_ANY_TIME: Final = 2**63


class Asker(NamedTuple):
    """Whose request it is: for whom it counts, and what it may do now."""

    party: str
    scope: Scope


class RelayRules:
    """Checks the records that members send to the gate."""

    def __init__(
        self,
        session: Session,
        asker_of: Callable[[str], Asker | None],
        store: MessageStore,
        *,
        is_only_way: bool = False,
    ) -> None:
        """`asker_of` says who a user is; None: nobody that is known.

        `is_only_way`: its users are keys without a login at the engine, and write nothing
        themselves. What is counted is in `store`.
        """
        self._session = session
        self._asker_of = asker_of
        self._is_only_way = is_only_way
        hour = Allowance(RECORDS_AN_HOUR / _HOUR_S, RECORDS_AN_HOUR)
        self._hours = RateBooks(store, session.wall.now_ms, hour, name="relay", is_kept_first=True)

    async def accept(self, user: str, payload: bytes) -> tuple[str, str, int]:
        """A record's subject, message id and predecessor; `Rejected` if it is not worth storing."""
        asker = self._asker_of(user)
        if asker is None:
            raise Rejected("the gate does not know this machine", reason="member")
        session = self._session
        await session.sync_control()
        shown = open_anywhere(session.protocol, session.mesh, payload)
        op, place = shown.op, shown.place
        if shown.fault is not None and self._is_only_way:
            told = f"this is not a record of the mesh: {shown.fault.in_words}"
            raise Rejected(told, reason=shown.fault.value)
        if op is None or place is None or not self._is_taken(op):
            raise Rejected(f"the gate only takes {self._taken()}", reason="op")
        if self._is_only_way and op.author != user:
            raise Rejected("a key sends its own records only", reason=Verdict.AUTHOR.value)
        _check_scope(asker.scope, op, place.key.kind)
        verdict = await self._foresee(shown, place.key)
        if verdict is Verdict.PREV:
            raise LostRace(f"{shown.subject} is no longer at {op.prev}")
        # What repeats something on a lane changes nothing, and its writer would not know why.
        is_fine = verdict is Verdict.OK or (verdict.is_accepted and not op.BRANCH.via_gate)
        if not is_fine:
            raise Rejected(
                f"{op.type_name()} would be rejected: {verdict.in_words}", reason=verdict.value
            )
        if isinstance(op, UcanRevoke):
            now_s = session.wall.now_ms() // 1000
            _check_effect(session.control, op.body.cid, op.author, now_s)
        if isinstance(op, UcanDelegate):
            _check_giver(session.control, open_token(op.body.token).payload.iss)
        if op.BRANCH.via_gate:
            await self._count(asker.party, op.type_name(), len(payload))
        else:
            await take(session.written, asker.party, len(payload))
        return shown.subject, message_id(payload), op.prev

    async def close(self) -> None:
        """Wait for counts that are being written."""
        await self._session.written.close()
        await self._hours.close()

    def _is_taken(self, op: Op | type[Op]) -> bool:
        branch = op.BRANCH
        return branch.via_gate or (self._is_only_way and bool(branch.written_by))

    def _taken(self) -> str:
        types = [name for name, op in self._session.protocol.ops.items() if self._is_taken(op)]
        return ", ".join(sorted(types))

    async def _foresee(self, shown: OpenedRecord, key: LaneKey) -> Verdict:
        """The verdict that a record would get if it were committed now."""
        session, now_ms = self._session, self._session.wall.now_ms()
        if shown.is_control:
            opened = replace(shown, seq=session.history.applied + 1, commit_ms=now_ms)
            return session.history.judge(opened).verdict
        lane = (await session.read(key)).lane
        seq = max(session.confirmed, *lane.tails) + 1
        return (await session.judge(replace(shown, seq=seq, commit_ms=now_ms), lane)).verdict

    async def _count(self, party: str, what: str, size: int) -> None:
        """`Rejected` if a party has used up its hour."""
        cost = max(1.0, size * RECORDS_AN_HOUR / BYTES_AN_HOUR)
        wait_s = await self._hours.take(f"{what} {party}", cost)
        if wait_s:
            raise Rejected(
                f"the gate has written as much of type {what} for this machine as it does within"
                f" the hour: {RECORDS_AN_HOUR} records or {BYTES_AN_HOUR} bytes",
                reason="quota",
                hint=f"try again in {int(wait_s / 60) + 1} min, or ask the owner to write it",
            )


def _check_scope(scope: Scope, op: Op, kind: str) -> None:
    """`Rejected` if the member may not write there itself, or read where no member may write.

    So nobody can make the gate read lanes that they have no permission for.
    """
    commands = op.BRANCH.written_by or op.BRANCH.read_by
    if commands and not scope.admits(kind, *commands):
        raise Rejected(
            f"this machine has none of {', '.join(commands)} for {kind!r}",
            reason=Verdict.POLICY.value,
            hint="'antiphon who' on the owner's machine shows its permissions",
        )


def _check_giver(control: Control, issuer: str) -> None:
    """`Rejected` unless a chain leads from the owner to the issuer.

    A delegation by a stranger permits nothing, and every node would have to keep it.
    """
    if not control.grants.is_held_by(issuer, root=control.owner, before=_ANY_TIME):
        raise Rejected(
            "its issuer has no permission from the owner to delegate",
            reason=Verdict.NO_CHAIN.value,
            hint="'antiphon who' shows who may do what",
        )


def _check_effect(control: Control, cid: str, author: str, now_s: int) -> None:
    """`Rejected` unless the revocation ends something, now or when a chain uses it.

    Anyone can write delegations to the owner, and so be above every delegation: harmless in a
    chain, but a way to fill a subject. And keys are free: a member can stand above a delegation
    with any number of them. So there are no more revocations of one than there were chains that
    it was part of, and none after its issuer's or the owner's, which end all of them.
    """
    grants, before = control.grants, _ANY_TIME
    link = grants.find(cid, before=before)
    if link is None:
        raise Rejected(f"there is no delegation {cid[-8:]}", reason=Verdict.NO_CHAIN.value)
    revoked_by = grants.revoked((cid,), before=before).get(cid, ())
    if not {author, link.issuer, control.owner}.isdisjoint(revoked_by):
        raise Rejected(f"{cid[-8:]} is already revoked", reason=Verdict.ALREADY.value)
    if author in {control.owner, link.issuer}:
        return
    chains = chains_to(grants, control.owner, link.audience, before=before)
    below = [chain for chain in chains if chain.may_revoke(author, cid)]
    if not below:
        raise Rejected(
            f"{cid[-8:]} can only be revoked by its issuer and by those above it",
            reason=Verdict.NO_CHAIN.value,
        )
    if all(has_ended(control, chain, now_s) for chain in below):
        raise Rejected(
            f"nothing that {cid[-8:]} permits below this key is left to revoke",
            reason=Verdict.ALREADY.value,
        )
