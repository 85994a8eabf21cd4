"""The gate: admits machines, issues their logins and revokes them (docs/decisions/0010).

It turns what the log says about a node into what the engine lets that node do, and decides nothing
itself: scopes come from `core.authority.scope`, grants from tickets that the owner's machine wrote,
and every delegation is signed by the owner's key, which is held for that moment only.

Invariant: no login permits more than the node's scope did when it was issued, and a scope that
shrinks revokes the logins that were issued before.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_tree import bearers, is_reserved
from antiphon.core.authority.job_rights import READ_BY, WORKED_BY
from antiphon.core.authority.scope import NOTHING, Scope, narrower, scope_of
from antiphon.core.bus.subjects import JOIN, LOGIN
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.subjects import calls_of, queue_name
from antiphon.core.record import subjects
from antiphon.core.record.ids import short_node
from antiphon.core.record.subjects import is_kind
from antiphon.errors import (
    AntiphonError,
    Corrupt,
    Misconfigured,
    RateLimited,
    Rejected,
    Unavailable,
)
from antiphon.guard import Guard, Limits, Who
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.gate.member_registry import MAX_MEMBERS, Member
from antiphon.runtime.gate.relay_rules import Asker
from antiphon.runtime.log.acting import OWN
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.bus.signed_message import Message
    from antiphon.ports import Bus, BusMessage, Keyring, LoginIssuer
    from antiphon.runtime.gate.member_registry import MemberRegistry
    from antiphon.runtime.gate.tickets import Invitation, TicketRegistry
    from antiphon.runtime.log.author import Author

ANY_TIME: Final = 2**63
MAX_AT_ONCE: Final = 16
"""Requests that are being answered; more wait in the bus's own bounded queue, or are lost."""
LOGINS: Final = Limits(
    room="logins",
    of_party=MAX_AT_ONCE,
    in_all=MAX_AT_ONCE,
    request_bytes=gate_requests.MAX_REQUEST_BYTES,
    seconds=60.0,
)
"""Requests to join, and for logins."""
WAITING: Final = 8
"""Requests of one node that wait while it is being answered; the rest are dropped."""
QUEUE_TRIES: Final = 20
"""How often the gate tries to make the queues of its members when it starts."""
RETRY_S: Final = 1.0
REST: Final = 3
"""The pause between two checks of all members, as a multiple of the time that a check took:
anyone may write delegations, and the gate has other things to do."""
MAX_REST_S: Final = 0.5
LOOK_EVERY_S: Final = 5.0
"""How long an expired grant may still count for an open connection, if other grants remain."""
HEARD_WITHIN_S: Final = 2.0
"""How long a used ticket's login stays valid, so that its holder receives the answer."""

log = LazyLogger(__name__)

Owner = Callable[[], AbstractAsyncContextManager[tuple["Author", "Keyring"]]]
"""The owner's author and key, for as long as the block runs."""


class Gate:
    """One mesh's gate."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        session: Session,
        issuer: LoginIssuer,
        tickets: TicketRegistry,
        members: MemberRegistry,
        owner: Owner,
        *,
        bus: Bus | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`bus` is where machines ask to join; None: the session's. `guard` is the process's."""
        self._guard = guard or Guard()
        self._bus = bus or session.engine.bus
        self._session = session
        self._branches = session.protocol.branches
        self._issuer = issuer
        self._tickets = tickets
        self._members = members
        self._owner = owner
        self.requests: Counter[tuple[str, str]] = Counter()
        """By what was asked for and what became of it, since the gate began."""
        self.ready = asyncio.Event()
        """Set once machines can join: what is asked before, nobody hears."""
        self._joining = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_AT_ONCE)
        self._waiting: dict[str, deque[BusMessage]] = {}
        self._heard: dict[str, asyncio.Event] = {}
        """By refresh key: set once the gate listens to that member."""
        self._group: asyncio.TaskGroup
        self._used: dict[str, int] = {}
        """Tickets that were just used, by their user: when the login of each ends."""
        self._ending: dict[str, int] = {}
        self._ending_lock = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._looked_at: tuple[int, int] = (0, 0)
        self._looking_took_s = 0.0
        self._scopes: dict[str, tuple[tuple[int, int], tuple[str, ...], Scope]] = {}
        self._paused: dict[str, tuple[int, str]] = {}
        """By node: until when it gets no login, and why."""

    # --- scopes -----------------------------------------------------------------------------------

    def scope_of(self, user: str) -> Scope:
        """What an engine user may read and write now."""
        member = self._members.by_user(user)
        return NOTHING if member is None else self._scope(member)

    def asker(self, user: str) -> Asker | None:
        """Whose records an engine user sends; None: the gate does not know it."""
        member = self._members.by_user(user)
        return None if member is None else Asker(member.node, self._scope(member))

    def _scope(self, member: Member) -> Scope:
        """Needed for every read of every member, so computed once per change."""
        control, now_s = self._session.control, self._now_s()
        state = (control.since, control.grants.revision)
        known = self._scopes.get(member.user)
        if known is not None and known[:2] == (state, member.kinds):
            until_s = known[2].until_s
            if until_s is None or now_s < until_s:
                return known[2]
        scope = scope_of(control, self._branches, member.node, now_s, member.kinds)
        self._scopes[member.user] = (state, member.kinds, scope)
        return scope

    def _now_s(self) -> int:
        return self._session.wall.now_ms() // 1000

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Answer requests, and revoke logins as the log revokes grants, until cancelled."""
        await self._session.sync_control()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._watch_ends())
            group.create_task(self._hear_joins(group))
            group.create_task(self._make_queues())
            group.create_task(self._hear_strangers())
            self._group = group
            for member in self._members.everyone():
                self._hear(member.refresh_key)

    def _hear(self, refresh_key: str) -> asyncio.Event:
        """Listen to one member from now on; set once the gate listens."""
        known = self._heard.get(refresh_key)
        if known is None:
            known = self._heard[refresh_key] = asyncio.Event()
            self._group.create_task(self._hear_member(refresh_key, known))
        return known

    async def _hear_member(self, refresh_key: str, heard: asyncio.Event) -> None:
        """Answer one member's requests in turn, so that a busy member delays nobody else."""
        where = LOGIN.at(user=refresh_key)
        async with self._bus.subscribe(where, max_pending=WAITING) as requests:
            heard.set()
            async for request in requests:
                async with self._room:
                    await self._answer(request)

    async def _hear_strangers(self) -> None:
        """Answer refresh keys that the gate does not know, so that they get an error."""
        where = LOGIN.at(user="*")
        async with self._bus.subscribe(where, max_pending=WAITING) as requests:
            async for request in requests:
                if request.subject.split(".")[1] not in self._heard:
                    await self._answer(request)

    async def _hear_joins(self, group: asyncio.TaskGroup) -> None:
        where = JOIN.at(user="*")
        async with self._bus.subscribe(where, max_pending=1024) as requests:
            self.ready.set()
            async for request in requests:
                caller = request.subject.split(".")[1]
                waiting = self._waiting.get(caller)
                if waiting is None:
                    self._waiting[caller] = deque((request,))
                    group.create_task(self._attend(caller, group))
                elif len(waiting) < WAITING:
                    waiting.append(request)

    async def _attend(self, caller: str, group: asyncio.TaskGroup) -> None:
        """Answer the requests of a ticket's holder, in turn."""
        waiting = self._waiting[caller]
        try:
            while waiting:
                async with self._room:
                    await self._answer(waiting.popleft())
                if (ends_s := self._used.pop(caller, None)) is not None:
                    group.create_task(self._end_ticket(caller, ends_s))
        finally:
            del self._waiting[caller]

    async def _watch(self) -> None:
        """Check every member's scope whenever control changes."""
        subject = f"ap.{self._session.mesh}.ctl.>"
        while True:
            try:
                await self.look_after()
                async with self._session.log.follow(
                    self._session.confirmed, subject=subject
                ) as batches:
                    async for batch in batches:
                        await self._session.confirm(batch[-1].seq)
                        await self.look_after()
                        await asyncio.sleep(min(self._looking_took_s * REST, MAX_REST_S))
            except Exception as problem:  # noqa: BLE001 - what was not revoked must be, later
                _report(problem)
            await asyncio.sleep(RETRY_S)

    async def _watch_ends(self) -> None:
        """Check again when a scope expires: the login may have been issued for longer."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = self._now_s()
            ends = (scope.until_s for _, _, scope in self._scopes.values())
            if not any(until_s is not None and until_s < now_s for until_s in ends):
                continue
            self._looked_at = (0, 0)
            try:
                await self.look_after()
            except Exception as problem:  # noqa: BLE001 - as above
                _report(problem)

    async def look_after(self) -> None:
        """Revoke the logins that permit more than their node's scope does now."""
        async with self._looking:  # or a login issued meanwhile would be revoked with the old
            control = self._session.control
            state = (control.since, control.grants.revision)
            if state != self._looked_at:
                await self._look_after_all()
                self._looked_at = state

    async def _look_after_all(self) -> None:
        expelled: list[str] = []
        shrunk: list[Member] = []
        begun_s = self._session.wall.boot_s()
        for member in self._members.everyone():
            scope = self._scope(member)
            if not narrower(scope, member.scope, self._branches):
                continue
            expelled.append(member.user)
            if scope == NOTHING:
                expelled.append(member.refresh_key)
            shrunk.append(msgspec.structs.replace(member, scope=scope))
        self._looking_took_s = self._session.wall.boot_s() - begun_s
        if expelled:
            await self._issuer.expel(expelled, self._now_s())
        for member in shrunk:
            self._members.keep(member)
            log.info("member_login_revoked", node=member.node, alias=member.alias)

    def is_member(self, node: str) -> bool:
        """Whether a machine joined under this id."""
        return bool(self._members.users_of((node,)))

    async def pause(self, node: str, length_s: int, why: str) -> None:
        """End a member's connections, and give it no login for a while."""
        now_s = self._now_s()
        self._paused = {one: told for one, told in self._paused.items() if told[0] > now_s}
        self._paused[node] = (now_s + length_s, why)
        log.warning("member_paused", node=node, length_s=length_s, reason=why)
        await self._issuer.expel(self._members.users_of((node,)), now_s)

    def _require_unpaused(self, node: str) -> None:
        until_s, why = self._paused.get(node, (0, ""))
        if (left_s := until_s - self._now_s()) > 0:
            raise RateLimited(f"this machine is paused for {left_s} s: {why}", retry_s=left_s)

    # --- requests -----------------------------------------------------------------------------

    async def _answer(self, request: BusMessage) -> None:
        user, what = request.subject.split(".")[1:]
        if not request.reply:
            return
        outcome = "granted"
        try:
            answer = gate_requests.Answer(login=await self._guarded(user, what, request.payload))
        except AntiphonError as error:
            answer = gate_requests.refusal_of(error)
            if answer.refusal is not None and answer.refusal.is_passing:
                log.warning("gate_failed", problem=error.message)
                outcome = "failed"
            else:
                log.info("gate_refused", problem=error.message)
                outcome = "refused"
        except Exception:
            log.exception("gate_failed")
            outcome = "failed"
            answer = gate_requests.fault("the mesh's gate failed; its log says why")
        self.requests["join" if what == "join" else "login", outcome] += 1
        try:
            await self._bus.publish(request.reply, msgspec.json.encode(answer))
        except Unavailable as away:
            log.warning("gate_answer_lost", problem=away.message)

    async def _end_ticket(self, user: str, ends_s: int) -> None:
        """Revoke a used ticket's login, with those of the tickets that were used meanwhile."""
        await asyncio.sleep(HEARD_WITHIN_S)
        self._ending[user] = ends_s
        async with self._ending_lock:
            ending, self._ending = self._ending, {}
            if not ending:
                return
            try:
                await self._issuer.end_tickets(ending, self._now_s())
            except Exception as problem:  # noqa: BLE001 - they end by themselves a little later
                _report(problem)

    async def _guarded(self, user: str, what: str, payload: bytes) -> gate_requests.Login:
        """Decide in the party's turn: the server has checked whose request it is."""
        member = None if what == "join" else self._members.by_refresh_key(user)
        party = f"{what} {user}" if member is None else member.node
        who = Who(party=party, acts=OWN)  # by a ticket the owner has it delegate
        with self._guard.admit(LOGINS, who, len(payload)) as visit:
            return await visit.work(self._decide(user, what, payload))

    async def _decide(self, user: str, what: str, payload: bytes) -> gate_requests.Login:
        mesh, engine = self._session.mesh, self._issuer.is_signed_by
        if what == "join":
            return await self._join(user, gate_requests.open_join(payload, mesh, user, engine))
        return await self._login(user, gate_requests.open_login(payload, mesh, user, engine))

    async def _join(
        self, ticket_user: str, asked: Message[gate_requests.JoinRequest]
    ) -> gate_requests.Login:
        """Use up a ticket, have the owner delegate, and issue the first login.

        A gate that is killed in between has written down whose the ticket is: the same keys ask
        again, and what was not done yet is done then.
        """
        request, (node, user, refresh_key) = asked.body, asked.signers
        if node == self._session.control.owner:
            raise Rejected("the owner does not need a ticket", reason="ticket")
        self._require_unpaused(node)
        known = self._members.by_user(user) or self._members.by_refresh_key(refresh_key)
        if known is not None and known.node != node:
            raise Rejected("these engine keys belong to another machine", reason="member")
        if len(self._members.everyone()) >= MAX_MEMBERS:
            raise Rejected(f"the mesh has {MAX_MEMBERS} members already", reason="members")
        now_s = self._now_s()
        async with self._joining:
            await self._session.sync_control()  # an alias may have become free just now
            keys = (node, user, refresh_key)
            invitation = self._tickets.find(request.ticket, request.secret, keys, now_s=now_s)
            if invitation.user != ticket_user:
                raise Rejected("this ticket belongs to another login", reason="ticket")
            alias = invitation.terms.alias or request.alias
            self._check_alias(alias, node, by_owner=bool(invitation.terms.alias))
            invitation = self._tickets.redeem(invitation, keys, alias)
            await self._delegate(invitation, node)
            member = Member(
                node=node,
                user=user,
                refresh_key=refresh_key,
                alias=alias,
                kinds=known.kinds if known is not None else (),
            )
            member = msgspec.structs.replace(member, scope=self._scope(member))
            _require_some(member.scope)
            self._members.keep(member)
            self._used[ticket_user] = invitation.expires_s
        await self._hear(member.refresh_key).wait()
        log.info("member_joined", node=member.node, alias=alias)
        login = self._give(member, (), ())
        return msgspec.structs.replace(
            login,
            refresh_jwt=self._issuer.admit_refresh_key(refresh_key, now_s),
            genesis=await self._first_record(),
        )

    async def _first_record(self) -> str:
        """The mesh's first record, from which a machine that joins learns the mesh's name."""
        subject = subjects.control(self._session.mesh, "genesis")
        page = await self._session.log.read(0, limit=1, subject=subject)
        return page.records[0].payload.decode()

    def _check_alias(self, alias: str, node: str, *, by_owner: bool) -> None:
        """Two machines with one alias would make commands mean the wrong one."""
        control = self._session.control
        others = bearers(control, alias, self._now_s(), namers={control.owner}) - {node}
        if not others and not is_reserved(alias):
            return
        taken = f": that is node {short_node(min(others))}" if others else ""
        hint = "antiphon join TICKET --alias ANOTHER-NAME"
        if by_owner:
            hint = f"ask the owner to run 'antiphon revoke {alias}'; this ticket stays valid"
        raise Rejected(f"this machine cannot be called {alias!r}{taken}", reason="alias", hint=hint)

    async def _delegate(self, invitation: Invitation, node: str) -> None:
        """Write what a ticket grants, unless it is on the log.

        One ticket gives the same delegations each time: so a revoked one does not come back.
        """
        async with self._owner() as (author, keyring):
            wanted = self._session.protocol.rights.payloads(
                invitation.terms,
                issuer=keyring.did,
                audience=node,
                owner=self._session.control.owner,
                mesh=self._session.mesh,
                nonce=invitation.nonce,
            )
            grants = self._session.control.grants
            made = [keyring.delegate(one) for one in wanted]
            bodies = [
                DelegateBody(token=token_of(one.raw))
                for one in made
                if grants.find(one.cid, before=ANY_TIME) is None
            ]
            intents = [Intent(UcanDelegate, body, by=author) for body in bodies]
            for written in await write(self._session, intents):
                written.check()

    async def _login(
        self, refresh_key: str, request: gate_requests.LoginRequest
    ) -> gate_requests.Login:
        """A fresh login for a member, with the queues that it needs."""
        member = self._members.by_refresh_key(refresh_key)
        if member is None:
            raise Rejected(
                "the gate does not know this machine", reason="member", hint="antiphon join TICKET"
            )
        asking = msgspec.structs.replace(member, kinds=_asked(member, request))
        _require_some(self._scope(asking))  # first: a pause ends by itself, and this does not
        self._require_unpaused(member.node)
        await self._session.sync_control()
        await self.look_after()
        member = self._members.by_refresh_key(refresh_key) or member
        asking = msgspec.structs.replace(member, kinds=_asked(member, request))
        scope = self._scope(asking)
        _require_some(scope)
        for kind in request.kinds:
            if not _may_claim(scope, kind):
                raise _may_not_claim(kind)
        kinds = tuple(one for one in asking.kinds if _may_claim(scope, one))
        queues = self._queues(kinds)
        await self._issuer.make_queues(queues)
        admitted = msgspec.structs.replace(asking, scope=scope)
        if admitted != member:
            self._members.keep(admitted)
        return self._give(admitted, kinds, tuple(queues))

    def _queues(self, kinds: Iterable[str]) -> dict[str, str]:
        """By name: the filters of the queues of these kinds."""
        return {
            queue_name(kind, priority): calls_of(self._session.mesh, priority, kind, below=False)
            for kind in kinds
            for priority in PRIORITIES
        }

    async def _make_queues(self) -> None:
        """Make the queues of all members: the log of a restored mesh has none."""
        kinds = {kind for member in self._members.everyone() for kind in member.kinds}
        for attempt in range(QUEUE_TRIES):
            try:
                await self._issuer.make_queues(self._queues(sorted(kinds)))
            except AntiphonError as problem:
                log.warning("queues_not_made", problem=problem.message)
                await self._session.pause(attempt)
            else:
                return

    def _give(
        self, member: Member, kinds: tuple[str, ...], queues: tuple[str, ...]
    ) -> gate_requests.Login:
        jwt = self._issuer.admit(
            member.user, member.scope, queues, name=member.alias, now_s=self._now_s()
        )
        return gate_requests.Login(jwt=jwt, scope=member.scope, kinds=kinds, alias=member.alias)


def _report(problem: Exception) -> None:
    """Something failed that is tried again; what cannot be mended by trying ends the gate."""
    if isinstance(problem, Corrupt | Misconfigured):
        raise problem
    if isinstance(problem, AntiphonError):
        log.warning("gate_tries_again", problem=problem.message)
    else:
        log.error("gate_failed", exc_info=problem)


def _require_some(scope: Scope) -> None:
    """`Rejected` if a member may do nothing any more."""
    if scope == NOTHING:
        raise Rejected(
            "this machine's grants have ended or were revoked",
            reason="no_chain",
            hint="ask the mesh's owner for a new ticket, then: antiphon join TICKET",
        )


def _asked(member: Member, request: gate_requests.LoginRequest) -> tuple[str, ...]:
    """All kinds that a machine ever asked for: each has queues, which are never deleted."""
    for kind in request.kinds:
        if not is_kind(kind):
            raise _may_not_claim(kind)
    asked = tuple(sorted({*member.kinds, *request.kinds}))
    if len(asked) > gate_requests.MAX_KINDS:
        raise Rejected(
            f"this machine has asked for {len(asked)} kinds in total; a gate makes queues"
            f" for {gate_requests.MAX_KINDS} at most",
            reason="kinds",
            hint="work on fewer kinds, or join again with a new ticket",
        )
    return asked


def _may_claim(scope: Scope, kind: str) -> bool:
    return scope.admits(kind, *WORKED_BY) and scope.admits(kind, *READ_BY)


def _may_not_claim(kind: str) -> Rejected:
    return Rejected(
        f"this machine may not claim {kind!r}",
        reason="policy",
        hint="'antiphon who' on the owner's machine shows its permissions",
    )
