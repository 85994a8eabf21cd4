"""Handing out rights and steering a mesh from a program, in one process."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from antiphon import Mesh
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import passing_on
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.protocol import PROTOCOL
from antiphon.errors import Conflict, LostRace, Malformed, Rejected
from antiphon.interfaces.cli.commands.authority.rules import parse_value
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.authority.delegation import (
    MEANINGS,
    State,
    Terms,
    acts_through,
    find_node,
    in_words,
    may_claim,
    rule_values,
    stuck_route,
    stuck_routes,
)
from antiphon.sdk.authority.governance import changed_rules
from antiphon.sdk.authority.holdings import require_not_quarantined

GPU, DESK, HELPER = (SeedKeyring(bytes([n]) * 32) for n in (1, 2, 3))
RENDER = Terms(can=("claim",), kinds=("render.*",))


@asynccontextmanager
async def as_(mesh, keyring):
    """The same mesh in another's hands."""
    other = Mesh.open(engine="memory")
    inner, memory = other.connection, mesh.connection.memory
    async with memory.connection("other", keyring) as connection:
        inner._opened, inner.memory = connection, memory
        inner.memory_replica = mesh.connection.memory_replica
        await inner.session.sync_control()
        yield other


def refused(reason):
    return pytest.raises(Rejected, check=lambda error: error.reason == reason)


def soon(seconds=3600):
    return int(time.time()) + seconds


# --- granting and revoking -------------------------------------------------------------------


async def test_a_grant_that_others_hold_up_does_not_save_the_rest(monkeypatch):
    async with Mesh.open(engine="memory") as mesh:
        first, _ = [
            (await mesh.authority.grant(GPU.did, Terms(can=("claim",), kinds=(kind,)))).cids
            for kind in ("render.a", "render.b")
        ]

        async def held_up(subject, payload, **rest):
            if first[0] in subject:
                raise LostRace("somebody wrote there")
            return await append(subject, payload, **rest)

        append = mesh.connection.session.log.append
        monkeypatch.setattr(mesh.connection.session.log, "append", held_up)
        monkeypatch.setattr(mesh.connection.session, "pause", lambda _: asyncio.sleep(0))
        with pytest.raises(Conflict, match=first[0][-8:]) as told:
            await mesh.authority.revoke(GPU.did)
        assert first[0][-8:] in told.value.hint
        assert {one.cid for one in (await mesh.authority.who()).tree.live_to(GPU.did)} == {first[0]}


async def test_what_is_granted_is_held_and_what_is_revoked_is_not():
    async with Mesh.open(engine="memory") as mesh:
        end_s = soon()
        granted = await mesh.authority.grant(
            GPU.did, Terms(can=("claim",), kinds=("render.*",), until_s=end_s, alias="gpu")
        )
        assert (granted.node, len(granted.cids), granted.ends_s) == (GPU.did, 2, end_s)
        held = await mesh.authority.who()
        (holder,) = held.tree.holders
        assert (holder.did, holder.alias) == (GPU.did, "gpu")
        assert in_words(holder.grants) == "claim render.*"
        assert {one.until_s for one in holder.grants} == {end_s}
        assert mesh.authority.revocable(held, by=mesh.did) == set(granted.cids)
        assert not mesh.authority.revocable(held, by=GPU.did), "nobody revokes what they were given"
        ended = await mesh.authority.revoke("gpu")
        assert {one.cid for one in ended.grants} == set(granted.cids)
        assert [one.state for one in (await mesh.authority.who()).tree.grants()] == [
            State.REVOKED
        ] * 2


async def test_a_holder_hands_on_what_it_holds_and_nothing_else():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, GPU) as gpu:
        with refused("no_chain"):
            await gpu.authority.grant(HELPER.did, RENDER)
        assert not (await mesh.authority.who()).tree.void, "nothing empty was handed out"
        end_s = soon()
        await mesh.authority.grant(
            GPU.did, Terms(can=("claim",), kinds=("render.*",), until_s=end_s)
        )
        await mesh.authority.grant(
            GPU.did, Terms(can=("claim",), kinds=("build.wheel",), until_s=end_s)
        )
        both = Terms(can=("claim",), kinds=("render.video", "build.wheel"))
        handed_on = await gpu.authority.grant(HELPER.did, both)
        assert handed_on.ends_s == end_s, "no later than its own"
        for wider in (
            Terms(can=("claim",)),
            Terms(can=("claim",), kinds=("build.*",)),
            Terms(can=("claim",), kinds=("render.video", "test")),
            Terms(can=("schedule",), kinds=("render.*",)),
            Terms(can=("all",), kinds=("render.*",)),
        ):
            with refused("no_chain"):
                await gpu.authority.grant(HELPER.did, wider)
        held = await mesh.authority.who()
        assert len(held.tree.live_to(HELPER.did)) == 2
        await mesh.authority.revoke(GPU.did)
        assert (await mesh.authority.who()).tree.live_to(HELPER.did) == []
        with refused("no_chain"):
            await gpu.authority.grant(HELPER.did, both)
        again = await mesh.authority.grant(GPU.did, RENDER)
        assert {one.cid for one in again.revived} == set(handed_on.cids), "it hangs from Gpu's own"


async def test_a_revocation_says_what_hung_from_it():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, GPU) as gpu:
        mine = await mesh.authority.grant(GPU.did, RENDER)
        below = await gpu.authority.grant(HELPER.did, RENDER)
        ended = await mesh.authority.revoke(*(cid[-8:] for cid in mine.cids))
        assert {one.cid for one in ended.grants} == set(mine.cids)
        assert {one.cid for one in ended.below} == set(below.cids)


async def test_those_who_gave_and_the_owner_take_back_and_nobody_else():
    async with (
        Mesh.open(engine="memory") as mesh,
        as_(mesh, GPU) as gpu,
        as_(mesh, HELPER) as helper,
    ):
        mine = await mesh.authority.grant(GPU.did, RENDER)
        theirs = await gpu.authority.grant(HELPER.did, RENDER)
        for target in (mine.cids[0], theirs.cids[0]):
            with refused("no_chain"):
                await helper.authority.revoke(target)
        with refused("no_grant"):
            await helper.authority.revoke(GPU.did)
        with refused("no_chain"):
            await gpu.authority.revoke(mine.cids[0])
        await gpu.authority.revoke(theirs.cids[0])
        with refused("already"):
            await mesh.authority.revoke(theirs.cids[0])
        with refused("no_grant"):
            await mesh.authority.revoke("nothing-like-it")
        ended = await mesh.authority.revoke(HELPER.did)
        assert [one.cid for one in ended.grants] == [theirs.cids[1]], "the owner: anybody's"


async def test_a_running_job_that_loses_its_lease_is_named():
    mesh = Mesh.open(engine="memory")
    started, over = [], []

    @mesh.task("render.frame")
    async def frame() -> None:
        started.append(True)
        while not over:
            await asyncio.sleep(0.01)

    async with mesh, mesh.worker() as worker:
        granted = await mesh.authority.grant(worker.session.author.did, RENDER)
        await mesh.authority.set_rules({"authority": "chain"})
        await worker.session.sync_control()
        handle = await mesh.submit("render.frame")
        while not started:
            await handle.state()
        ended = await mesh.authority.revoke(granted.cids[0])
        assert [job.id for job in ended.jobs] == [handle.id]
        over.append(True)


@pytest.mark.parametrize("node", ["owner", "did:key:z6MkNotAKey", "did:web:example.org", "nobody"])
async def test_not_everybody_can_be_granted_something(node):
    async with Mesh.open(engine="memory") as mesh:
        with pytest.raises(Rejected):
            await mesh.authority.grant(node, RENDER)
        assert list((await mesh.authority.who()).tree.grants()) == []


# --- names -----------------------------------------------------------------------------------


async def test_a_name_is_one_nodes_as_long_as_it_holds_something():
    def called(alias):
        return Terms(can=("claim",), kinds=("render.*",), alias=alias)

    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.grant(GPU.did, called("gpu"))
        for taken in ("gpu", "owner", "coordinator", "did:key:z"):
            with refused("alias"):
                await mesh.authority.grant(DESK.did, called(taken))
        again = await mesh.authority.grant("gpu", Terms(can=("read",)))
        assert again.terms.alias == "gpu", "the name stays"
        await mesh.authority.revoke("gpu")
        await mesh.authority.grant(DESK.did, called("gpu"))
        held = await mesh.authority.who()
        assert find_node(held, "gpu") == DESK.did, "the new one of that name"
        assert find_node(held, GPU.did[-8:]) == GPU.did
        assert find_node(held, "owner") == find_node(held, "coordinator") == held.owner
        with refused("no_node"):
            find_node(held, HELPER.did[-8:])


async def test_what_others_call_a_node_is_not_taken_over():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, GPU) as gpu:
        await mesh.authority.grant(GPU.did, RENDER)
        theirs = Terms(can=("claim",), kinds=("render.*",), alias="laptop")
        await gpu.authority.grant(HELPER.did, theirs)
        assert find_node(await mesh.authority.who(), "laptop") == HELPER.did
        assert (await mesh.authority.grant("laptop", RENDER)).terms.alias == ""
        await mesh.authority.grant(DESK.did, theirs)
        assert find_node(await mesh.authority.who(), "laptop") == DESK.did, (
            "the owner's word comes first"
        )


async def test_a_quarantined_key_is_told_so_before_it_signs_anything():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, GPU) as gpu:
        held = await gpu.authority.who()
        require_not_quarantined(held)
        fallen = structs.replace(held, quarantined=(GPU.did,))
        with refused("quarantined"):
            require_not_quarantined(fallen)
        require_not_quarantined(structs.replace(fallen, owner=GPU.did))


async def test_names_that_could_mean_several_are_refused():
    async with (
        Mesh.open(engine="memory") as mesh,
        as_(mesh, GPU) as gpu,
        as_(mesh, DESK) as desk,
    ):
        for who_ in (GPU, DESK):
            await mesh.authority.grant(who_.did, RENDER)
        processes = [SeedKeyring(bytes([n]) * 32) for n in (8, 9)]
        for giver, process in zip((gpu, desk), processes, strict=True):
            named = Terms(can=("claim",), kinds=("render.*",), alias="worker-1")
            await giver.authority.grant(process.did, named)
        with refused("ambiguous"):
            await mesh.authority.revoke("worker-1")
        assert find_node(await gpu.authority.who(), "worker-1") == processes[0].did, "its own"


# --- routes, coordinator, rules --------------------------------------------------------------


async def test_routes_and_coordinator_change_once():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.grant(GPU.did, Terms(can=("claim",), kinds=("render.*",), alias="gpu"))
        first = await mesh.authority.set_route("render", "gpu")
        assert (first.before, first.after) == (None, GPU.did)
        assert mesh.connection.session.control.route_for("render.video") == GPU.did
        assert (await mesh.authority.set_route("render", GPU.did)).seq == 0
        assert (await mesh.authority.set_route("render", None)).before == GPU.did
        assert (await mesh.authority.set_route("render", None)).seq == 0
        assert mesh.connection.session.control.routes == {}
        named = await mesh.authority.set_coordinator("gpu")
        assert named.seq
        assert mesh.connection.session.control.coordinator == GPU.did
        assert (await mesh.authority.set_coordinator("gpu")).seq == 0
        with pytest.raises(Malformed):
            await mesh.authority.set_route("Render", "gpu")


async def test_a_route_under_which_nobody_may_claim_says_why():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.grant(GPU.did, structs.replace(RENDER, alias="gpu"))
        await mesh.authority.set_route("render", "gpu")
        await mesh.authority.set_rules({"authority": "chain"})
        assert stuck_routes(await mesh.authority.who()) == []
        await mesh.authority.revoke("gpu")
        (stuck,) = stuck_routes(await mesh.authority.who())
        assert stuck.words == "render is routed to gpu, which was revoked: nobody may claim it"
        assert "antiphon route render --clear" in stuck.hint
        await mesh.authority.grant(GPU.did, Terms(can=("claim",), kinds=("render.video",)))
        held = await mesh.authority.who()
        assert stuck_routes(held) == [], "some of its jobs can be claimed"
        assert stuck_route(held, "render.video") is None
        assert stuck_route(held, "render.frame").words.startswith("render.frame is routed to gpu")
        assert stuck_route(held, "build") is None
        await mesh.authority.set_route("build", DESK.did)
        (never,) = stuck_routes(await mesh.authority.who())
        assert never.words.endswith("which has no permission to claim it: nobody may claim it")


async def test_members_count_once_for_a_quorum_and_only_while_they_may_claim():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.set_rules({"authority": "chain"})
        asked = {"options": {"replicas": 2, "quorum": 2}}

        async def submitted():
            return await mesh.submit("render.video", 1, **asked)

        with refused("quorum") as told:
            await submitted()
        assert "none can" in told.value.message
        await mesh.authority.grant(GPU.did, structs.replace(RENDER, alias="gpu"))
        await mesh.authority.grant(GPU.did, Terms(can=("claim",)))
        await mesh.authority.grant(
            DESK.did, Terms(can=("claim",), kinds=("build.*",), alias="desk")
        )
        async with as_(mesh, GPU) as gpu:
            await gpu.authority.grant(HELPER.did, RENDER)
        with refused("quorum") as told:
            await submitted()
        assert told.value.message.endswith("only 1 can run it: gpu")
        await mesh.authority.grant(DESK.did, Terms(can=("claim",), kinds=("render.*",)))
        assert (await submitted()).is_new
        await mesh.authority.set_route("render", GPU.did)
        with refused("quorum"):
            await submitted()
        await mesh.authority.set_route("render", None)
        await mesh.authority.revoke("desk")
        with refused("quorum"):
            await submitted()


async def test_a_route_to_somebody_without_the_right_can_be_told():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.grant(GPU.did, RENDER)
        await mesh.authority.grant(DESK.did, Terms(can=("schedule",)))
        assert may_claim(await mesh.authority.who(), DESK.did, "render"), "the mesh is open"
        await mesh.authority.set_rules({"authority": "chain"})
        held = await mesh.authority.who()
        told = {
            (name, kind): may_claim(held, did, kind)
            for name, did in (("gpu", GPU.did), ("desk", DESK.did), ("owner", held.owner))
            for kind in ("render", "render.video", "build")
        }
        assert [key for key, may in told.items() if may] == [
            ("gpu", "render"),
            ("gpu", "render.video"),
            ("owner", "render"),
            ("owner", "render.video"),
            ("owner", "build"),
        ]


async def test_a_machine_that_acts_through_its_processes_can_be_told_from_a_node():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.grant(GPU.did, RENDER)
        assert acts_through(await mesh.authority.who(), GPU.did) == []
        payload = passing_on(
            issuer=GPU.did, audience=HELPER.did, mesh=mesh.id, alias="worker-1", nonce=bytes
        )
        async with as_(mesh, GPU) as gpu:
            body = DelegateBody(token=token_of(GPU.delegate(payload).raw))
            await write_one(gpu.connection.session, Intent(UcanDelegate, body))
        held = await mesh.authority.who()
        assert acts_through(held, GPU.did) == [HELPER.did]
        assert acts_through(held, HELPER.did) == acts_through(held, held.owner) == []


async def test_only_the_owner_steers():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, GPU) as gpu:
        newest = await mesh.connection.session.log.last()
        for act in (
            gpu.authority.set_route("render", GPU.did),
            gpu.authority.set_coordinator(GPU.did),
            gpu.authority.set_rules({"attempts": 4}),
        ):
            with pytest.raises(Rejected, match="only the owner") as refusal:
                await act
            assert refusal.value.reason == "not_owner"
            assert (await mesh.authority.who()).owner[-8:] in refusal.value.message
        assert (await mesh.connection.session.log.last()).seq == newest.seq, "nothing was written"


async def test_rules_change_where_they_differ():
    async with Mesh.open(engine="memory") as mesh:
        changed = await mesh.authority.set_rules({"lease_ms": 45_000, "attempts": 3})
        assert changed.seq
        assert (changed.before["lease_ms"], changed.after["lease_ms"]) == (30_000, 45_000)
        assert mesh.connection.session.control.rules == Rules(authority="open", lease_ms=45_000)
        assert (await mesh.authority.set_rules({"lease_ms": 45_000})).seq == 0
        chosen = parse_value("selection", "render.*:rendezvous,build:queue")
        await mesh.authority.set_rules({"selection": chosen})
        assert mesh.connection.session.control.selection_for("render.video") == "rendezvous"


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"lease_min_ms": 1_000}, "twice max_drift_ms"),
        ({"attempts": 101}, "attempts is above attempts_max"),
        ({"attempts": 5_000}, "<= 1000"),
        ({"attempts": "many"}, "attempts cannot be 'many'"),
        ({"authority": "none"}, "authority cannot be 'none'"),
        ({"protocol": PROTOCOL.number + 1}, f"this version reads up to {PROTOCOL.number}"),
        ({"selection": [("Render", "queue")]}, "selection cannot be"),
        ({"speed": 3}, "there is no rule 'speed'"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_the_reason(changes, said):
    with pytest.raises(Rejected) as refusal:
        changed_rules(Rules(), changes, newest=PROTOCOL.number)
    assert said in refusal.value.message


def test_both_halves_of_a_contradiction_can_be_changed_at_once():
    after = changed_rules(Rules(), {"lease_min_ms": 1_000, "max_drift_ms": 500}, newest=1)
    assert (after.lease_min_ms, after.max_drift_ms) == (1_000, 500)


# --- what is told about rules ----------------------------------------------------------------


def test_every_rule_has_a_meaning():
    assert list(MEANINGS) == list(rule_values())


@pytest.mark.parametrize("name", rule_values())
def test_every_rule_can_be_typed_as_it_is_shown(name):
    from antiphon.interfaces.cli.commands.authority.rules import in_words

    others = {"selection": [("render", "rendezvous")], "limits": [], "tracebacks": False}
    others |= {"audit_inference": True, "redact_inference": ["prompt", "output"]}
    for value in (rule_values()[name], others.get(name, 2)):
        if isinstance(value, int):
            assert parse_value(name, in_words(name, value)) == value
        else:
            assert tuple(parse_value(name, in_words(name, value))) == tuple(value)
