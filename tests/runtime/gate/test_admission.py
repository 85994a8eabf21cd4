"""The gate: who gets in, with which login, and who is shown out."""

import asyncio
import hashlib
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.authority.scope import NOTHING, Scope
from antiphon.core.bus.subjects import JOIN, LOGIN
from antiphon.core.families.grants.ops import RevokeBody, UcanRevoke
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.record.ids import digest
from antiphon.core.record.signing import pae
from antiphon.errors import Held, Malformed, OutcomeUnknown, Rejected, Unavailable
from antiphon.runtime.gate import admission as gates
from antiphon.runtime.gate import gate_requests
from antiphon.runtime.gate.admission import WAITING, Gate
from antiphon.runtime.gate.member_registry import MemberRegistry
from antiphon.runtime.gate.tickets import Invitation, TicketRegistry
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from tests.job_scopes import reads, works
from tests.patience import PATIENCE_S
from tests.runtime.meshes import a_mesh, eventually
from tests.runtime.worker.test_disconnects import Sleeper

CLOSED = Rules(max_drift_ms=100)
RENDER = Terms(can=("claim",), kinds=("render.*",), alias="gpu-box")
SECRET = "5ec4e7"
ENDS_S = 2**40


def by(user: str):
    """How an engine key signs here."""
    return lambda message: hashlib.sha512(f"{user} signed ".encode() + message).digest()


def asking(
    mesh: str, *kinds: str, refresh_key: str = "D1", named: str = "", signed_by: str = ""
) -> bytes:
    """A login request on the subject of a key, in the name of one and signed by another."""
    signer = gate_requests.engine_signer(
        named or refresh_key, by(signed_by or named or refresh_key)
    )
    request, where = gate_requests.LoginRequest(kinds=kinds), LOGIN.at(user=refresh_key)
    return gate_requests.LOGINS.sign(request, signer, mesh=mesh, subject=where)


class RecordingIssuer:
    """An issuer that only remembers what it was asked for."""

    def __init__(self) -> None:
        self.admitted: list[tuple[str, Scope, tuple[str, ...]]] = []
        self.expelled: list[str] = []
        self.ended_tickets: dict[str, int] = {}
        self.queues: list[str] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    def admit(self, user, scope, queues, *, name, now_s) -> str:
        self.admitted.append((user, scope, tuple(queues)))
        return f"login of {name}"

    def admit_refresh_key(self, user, now_s) -> str:
        return "refresh_key"

    def is_signed_by(self, user, payload_type, payload, signature) -> bool:
        return signature == by(user)(pae(payload_type, payload))

    async def expel(self, users, now_s) -> None:
        self.expelled.extend(users)

    async def end_tickets(self, ends_s, now_s) -> None:
        self.ended_tickets |= ends_s

    async def make_queues(self, queues) -> None:
        if queues:
            self.queues += {name.rpartition("=")[0] for name in queues}
            await self.may_go_on.wait()


class GateUnderTest:
    def __init__(self, mesh, directory, owner_station) -> None:
        self.mesh, self.directory, self.owner = mesh, directory, owner_station
        self.issuer = RecordingIssuer()
        self.tickets = TicketRegistry(directory / "tickets")

    def invite(self, number: int = 1, terms: Terms = RENDER) -> str:
        identifier = f"{number:016x}"
        self.tickets.add(
            Invitation(
                id=identifier,
                secret_digest=digest(SECRET.encode()),
                user=f"T{number}",
                terms=terms,
                expires_s=ENDS_S,
            )
        )
        return identifier

    @asynccontextmanager
    async def running(self):
        @asynccontextmanager
        async def as_owner():
            yield self.owner.session.author, self.owner.keyring

        connection = await self.mesh.connection()
        members = MemberRegistry(self.directory / "members")
        gate = Gate(connection.session, self.issuer, self.tickets, members, as_owner)
        task = asyncio.ensure_future(gate.run())
        await gate.ready.wait()
        try:
            yield gate
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def knock(self, subject: str, payload: bytes) -> gate_requests.Login:
        connection = await self.mesh.connection()
        return await gate_requests.ask(connection.engine.bus, subject, payload, within_s=PATIENCE_S)

    async def join(self, key: SeedKeyring, ticket: str, holder: str = "T1", **changes: Any):
        """Ask as a machine does; `forged` are engine keys that are named and do not sign."""
        named = {"node": key.did, "user": "U1", "refresh_key": "D1", "mesh": self.mesh.mesh}
        named |= {"alias": "box", "secret": SECRET, "forged": ()} | changes
        engine_keys = (named["user"], named["refresh_key"])
        signed_by = [(one, by("x" if one in named["forged"] else one)) for one in engine_keys]
        payload = gate_requests.JOINS.sign(
            gate_requests.JoinRequest(ticket=ticket, secret=named["secret"], alias=named["alias"]),
            (named["node"], key.sign),
            *(gate_requests.engine_signer(*one) for one in signed_by),
            mesh=named["mesh"],
            subject=JOIN.at(user=holder),
        )
        return await self.knock(JOIN.at(user=holder), payload)

    async def login(self, *kinds: str, refresh_key: str = "D1") -> gate_requests.Login:
        return await self.knock(
            LOGIN.at(user=refresh_key), asking(self.mesh.mesh, *kinds, refresh_key=refresh_key)
        )

    async def revoke_all(self, node: str) -> None:
        session = self.owner.session
        control = await session.sync_control()
        for delegation in control.grants.given_to(node, before=2**63):
            await self.revoke(delegation.cid)

    async def revoke(self, cid: str) -> None:
        session = self.owner.session
        body = RevokeBody(cid=cid)
        await write_one(session, Intent(UcanRevoke, body))


@asynccontextmanager
async def a_gate(tmp_path):
    async with a_mesh("memory", CLOSED) as mesh:
        yield GateUnderTest(mesh, tmp_path, await mesh.connection(mesh.owner))


def a_key() -> SeedKeyring:
    return SeedKeyring(bytes(range(32)))


async def test_a_ticket_becomes_a_grant_on_the_log_and_a_login_for_just_that(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        key = a_key()
        login = await at.join(key, at.invite())
        assert reads(login.scope) == works(login.scope) == ("render.>",)
        assert login.refresh_jwt == "refresh_key"
        control = await at.owner.session.sync_control()
        granted = control.grants.given_to(key.did, before=2**63)
        assert {one.payload.cmd for one in granted} == {"/job/claim", "/job/complete"}
        assert {one.payload.iss for one in granted} == {control.owner}
        assert at.issuer.admitted == [("U1", login.scope, ())]


async def test_a_ticket_lets_one_machine_in_and_its_own_login_ends(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        ticket = at.invite()
        await at.join(a_key(), ticket)
        other = SeedKeyring(bytes(32))
        with pytest.raises(Rejected, match="already used"):
            await at.join(other, ticket, user="U2", refresh_key="D2")
        assert not (await at.owner.session.sync_control()).grants.given_to(other.did, before=2**63)
        await eventually(lambda: at.issuer.ended_tickets == {"T1": ENDS_S})
        assert not at.issuer.expelled


# --- faults while a machine joins ---------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Unavailable("the stream has no leader"),
        OutcomeUnknown("no answer in time"),
        Held("the owner's key is in use"),
        TimeoutError(),
        OSError("the disk is full"),
    ],
)
async def test_a_passing_fault_is_no_refusal_and_the_same_machine_joins_afterwards(
    tmp_path, monkeypatch, fault
):
    async def fails(*_):
        raise fault

    async with a_gate(tmp_path) as at, at.running() as gate:
        ticket = at.invite()
        with monkeypatch.context() as broken:
            broken.setattr(gates, "write", fails)
            with pytest.raises(gate_requests.GateFault) as told:
                await at.join(a_key(), ticket)
        assert isinstance(told.value, Unavailable)
        assert "nothing was refused" in told.value.hint
        assert gate.requests == {("join", "failed"): 1}
        assert (await at.join(a_key(), ticket)).alias == "gpu-box"


async def test_a_member_s_login_that_could_not_be_made_is_no_refusal_either(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite())

        async def fails(_):
            raise Unavailable("no connection")

        at.issuer.make_queues = fails
        with pytest.raises(gate_requests.GateFault, match="no connection"):
            await at.login("render.frame")


@pytest.mark.parametrize("killed", ["before it delegates", "behind that", "before it answers"])
async def test_who_joined_at_a_gate_that_was_killed_asks_the_next_one(
    tmp_path, monkeypatch, killed
):
    """The ticket is theirs alone, and what was on the log already is not written twice."""
    reached = asyncio.Event()

    async def hangs(*_):
        reached.set()
        await asyncio.Event().wait()

    async def delegates_and_hangs(gate, *given):
        await really_delegate(gate, *given)
        await hangs()

    really_delegate = Gate._delegate
    replaced = {
        "before it delegates": ("_delegate", hangs),
        "behind that": ("_delegate", delegates_and_hangs),
        "before it answers": ("_first_record", hangs),
    }
    key, other = a_key(), SeedKeyring(bytes(32))
    async with a_gate(tmp_path) as at:
        ticket = at.invite()
        with monkeypatch.context() as slow:
            slow.setattr(Gate, *replaced[killed])
            async with at.running():
                joining = asyncio.ensure_future(at.join(key, ticket))
                await reached.wait()
            joining.cancel()
        at.tickets = TicketRegistry(tmp_path / "tickets")
        async with at.running() as gate:
            for stranger in ({"user": "U2", "refresh_key": "D2"}, {}):
                with pytest.raises(Rejected, match=r"already used|another machine"):
                    await at.join(other, ticket, **stranger)
            login = await at.join(key, ticket)
            assert reads(login.scope) == ("render.>",)
            assert gate.is_member(key.did)
            assert not gate.is_member(other.did)
        control = await at.owner.session.sync_control()
        assert len(control.grants.given_to(key.did, before=2**63)) == 2
        assert not control.grants.given_to(other.did, before=2**63)


async def test_a_ticket_does_not_bring_back_what_was_revoked(tmp_path):
    async with a_gate(tmp_path) as at, at.running() as gate:
        key, ticket = a_key(), at.invite()
        await at.join(key, ticket)
        await at.revoke_all(key.did)
        with pytest.raises(Rejected, match="ended or were revoked"):
            await at.join(key, ticket)
        assert gate.scope_of("U1") == NOTHING
        control = await at.owner.session.sync_control()
        assert len(control.grants.given_to(key.did, before=2**63)) == 2


async def test_the_key_must_be_there(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        stolen, mine = a_key(), SeedKeyring(bytes(32))
        ticket = at.invite()
        for named in (stolen.did, "U1", "no key"):
            with pytest.raises(Rejected, match="not signed"):
                await at.join(mine, ticket, node=named)
        assert await at.join(stolen, f"{1:016x}")


async def test_nobody_joins_under_anothers_engine_keys(tmp_path):
    async with a_gate(tmp_path) as at, at.running() as gate:
        await at.join(a_key(), at.invite())
        thief = SeedKeyring(bytes(32))
        ticket = at.invite(2)
        for forged in ("OWNERS", "D2"):
            with pytest.raises(Rejected, match="not signed"):
                await at.join(
                    thief, ticket, "T2", user="OWNERS", refresh_key="D2", forged=(forged,)
                )
        with pytest.raises(Rejected, match="another machine"):
            await at.join(thief, f"{2:016x}", "T2", user="U1", refresh_key="D2")
        assert reads(gate.scope_of("U1")) == ("render.>",)


async def test_a_name_that_another_machine_has_is_refused_and_the_ticket_still_good(tmp_path):
    unnamed = Terms(can=("claim",), kinds=("render.*",))
    async with a_gate(tmp_path) as at, at.running():
        honest, guest = a_key(), SeedKeyring(bytes(32))
        assert (await at.join(honest, at.invite())).alias == "gpu-box"
        ticket = at.invite(2, unnamed)
        for alias in ("gpu-box", "owner", "coordinator", "did:key:z6Mk", honest.did[-8:]):
            with pytest.raises(Rejected, match="cannot be called") as caught:
                await at.join(guest, ticket, "T2", user="U2", refresh_key="D2", alias=alias)
            assert caught.value.reason == "alias"
            assert caught.value.hint == "antiphon join TICKET --alias ANOTHER-NAME"
        assert (await at.join(guest, ticket, "T2", user="U2", refresh_key="D2")).alias == "box"


async def test_a_ticket_for_a_name_in_use_waits_until_that_is_free(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        old, new = a_key(), SeedKeyring(bytes(32))
        await at.join(old, at.invite())
        ticket = at.invite(2)
        with pytest.raises(Rejected, match=f"'gpu-box': that is node {old.did[-8:]}") as caught:
            await at.join(new, ticket, "T2", user="U2", refresh_key="D2")
        assert "antiphon revoke gpu-box" in caught.value.hint
        await at.revoke_all(old.did)
        assert (await at.join(new, ticket, "T2", user="U2", refresh_key="D2")).alias == "gpu-box"


async def test_a_machine_joins_again_under_its_own_name(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        key = a_key()
        await at.join(key, at.invite())
        again = await at.join(key, at.invite(2, Terms(can=("read",))), "T2", alias="gpu-box")
        assert again.alias == "gpu-box"


async def test_wrong_requests_get_a_sentence(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        ticket = at.invite()
        with pytest.raises(Rejected, match="another mesh"):
            await at.join(a_key(), ticket, mesh="elsewhere")
        with pytest.raises(Rejected, match="no such ticket"):
            await at.join(a_key(), ticket, secret="guess")
        with pytest.raises(Rejected, match="printable characters"):
            await at.join(a_key(), ticket, alias="a\nb")
        with pytest.raises(Rejected, match="does not understand"):
            await at.knock("gate.T1.join", b"\xff not json")
        with pytest.raises(Rejected, match="does not know this machine"):
            await at.login()
        assert await at.join(a_key(), ticket)


async def test_a_login_admits_the_queues_of_kinds_within_the_scope(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite())
        login = await at.login("render.frame")
        names = tuple(f"render=frame={priority}" for priority in PRIORITIES)
        assert at.issuer.admitted[-1] == ("U1", login.scope, names)
        assert login.kinds == ("render.frame",)
        with pytest.raises(Rejected, match="may not claim 'build'"):
            await at.login("build")
        assert "build" not in at.issuer.queues


async def test_a_member_without_the_right_to_read_gets_no_queue(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite(terms=Terms(can=("cancel",))))
        with pytest.raises(Rejected, match="may not claim"):
            await at.login("render.frame")


async def test_one_caller_cannot_keep_the_gate_from_others(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite())
        other = msgspec.structs.replace(RENDER, alias="other")
        await at.join(
            SeedKeyring(bytes(32)), at.invite(2, other), "T2", user="U2", refresh_key="D2"
        )
        at.issuer.may_go_on.clear()
        bus = (await at.mesh.connection()).engine.bus
        payload = asking(at.mesh.mesh, "render.frame")
        for _ in range(100):
            await bus.publish(LOGIN.at(user="D1"), payload, reply="inbox.nobody.1")
        assert await at.login(refresh_key="D2")
        at.issuer.may_go_on.set()
        await eventually(lambda: len(at.issuer.queues) > WAITING)
        assert await at.login("render.frame"), "its own turn comes too"
        assert len(at.issuer.queues) <= WAITING + 2


async def test_a_member_asks_for_so_many_kinds_in_all_and_is_told(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite())
        half = gate_requests.MAX_KINDS // 2
        await at.login(*(f"render.b{number}" for number in range(half)))
        await at.login(*(f"render.c{number}" for number in range(half)))
        made = len(set(at.issuer.queues))
        with pytest.raises(Rejected, match=f"for {gate_requests.MAX_KINDS} at most"):
            await at.login("render.a")
        assert len(set(at.issuer.queues)) == made == 2 * half
        assert len((await at.login("render.b0")).kinds) == made


async def test_a_revocation_shows_the_member_out_at_once(tmp_path):
    async with a_gate(tmp_path) as at, at.running() as gate:
        key = a_key()
        await at.join(key, at.invite())
        assert reads(gate.scope_of("U1")) == ("render.>",)
        await at.revoke_all(key.did)
        await eventually(lambda: {"U1", "D1"} <= set(at.issuer.expelled))
        assert gate.scope_of("U1") == NOTHING
        with pytest.raises(Rejected, match="ended or were revoked"):
            await at.login()


@pytest.mark.parametrize("problem", [Unavailable("away"), OSError("the disk is full")])
async def test_a_revocation_that_could_not_be_carried_out_is_tried_again(
    tmp_path, monkeypatch, problem
):
    monkeypatch.setattr(gates, "RETRY_S", 0.01)
    async with a_gate(tmp_path) as at, at.running():
        key = a_key()
        await at.join(key, at.invite())
        expel, failed = at.issuer.expel, []

        async def fails_at_first(users, now_s):
            if len(failed) < 5:
                failed.append(users)
                raise problem
            await expel(users, now_s)

        at.issuer.expel = fails_at_first
        await at.revoke_all(key.did)
        await eventually(lambda: {"U1", "D1"} <= set(at.issuer.expelled))
        with pytest.raises(Rejected, match="ended or were revoked"):
            await at.login()


async def test_losing_a_part_ends_the_login_and_leaves_the_refresh_key(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        key = a_key()
        await at.join(key, at.invite(terms=Terms(can=("claim", "schedule"))))
        control = await at.owner.session.sync_control()
        (schedule,) = (
            one
            for one in control.grants.given_to(key.did, before=2**63)
            if one.payload.cmd == "/job/claim"
        )
        body = RevokeBody(cid=schedule.cid)
        session = at.owner.session
        await write_one(session, Intent(UcanRevoke, body))
        read = next(
            one
            for one in control.grants.given_to(key.did, before=2**63)
            if one.payload.cmd == "/job/read"
        )
        await write_one(session, Intent(UcanRevoke, RevokeBody(cid=read.cid)))
        await eventually(lambda: "U1" in at.issuer.expelled)
        assert "D1" not in at.issuer.expelled
        assert reads((await at.login()).scope) == ()


async def test_a_grant_that_was_replaced_by_a_shorter_one_ends_with_that(tmp_path, monkeypatch):
    monkeypatch.setattr(gates, "LOOK_EVERY_S", 0.1)
    async with a_gate(tmp_path) as at:
        at.mesh.wall = wall = Sleeper(at.mesh.wall)
        async with at.running():
            key = a_key()
            await at.join(key, at.invite())
            until_s = wall.now_ms() // 1000 + 3600
            shorter = msgspec.structs.replace(RENDER, until_s=until_s)
            control = await at.owner.session.sync_control()
            longer = control.grants.given_to(key.did, before=2**63)
            await at.join(key, at.invite(2, shorter), "T2", user="U2", refresh_key="D2")
            for delegation in longer:
                await at.revoke(delegation.cid)
            await asyncio.sleep(0.2)
            assert "U1" not in at.issuer.expelled, "it still may all that it might"
            wall.slept_s = 3602
            await eventually(lambda: {"U1", "D1"} <= set(at.issuer.expelled))


async def test_what_was_revoked_while_the_gate_was_away_is_noticed_when_it_is_back(tmp_path):
    async with a_gate(tmp_path) as at:
        key = a_key()
        async with at.running():
            await at.join(key, at.invite())
        await at.revoke_all(key.did)
        assert "U1" not in at.issuer.expelled
        async with at.running():
            await eventually(lambda: "U1" in at.issuer.expelled)


async def test_a_new_grant_widens_the_next_login_and_ends_nothing(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        key = a_key()
        await at.join(key, at.invite())
        await at.join(key, at.invite(2, Terms(can=("read",))), "T2")
        assert reads((await at.login()).scope) == (">",)
        assert "U1" not in at.issuer.expelled


async def test_nobody_asks_for_a_login_in_anothers_name(tmp_path):
    async with a_gate(tmp_path) as at, at.running():
        await at.join(a_key(), at.invite())
        mesh = at.mesh.mesh
        for payload, told in (
            (asking(mesh, "render.frame", signed_by="D2"), "not signed by the keys"),
            (asking(mesh, "render.frame", named="D2"), "not signed by the refresh key"),
            (asking(mesh, "render.frame", refresh_key="D2"), "is for another login"),
            (asking("elsewhere", "render.frame"), "another mesh"),
        ):
            with pytest.raises(Rejected, match=told):
                await at.knock(LOGIN.at(user="D1"), payload)
        assert at.issuer.queues == []


async def test_a_request_that_is_no_request_is_malformed():
    at = ("m", "D1", RecordingIssuer().is_signed_by)
    with pytest.raises(Malformed, match="does not understand"):
        gate_requests.open_login(b'{"kinds": [1]}', *at)
    with pytest.raises(Malformed, match="300 kinds"):
        gate_requests.open_login(asking("m", *["a"] * 300), *at)
