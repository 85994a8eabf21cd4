"""Jobs that ask people: they wait without a worker, and go on with the signed answer."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon import After, JobContext, Malformed, Misconfigured, NoAnswer, Rejected
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobClaim,
    JobExpire,
    JobOffer,
    JobSchedule,
    OfferBody,
    Result,
    Retry,
    ScheduleBody,
)
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.families.jobs.state import State
from antiphon.core.manifest import NonceInput
from antiphon.core.proof.answer import Question
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Held, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.answers import answer
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.log.writer import Intent, Policy, write_one
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.lane_lists import Lists
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.questions.namespace import OPEN_QUESTIONS
from tests.runtime import spawned
from tests.runtime.meshes import (
    KEPT,
    KIND,
    QUICK,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
)
from tests.runtime.worker.test_children import part, plain

APPROVE = "approve.deploy"
YES_NO = ("yes", "no")


async def coordinated(mesh):
    owner = await mesh.connection(mesh.owner)
    node = await mesh.node(connection=owner)
    person = (await mesh.connection()).session
    return owner.session, node, person


async def opened(node, count=1):
    """The open questions, once there are as many."""
    found = []

    def look():
        node.replica.flush()
        lists = Lists(node.replica, node.session.control)
        found[:] = [one.state for one in lists.shared(OPEN_QUESTIONS, limit=10).rows]
        return len(found) == count

    await eventually(look)
    return found


async def end_of(session, job):
    return await submission.wait_for_end(session, job.kind, job.id)


def value(ended):
    assert ended.job.outcome == "succeeded", ended
    return ended.outputs[0].text


@on_both_engines
async def test_a_job_waits_without_a_worker_and_goes_on_with_the_answer(engine):
    begun, computed = [], []

    async def prepare() -> str:
        computed.append(1)
        return "ready"

    async def work(ctx: JobContext) -> str:
        begun.append(ctx.attempt)
        state = await ctx.step("prepare", prepare)
        try:
            said = await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO, within="2d")
        except Exception:  # noqa: BLE001 - to show that waiting is no error
            return "caught"
        return f"{state} {said}"

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(work, slots=1)
        job = await call(session)
        (question,) = await opened(node)
        await eventually(lambda: _state(node, job) is State.WAITING)
        assert question.question.text == "deploy?"
        done = await answer(person, APPROVE, question.id, "yes")
        assert done.outcome == "succeeded"
        assert value(await end_of(session, job)) == '"ready yes"'
        assert begun == [1, 1], "the handler began again, and no attempt was used"
        assert computed == [1]
        view = await session.read_lane(KIND, job.id)
        assert view.lane.job.artifacts.steps == 2, "the answer is stored as a step"
        words = [one.opened.op.words() for one in (await _lane(session, question)).history]
        assert words[-1] == 'answered: "yes"'


async def _lane(session, job):
    return await session.read_lane(job.kind, job.id)


@on_both_engines
async def test_nobody_answers_in_time(engine):
    async def work(ctx: JobContext) -> str:
        try:
            return await ctx.ask("deploy?", kind=APPROVE, within=0.5)
        except NoAnswer as none:
            return none.reason

    async with a_mesh(engine, QUICK) as mesh:
        session, _, _ = await coordinated(mesh)
        await mesh.worker(work)
        job = await call(session)
        assert value(await end_of(session, job)) == '"expired"'


@on_both_engines
async def test_questions_that_are_asked_together_are_open_together(engine):
    async def work(ctx: JobContext) -> list[str]:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_asked(ctx, name)) for name in ("colour", "size")]
        return [one.result() for one in asked]

    async def _asked(ctx, name):
        return await ctx.ask(f"which {name}?", kind="choose.thing", name=name)

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(work)
        job = await call(session)
        for one in await opened(node, 2):
            await answer(person, one.kind, one.id, one.question.text[6:-1].upper())
        assert value(await end_of(session, job)) == '["COLOUR","SIZE"]'


@on_both_engines
async def test_children_and_answers_are_found_together(engine):
    async def work(ctx: JobContext) -> str:
        parts = ctx.results(part)
        if parts is None:
            raise After([part.bind(1), part.bind(2)])
        said = await ctx.ask("which?", kind=APPROVE, choices=tuple(parts))
        return f"{parts} {said}"

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(work)
        await mesh.worker(plain_part, kind="test.part")
        job = await call(session)
        (question,) = await opened(node)
        await answer(person, APPROVE, question.id, "2")
        assert value(await end_of(session, job)) == "\"['1', '2'] 2\""


async def plain_part(number: int) -> str:
    return str(number)


@on_both_engines
async def test_a_dead_workers_successor_asks_nobody_again(engine):
    asked = asyncio.Event()

    async def work(ctx: JobContext) -> str:
        said = await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO)
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(600)
        return said

    async with a_mesh(engine, KEPT) as mesh:
        session, node, person = await coordinated(mesh)
        doomed = await mesh.worker(work, drain_s=0)
        job = await call(session)
        (question,) = await opened(node)
        await answer(person, APPROVE, question.id, "no")
        await asked.wait()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(work)
        assert value(await end_of(session, job)) == '"no"'
        kinds = [one.kind for one in node.replica.ask(ReplicaJobs).jobs(limit=10)]
        assert sorted(kinds) == [APPROVE, KIND]


@on_both_engines
async def test_what_is_no_answer_is_refused_where_it_is_given(engine):
    async def work(ctx: JobContext) -> str:
        return await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO)

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        worker = await mesh.worker(work)
        job = await call(session)
        (question,) = await opened(node)
        with pytest.raises(Malformed, match="not one of yes, no"):
            await answer(person, APPROVE, question.id, "perhaps")
        with pytest.raises(Rejected, match="whoever asked") as refused:
            await answer(worker.session, APPROVE, question.id, "yes")
        assert refused.value.reason == "self"
        with pytest.raises(Rejected, match="not a question"):
            await answer(person, KIND, job.id, "yes")
        await answer(person, APPROVE, question.id, "yes")
        with pytest.raises(Rejected, match="was answered already"):
            await answer(person, APPROVE, question.id, "yes")
        assert value(await end_of(session, job)) == '"yes"'


@on_both_engines
@pytest.mark.parametrize("odd", ['["string"]', "{}", "1", "null"])
async def test_a_question_with_a_type_that_is_none_is_refused_and_nodes_go_on(engine, odd):
    async with a_mesh(engine) as mesh:
        session, node, _ = await coordinated(mesh)
        rogue = (await mesh.connection()).session
        question = Question(text="?", schema=f'{{"items":{{"type":{odd}}}}}')
        content = question_manifest(question, NonceInput(nonce="0" * 16))
        body = ScheduleBody(kind=APPROVE, manifest=content, question=question)
        seq = await rogue.commit(rogue.draft(JobSchedule, body, prev=0))
        await node.reached(seq)
        assert node.replica.record(seq).verdict is Verdict.QUESTION
        later = await call(session)
        await node.reached(later.seq)
        assert node.replica.record(later.seq).verdict is Verdict.OK


@on_both_engines
async def test_of_two_people_at_once_one_answers(engine):
    async def work(ctx: JobContext) -> str:
        return await ctx.ask("who?", kind=APPROVE)

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        others = [person, *[(await mesh.connection()).session for _ in range(3)]]
        await mesh.worker(work)
        job = await call(session)
        (question,) = await opened(node)
        said = await asyncio.gather(
            *(answer(one, APPROVE, question.id, one.author.did) for one in others),
            return_exceptions=True,
        )
        given = [one for one in said if not isinstance(one, BaseException)]
        assert len(given) == 1
        assert all(isinstance(one, Held | Rejected) for one in said if one not in given)
        lane = await _lane(session, question)
        assert value(await end_of(session, job)) == f'"{lane.lane.job.claimer}"'


@on_both_engines
async def test_two_of_three_people_agree(engine):
    async def work(ctx: JobContext) -> str:
        return await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO, replicas=3, quorum=2)

    async with a_mesh(engine) as mesh:
        session, node, first = await coordinated(mesh)
        second = (await mesh.connection()).session
        await mesh.worker(work)
        job = await call(session)
        (question,) = await opened(node)
        assert (question.replicas, question.quorum) == (3, 2)
        await eventually(lambda: len(node.replica.ask(ReplicaJobs).jobs(limit=9)) == 5)
        await answer(first, APPROVE, question.id, "yes")
        with pytest.raises(Rejected, match=r"answered the question .* already"):
            await answer(first, APPROVE, question.id, "yes")
        assert _state(node, job) is State.WAITING
        await answer(second, APPROVE, question.id, "yes")
        assert value(await end_of(session, job)) == '"yes"'


@on_both_engines
async def test_while_others_hold_all_questions_to_several_people_there_is_none_to_answer(engine):
    async def work(ctx: JobContext) -> str:
        return await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO, replicas=2, quorum=2)

    async with a_mesh(engine) as mesh:
        session, node, late = await coordinated(mesh)
        await mesh.worker(work)
        await call(session)
        (question,) = await opened(node)
        await eventually(lambda: len(node.replica.ask(ReplicaJobs).jobs(limit=9)) == 4)
        asked = node.replica.ask(ReplicaJobs).jobs(limit=9)
        for one in (job for job in asked if job.question and not job.replicas):
            holder = (await mesh.connection()).session
            body = ClaimBody(
                kind=APPROVE, job=one.id, lease_ms=one.lease_ms, answers=True, begin=True
            )
            lane = (await _lane(holder, one)).lane
            await write_one(holder, Intent(JobClaim, body, lane), Policy())
        with pytest.raises(Unavailable, match=f"nobody else is asked {question.id[:8]}") as refused:
            await answer(late, APPROVE, question.id, "yes")
        assert "try again" in refused.value.hint


@pytest.mark.parametrize("somebody_answers", [True, False])
@on_both_engines
async def test_who_took_a_question_and_lost_its_right_holds_it_up_for_nobody(
    engine, somebody_answers, monkeypatch
):
    async def work(ctx: JobContext) -> str:
        try:
            return await ctx.ask("deploy?", kind=APPROVE, within=3600 if somebody_answers else 4)
        except NoAnswer as none:
            return none.reason

    async with a_mesh(engine, replace(KEPT, authority="chain")) as mesh:
        session, node, _ = await coordinated(mesh)
        tried = []
        write = FullNode.write

        async def noted(self, intent):
            tried.append(intent)
            return await write(self, intent)

        monkeypatch.setattr(FullNode, "write", noted)
        worker, gone, person = [await mesh.connection() for _ in range(3)]
        await grant(session, worker.session.author.did, ("claim", "schedule"), "*")
        await grant(session, person.session.author.did, ("answer",), APPROVE)
        (lost,) = await grant(session, gone.session.author.did, ("answer",), APPROVE)
        await mesh.worker(work, connection=worker)
        job = await call(session)
        (question,) = await opened(node)
        body = ClaimBody(
            kind=APPROVE, job=question.id, lease_ms=question.lease_ms, answers=True, begin=True
        )
        lane = (await _lane(gone.session, question)).lane
        await write_one(gone.session, Intent(JobClaim, body, lane), Policy())
        await write_one(session, Intent(UcanRevoke, RevokeBody(cid=lost)))
        if somebody_answers:
            await person.session.sync_control()
            await answer(person.session, APPROVE, question.id, "yes")
        assert value(await end_of(session, job)) == ('"yes"' if somebody_answers else '"expired"')
        about = [one.op for one in tried if getattr(one.body, "job", "") == question.id]
        assert JobOffer not in about, "a question is open without being announced again"
        assert somebody_answers or JobExpire in about


async def grant(owner, to, can, kind):
    terms, did = Terms(can=can, kinds=(kind,)), owner.author.did
    found = []
    for payload in PROTOCOL.rights.payloads(
        terms, issuer=did, audience=to, owner=did, nonce=owner.entropy.token
    ):
        granted = owner.author._keyring.delegate(payload)
        await write_one(owner, Intent(UcanDelegate, DelegateBody(token=token_of(granted.raw))))
        found.append(granted.cid)
    return found


@on_both_engines
async def test_a_worker_does_not_believe_a_coordinator_that_makes_answers_up(engine):
    async def work(ctx: JobContext) -> str:
        return await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO)

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(work)
        job = await call(session, retry=Retry(base_ms=1))
        (question,) = await opened(node)
        await eventually(lambda: _state(node, job) == "waiting")
        lane = (await _lane(session, job)).lane
        false = OfferBody(kind=KIND, job=job.id, results=(Result(text='"yes"', is_answer=True),))
        written = await write_one(session, Intent(JobOffer, false, lane), Policy())
        assert written.verdict is Verdict.OK
        await eventually(lambda: _yields(node, job) > 1)
        await answer(person, APPROVE, question.id, "no")
        assert value(await end_of(session, job)) == '"no"'


def _seen(node, job):
    node.replica.flush()
    return node.replica.ask(ReplicaJobs).job(KIND, job.id)


def _yields(node, job):
    return _seen(node, job).yields


def _state(node, job):
    return _seen(node, job).state


def in_a_thread(ctx: JobContext) -> str:
    return ctx.ask("deploy?", kind=APPROVE, choices=YES_NO).wait()


@pytest.mark.processes
@on_both_engines_in_real_time
@pytest.mark.parametrize("place", ["thread", "process"])
async def test_plain_functions_ask_in_threads_and_processes(engine, place):
    function = in_a_thread if place == "thread" else spawned.asking
    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(function, how=HandlerOptions(run_in=place))
        job = await call(session)
        (question,) = await opened(node)
        await answer(person, APPROVE, question.id, "yes")
        assert value(await end_of(session, job)) == '"yes"'


@on_both_engines
async def test_a_name_stands_for_one_question(engine):
    async def work(ctx: JobContext) -> str:
        await ctx.ask("deploy?", kind=APPROVE)
        return await ctx.ask("really?", kind=APPROVE)

    async with a_mesh(engine) as mesh:
        session, node, person = await coordinated(mesh)
        await mesh.worker(work)
        job = await call(session)
        (question,) = await opened(node)
        await answer(person, APPROVE, question.id, "yes")
        ended = await end_of(session, job)
        assert ended.job.outcome == "failed"
        assert "asked in other words" in ended.error.message


@plain.task("test.asks")
async def asks(ctx: JobContext) -> str:
    return await ctx.ask("deploy?", kind=APPROVE)


async def test_a_task_that_is_called_directly_says_that_nobody_can_be_asked():
    with pytest.raises(Misconfigured, match="called directly"):
        await asks(JobContext(kind="test.asks", job_id="0" * 64, fence="", attempt=1))


@pytest.mark.parametrize(
    "wrong",
    [{"choices": "yes"}, {"choices": ("a", "a")}, {"schema": {"pattern": "x"}}, {"kind": "A"}],
)
async def test_what_cannot_be_asked_is_said_at_once(wrong):
    context = JobContext(kind="test.asks", job_id="0" * 64, fence="", attempt=1)
    with pytest.raises(Malformed):
        context.ask("deploy?", **{"kind": APPROVE, **wrong})


@pytest.mark.virtual_time
@pytest.mark.parametrize("hours", [0.9, 1.1])
async def test_a_question_is_open_for_long_while_workers_come_and_go(hours):
    async def work(ctx: JobContext) -> str:
        try:
            return await ctx.ask("deploy?", kind=APPROVE, choices=YES_NO, within="1h")
        except NoAnswer as none:
            return none.reason

    async with a_mesh("memory") as mesh:
        session, node, person = await coordinated(mesh)
        first = await mesh.worker(work, drain_s=0)
        job = await call(session, start_by=mesh.wall.now_ms() + 600_000)
        (question,) = await opened(node)
        first.paused.add("sleep")
        await asyncio.sleep(hours * 3_600)
        if hours < 1:
            await answer(person, APPROVE, question.id, "yes")
        else:
            with pytest.raises(Rejected):
                await answer(person, APPROVE, question.id, "yes")
        await asyncio.sleep(1)
        await mesh.worker(work)
        assert value(await end_of(session, job)) == ('"yes"' if hours < 1 else '"expired"')
