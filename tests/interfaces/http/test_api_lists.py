"""Lists over HTTP: each takes the right of what it shows, and no member fills it for others."""

import pytest

from antiphon import cron
from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import ClaimBody, CompleteBody, JobClaim, JobComplete
from antiphon.core.families.memory.ops import Inline
from antiphon.core.families.memory.writing import Wanted
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.memory.documents import Documents
from antiphon.sdk.queries import attention
from tests.interfaces.http.client import OPERATOR, as_mesh, served
from tests.interfaces.http.test_api import checked, post, submitted
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.runtime.by_hand import proved

pytestmark = pytest.mark.processes

LISTS = {
    "jobs": ("/v1/jobs", "build.app"),
    "questions": ("/v1/questions", "pay?"),
    "plans": ("/v1/plans", "payday"),
    "locks": ("/v1/locks", "vault"),
    "documents": ("/v1/documents/build.notes", "merger"),
}
"""What each list shows of the mesh of the test below."""
SEES = {
    ("read", "read"): set(LISTS),
    ("claim", "claim"): {"jobs", "questions", "plans"},
    ("answer", "answer"): {"jobs", "questions", "plans"},
    ("read-memory", "all"): set(),
}
"""By right and role."""


async def test_a_list_takes_the_right_of_what_it_shows():
    async with served(CLOSED, long_bars) as node:
        owner = node.program
        await submitted(node, "build.app")
        await owner.questions.ask("pay?", kind="build.pay", choices=("yes", "no"))
        await owner.plans.put("payday", cron("0 3 * * *"), owner.bind("build.app", 1))
        documents, base = Documents(owner.connection.session), 0
        for text in "123":
            put = await documents.put(
                Wanted(
                    space="build.notes",
                    key="merger",
                    agent="main",
                    value=Inline(text=text),
                    base=base,
                    strategy="defer",
                )
            )
            base = base or put.document.revision
        async with owner.lock("vault", scope="build.app"):
            await node.node.reached((await node.node.session.log.last()).seq)
            node.node.replica.flush()
            for (right, role), sees in SEES.items():
                holder = await Holder(node, long_bars).granted(can=right, kinds="build.*")
                token = holder.token(project="build", role=role)
                for name, (path, word) in LISTS.items():
                    answer = await node.ask(path, token)
                    if name in sees:
                        assert word in str(checked(answer, name)), (role, name)
                    else:
                        told = (answer.status, answer.json.get("reason"))
                        assert told in {(403, "role"), (401, "role")}, (role, name)
                needs = (await node.ask("/v1/attention", token)).json.get("items", [])
                assert ("conflicts" in {one["service"] for one in needs}) is ("locks" in sees)


async def test_what_one_member_writes_hides_nobody_elses_over_http(monkeypatch):
    monkeypatch.setattr(attention, "MOST", 10)
    monkeypatch.setattr(attention, "MOST_DEAD", 10)
    async with served() as node:
        spammer, friend = [
            await as_mesh(node.mesh, SeedKeyring(node.mesh.entropy.token(32))) for _ in range(2)
        ]
        dead = await friend.submit("shop.order", 1)
        await failed(friend, dead)
        for number in range(12):
            await spammer.questions.ask("?", kind="spam.q")
            await failed(spammer, await spammer.submit("spam.job", number))
        asked = await friend.questions.ask("pay?", kind="shop.approve", choices=("yes", "no"))
        await node.node.reached((await node.node.session.log.last()).seq)
        items, after = [], ""
        while True:
            answer = await node.ask(f"/v1/attention?limit=5&after={after}", OPERATOR)
            page = checked(answer, "attention")
            if not after:
                assert asked.id in str(page.items), "on the first page"
            items += [one.item for one in page.items]
            after = page.next
            if not after:
                break
        assert {f"shop.order {dead.id}", f"shop.approve {asked.id}"} <= set(items)
        assert len(items) == len(set(items)) == 10 + 2, "failed jobs of one member are a group"


async def failed(mesh, handle):
    """Claim a job with this key, and say that it failed."""
    session = mesh.connection.session
    view = await session.read_lane(handle.kind, handle.id)
    about = {"kind": handle.kind, "job": handle.id}
    lease_ms = session.control.rules.lease_ms
    claim = session.draft(JobClaim, ClaimBody(**about, lease_ms=lease_ms, begin=True), prev=0)
    seq = await session.commit(claim)
    body = CompleteBody(**about, fence=hlc.pack(claim.op.hlc), status="failed", exit=1)
    body = proved(session, body, view.submitted_with.manifest)
    await session.commit(session.draft(JobComplete, body, prev=seq))


async def test_who_may_cancel_a_kind_and_not_read_it_names_its_jobs():
    async with served(CLOSED, long_bars) as node:
        mine, other = await submitted(node, "build.app"), await submitted(node, "bank.pay")
        holder = await Holder(node, long_bars).granted(can="cancel", kinds="build.*")
        token = holder.token(project="build", role="cancel")
        answer = await post(node, f"/v1/jobs/{mine[:12]}/cancel", {"reason": "not now"}, token)
        assert checked(answer, "cancel").outcome == "cancelled"
        refused = await post(node, f"/v1/jobs/{other}/cancel", token=token)
        assert (refused.status, refused.json["reason"]) == (404, "no_job")
