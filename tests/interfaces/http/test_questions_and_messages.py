"""`/v1` for people: questions, what needs attention, messages, and what jobs cost."""

import pytest

from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.manifest import NonceInput
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.runtime.attention.attention_table import Attention
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.step import QuestionTerms
from antiphon.runtime.log.writer import Intent, write_one
from tests.interfaces.http.client import OPERATOR, served
from tests.interfaces.http.test_api import checked, ended, post, submitted, working
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.runtime.meshes import CALM
from tests.runtime.plans.plan_meshes import grant
from tests.sdk.costs.test_cost import RATES

pytestmark = pytest.mark.processes

DEPLOY = "approve.deploy"


async def asked(node, session, kind=DEPLOY, text="deploy?", **how) -> str:
    """A question on the log, and read by the node; its id."""
    how = {"choices": ("yes", "no")} | how
    nonce = NonceInput(nonce=session.entropy.token(16).hex(), origin="random")
    terms = QuestionTerms.of(text, kind=kind, **how)
    done = await submission.submit(session, terms.body(nonce, session.wall.now_ms()))
    await read_back(node)
    return done.id


async def read_back(node):
    owner = (await node.mesh.connection(node.mesh.owner)).session
    await node.node.reached((await owner.log.last()).seq)


async def member(node, **granted):
    """A key that may schedule everything, and more; and its session."""
    holder = await Holder(node, long_bars).granted(**granted)
    owner = (await node.mesh.connection(node.mesh.owner)).session
    await grant(owner, holder.key.did, kinds=("*",))
    await read_back(node)
    return holder, (await node.mesh.connection(holder.key)).session


async def test_a_question_is_listed_shown_and_answered_once_in_the_nodes_name():
    async with served() as node:
        session = (await node.mesh.connection()).session
        first = await asked(node, session)
        second = await asked(node, session, kind="poll.lunch", text="lunch?", choices=())
        page = checked(await node.ask("/v1/questions?limit=1", OPERATOR), "questions")
        assert [one.job_id for one in page.items] == [first]
        rest = await node.ask(f"/v1/questions?limit=5&after={page.next}", OPERATOR)
        assert [one.text for one in checked(rest, "questions").items] == ["lunch?"]
        polls = checked(await node.ask("/v1/questions?kind=poll", OPERATOR), "questions")
        assert [one.job_id for one in polls.items] == [second]
        assert not polls.next
        shown = checked(await node.ask(f"/v1/questions/{first[:12]}", OPERATOR), "question")
        assert (shown.choices, shown.state, shown.answer) == (("yes", "no"), "pending", None)
        wrong = await post(node, f"/v1/questions/{first}/answer", {"answer": "perhaps"})
        assert (wrong.status, wrong.json["reason"]) == (422, "answer")
        given = await post(node, f"/v1/questions/{first}/answer", {"answer": "yes"})
        assert (given.status, checked(given, "answer").signed_by) == (201, node.mesh.owner.did)
        again = await post(node, f"/v1/questions/{first}/answer", {"answer": "yes"})
        assert (again.status, checked(again, "answer").is_new) == (200, False)
        other = await post(node, f"/v1/questions/{first}/answer", {"answer": "no"})
        assert (other.status, other.json["reason"]) == (409, "finished")
        shown = checked(await node.ask(f"/v1/questions/{first}", OPERATOR), "question")
        assert (shown.answer, shown.answered_by) == ("yes", node.mesh.owner.did)
        left = checked(await node.ask("/v1/questions", OPERATOR), "questions")
        assert [one.job_id for one in left.items] == [second]
        job = await submitted(node)
        refused = await node.ask(f"/v1/questions/{job}", OPERATOR)
        assert (refused.status, refused.json["reason"]) == (404, "question")


async def test_a_party_sees_and_answers_questions_of_its_kinds_and_not_its_own():
    async with served(CLOSED, long_bars) as node:
        owner = (await node.mesh.connection(node.mesh.owner)).session
        person, mine = await member(node, can="answer", kinds="approve.*")
        _, theirs = await member(node)
        token = person.token(role="answer", project="approve")
        own = await asked(node, mine)
        open_to_all = await asked(node, theirs)
        excluded = await asked(node, theirs, not_by=(person.key.did,))
        hidden = await asked(node, theirs, kind="bank.pay")
        several = await asked(node, theirs, replicas=2, quorum=2)
        listed = checked(await node.ask("/v1/questions", token), "questions")
        seen = {one.job_id for one in listed.items}
        assert {own, open_to_all, excluded, several} == seen
        assert (await node.ask(f"/v1/questions/{hidden}", token)).status == 404
        body = {"answer": "yes"}
        for job, status, reason in (
            (hidden, 404, "no_job"),
            (own, 403, "self"),
            (excluded, 403, "self"),
            (several, 403, "own_key"),
        ):
            refused = await post(node, f"/v1/questions/{job}/answer", body, token)
            assert (refused.status, refused.json["reason"]) == (status, reason), reason
        reader = await Holder(node, long_bars).granted(can="read", kinds="approve.*")
        refused = await post(node, f"/v1/questions/{own}/answer", body, reader.token())
        assert (refused.status, refused.json["reason"]) == (403, "role")
        given = await post(node, f"/v1/questions/{open_to_all}/answer", body, token)
        assert (given.status, given.json["signed_by"]) == (201, owner.author.did)


async def test_a_node_whose_key_has_no_right_answers_for_nobody():
    async with served(CLOSED, long_bars) as node:
        _, theirs = await member(node)
        job = await asked(node, theirs)
        helper, session = await member(node, can="read")
        node.program.connection._opened = await node.mesh.connection(helper.key)
        refused = await post(node, f"/v1/questions/{job}/answer", {"answer": "yes"})
        assert refused.status in {403, 422}, refused
        view = await session.read_lane(DEPLOY, job)
        assert not view.lane.job.is_terminal


async def test_what_needs_attention_is_shown_of_the_kinds_that_a_party_may_read():
    async with served(CLOSED, long_bars) as node:
        _, theirs = await member(node)
        mine, other = await asked(node, theirs), await asked(node, theirs, kind="bank.pay")
        node.node.replica.attention.put(Attention("offers", "bank.pay 1", "", "it broke", 1, 1))
        reader = await Holder(node, long_bars).granted(can="read", kinds="approve.*")
        path = "/v1/attention"
        seen = checked(await node.ask(path, reader.token(project="approve")), "attention")
        assert [one.item for one in seen.items] == [f"{DEPLOY} {mine}"]
        every = checked(await node.ask(path, OPERATOR), "attention")
        items = {one.item for one in every.items}
        assert items == {f"{DEPLOY} {mine}", f"bank.pay {other}", "bank.pay 1"}


async def test_a_message_is_sent_once_handed_out_and_acknowledged():
    async with served() as node:
        me = node.mesh.owner.did
        body = {"to": f"{me}/desk", "payload": {"n": 1}, "kind": "note.new", "thread": "t"}
        sent = [
            checked(await post(node, "/v1/messages", body, Idempotency_Key="k"), "send")
            for _ in range(2)
        ]
        assert sent[0] == sent[1]
        assert sent[0].sender == f"{me}/http"
        path = "/v1/messages?agent=desk"
        (thread,) = checked(await node.ask(path, OPERATOR), "threads").items
        assert (thread.thread, thread.messages) == ("t", 1)
        taken = await post(node, "/v1/messages/take", {"agent": "desk", "limit": 5})
        (message,) = checked(taken, "take").items
        assert (message.id, message.payload, message.attempt) == (sent[0].id, {"n": 1}, 1)
        none = await post(node, "/v1/messages/take", {"agent": "desk"})
        assert checked(none, "take").items == []
        ack = f"/v1/messages/{message.id}/ack"
        wrong = await post(node, ack, {"agent": "desk", "receipt": message.receipt + 7})
        assert wrong.status == 409, "somebody else has it"
        done = await post(node, ack, {"agent": "desk", "receipt": message.receipt})
        assert checked(done, "ack").id == message.id
        assert checked(await node.ask(path, OPERATOR), "threads").items == []
        assert (await post(node, "/v1/messages/zz/ack")).status == 400


async def test_an_inbox_is_its_owners_and_a_message_has_a_kind_that_the_token_is_for():
    async with served(CLOSED, long_bars) as node:
        sender = await Holder(node, long_bars).granted(can="message", kinds="note.*")
        token = sender.token(role="message", project="note")
        body = {"to": f"{node.mesh.owner.did}/desk", "kind": "note.new"}
        assert (await post(node, "/v1/messages", body, token)).status == 200
        refused = await post(node, "/v1/messages", {**body, "kind": "bank.new"}, token)
        assert (refused.status, refused.json["reason"]) == (403, "project")
        for path in ("/v1/messages/take", f"/v1/messages/{'0' * 32}/ack"):
            refused = await post(node, path, {"agent": "desk"}, token)
            assert (refused.status, refused.json["reason"]) == (403, "not_owner")
        refused = await node.ask("/v1/messages?agent=desk", token)
        assert (refused.status, refused.json["reason"]) == (403, "not_owner")
        reader = await Holder(node, long_bars).granted(can="read")
        refused = await post(node, "/v1/messages", body, reader.token())
        assert (refused.status, refused.json["reason"]) == (403, "role")


async def test_a_token_for_one_project_reads_and_acknowledges_no_inbox():
    async with served(CLOSED, long_bars) as node:
        owner = Holder(node, long_bars)
        owner.key = node.mesh.owner
        narrow = owner.token(role="message", project="note")
        for path in ("/v1/messages/take", f"/v1/messages/{'0' * 32}/ack"):
            refused = await post(node, path, {"agent": "desk"}, narrow)
            assert (refused.status, refused.json["reason"]) == (403, "project"), path
        refused = await node.ask("/v1/messages?agent=desk", narrow)
        assert (refused.status, refused.json["reason"]) == (403, "project")
        assert "--project '*'" in refused.json["hint"]
        whole = owner.token(role="message")
        assert (await node.ask("/v1/messages?agent=desk", whole)).status == 200


async def test_cost_is_summed_over_what_a_party_may_read():
    async def work() -> str:
        return "done"

    async with served(CALM, long_bars) as node:
        owner = (await node.mesh.connection(node.mesh.owner)).session
        policy = TempoBody(policy=TempoPolicy(rates=RATES))
        await write_one(owner, Intent(MeshTempo, policy))
        async with working(node, work, kind="build.app"), working(node, work, kind="bank.pay"):
            for kind in ("build.app", "bank.pay"):
                await ended(node, await submitted(node, kind))
        every = checked(await node.ask("/v1/cost", OPERATOR), "cost")
        assert {line.name: line.jobs for line in every.lines} == {"build.app": 1, "bank.pay": 1}
        assert every.total.jobs == 2
        reader = await Holder(node, long_bars).granted(can="read", kinds="build.*")
        token = reader.token(project="build")
        for query in ("", "?by=node", "?since=2h", "?kind=bank"):
            seen = checked(await node.ask(f"/v1/cost{query}", token), "cost")
            assert seen.total.jobs == (0 if "bank" in query else 1)
        for wrong in ("by=everything", "since=soon", "since=2026-11-18"):
            assert (await node.ask(f"/v1/cost?{wrong}", OPERATOR)).status == 400, wrong
