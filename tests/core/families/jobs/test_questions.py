"""Questions to people: who may ask, take and answer them, and with what."""

import pytest
from msgspec.structs import replace

from antiphon.core.derivations.offer_derivation import Predecessor, Waiter, derive
from antiphon.core.families.jobs.columns import COLUMNS
from antiphon.core.families.jobs.ops import (
    CompleteBody,
    JobComplete,
    JobOffer,
    JobSchedule,
    OfferBody,
    ScheduleBody,
)
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.manifest import NonceInput
from antiphon.core.proof.answer import Question, answer_output
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER, Author
from tests.core.ledger import LEASE_MS, T0, Story
from tests.core.question_story import DEPLOY, Given, QuestionStory, answered
from tests.core.quorums import Replicated

OK = Verdict.OK
APPROVE = [["like", ".kind", "approve.*"]]
DAVE = Author("dave")


def asked(question=DEPLOY, **fields):
    story = QuestionStory(question=question)
    assert story.ask(**fields) is OK
    return story


def column(job, name):
    return next(one.value(job) for one in COLUMNS if one.name == name)


def test_a_question_is_answered_by_whoever_takes_it():
    story = asked()
    assert story.state == "pending"
    assert story.take(ALICE) is OK
    assert story.take(BOB) is Verdict.HELD
    assert story.answer(BOB) is Verdict.NOT_CLAIMER
    assert story.answer(ALICE) is OK
    assert story.state == "succeeded"


def test_no_worker_is_told_of_a_question_nor_may_run_it():
    story = asked()
    assert story.ledger.log[-1].subject.split(".")[3] == "wait", "no queue has this subject"
    assert story.claim(ALICE) is Verdict.QUESTION
    assert column(story.job, "recall_ms") is None
    offer = OfferBody(kind=story.kind, job=story.id)
    assert story.ledger.put(JobOffer, offer, OWNER) is Verdict.QUESTION
    plain = Story(story.ledger, kind=story.kind)
    assert plain.schedule(CAROL) is OK
    assert plain.claim(ALICE, answers=True) is Verdict.QUESTION, "and it takes no other job"


def test_whoever_took_a_question_can_only_answer_it():
    story = asked()
    assert story.take() is OK
    assert story.complete() is Verdict.ANSWER, "a proof of execution is no answer"
    assert story.give_back(reason="error") is Verdict.QUESTION
    assert story.give_back(reason="after", after=(("a", "0" * 64),)) is Verdict.QUESTION
    assert story.start() is Verdict.QUESTION
    assert story.artifact() is Verdict.QUESTION
    assert story.claim(ALICE, fence=story.fence) is Verdict.QUESTION
    assert story.claim(ALICE, answers=True, fence=story.fence) is OK
    assert story.answer() is OK


def test_an_answer_ends_no_job_that_is_no_question():
    job = Story()
    assert job.schedule(CAROL) is OK
    assert job.claim(ALICE, begin=True) is OK
    body = CompleteBody(
        kind=job.kind,
        job=job.id,
        fence=job.fence,
        status="succeeded",
        outputs=(answer_output('"yes"'),),
    )
    said = answered(ALICE, job.ledger.mesh, body, "deploy to production?")
    assert job.ledger.put(JobComplete, said, ALICE) is Verdict.ANSWER


FORM = Question(
    text="how many?",
    schema='{"type":"object","required":["n"],"properties":{"n":{"type":"integer","maximum":9}}}',
)


@pytest.mark.parametrize(
    "question, given, verdict",
    [
        (DEPLOY, Given(), OK),
        (DEPLOY, Given('"no"'), OK),
        (DEPLOY, Given('"maybe"'), Verdict.ANSWER),
        (DEPLOY, Given("yes"), Verdict.ANSWER),
        (DEPLOY, Given("true"), Verdict.ANSWER),
        (DEPLOY, Given(status="failed"), Verdict.ANSWER),
        (DEPLOY, Given(asked="deploy to staging?"), Verdict.ANSWER),
        (DEPLOY, Given(by=BOB), Verdict.PROOF),
        (FORM, Given('{"n":9}'), OK),
        (FORM, Given('{"n":10}'), Verdict.ANSWER),
        (FORM, Given("{}"), Verdict.ANSWER),
        (FORM, Given('{"n":true}'), Verdict.ANSWER),
        (Question(text="why?"), Given('"because"'), OK),
        (Question(text="why?"), Given("1"), Verdict.ANSWER),
        (replace(DEPLOY, needs="yes"), Given(), OK),
        (replace(DEPLOY, needs="yes"), Given('"no"', status="failed"), OK),
        (replace(DEPLOY, needs="yes"), Given('"no"'), Verdict.ANSWER),
    ],
)
def test_every_reader_checks_an_answer(question, given, verdict):
    story = asked(question)
    assert story.take() is OK
    assert story.answer(given=given) is verdict
    assert story.job.is_terminal == (verdict is OK)


@pytest.mark.parametrize(
    "question",
    [
        replace(DEPLOY, schema="{}"),
        replace(DEPLOY, choices=("yes", "yes")),
        replace(DEPLOY, needs="perhaps"),
        Question(text="?", schema="{"),
        Question(text="?", schema='{"pattern":"x"}'),
        Question(text="?", schema='{"type":["string"]}'),
        Question(text="?", schema='{"properties":{"n":{"type":{}}}}'),
    ],
)
def test_a_question_that_contradicts_itself_is_not_asked(question):
    assert QuestionStory(question=question).ask() is Verdict.QUESTION


def test_the_jobs_id_follows_from_what_is_asked():
    story = QuestionStory()
    nonce = NonceInput(nonce="0" * 16, origin="child")
    other = ScheduleBody(kind=story.kind, manifest=question_manifest(DEPLOY, nonce), question=FORM)
    assert story.ledger.put(JobSchedule, other, CAROL) is Verdict.QUESTION
    assert story.ask(not_before=T0 + 100_000) is Verdict.QUESTION, "a question waits for nothing"
    assert story.ask() is OK


def test_the_party_that_asks_may_not_answer_with_any_of_its_keys():
    court = Court()
    machine = court.grant(OWNER, ALICE, cmd="/job", pol=APPROVE)
    process = (machine, court.grant(ALICE, BOB, cmd="/job", pol=APPROVE, nonce=b"another nonce"))
    carol = (court.grant(OWNER, CAROL, cmd="/job/answer", pol=APPROVE),)
    story = QuestionStory(court.ledger)
    assert story.ask(ALICE, how={"auth": (machine,)}) is OK
    assert story.take(ALICE, auth=(machine,)) is Verdict.SELF
    assert story.take(BOB, auth=process) is Verdict.SELF
    assert story.take(CAROL, auth=carol) is OK
    assert story.answer(CAROL, auth=carol) is OK


def test_parties_that_are_excluded_may_not_answer():
    court = Court()
    grants = {
        who: (court.grant(OWNER, who, cmd="/job/answer", pol=APPROVE),) for who in (ALICE, BOB)
    }
    beside = (*grants[ALICE], court.grant(ALICE, DAVE, cmd="/job/answer", pol=APPROVE))
    story = QuestionStory(court.ledger, replace(DEPLOY, not_by=(ALICE.did,)))
    assert story.ask(OWNER) is OK
    assert story.take(OWNER) is Verdict.SELF
    assert story.take(ALICE, auth=grants[ALICE]) is Verdict.SELF
    assert story.take(DAVE, auth=beside) is Verdict.SELF
    assert story.take(BOB, auth=grants[BOB]) is OK


def test_a_key_that_may_answer_can_do_nothing_else():
    court = Court()
    answers = (court.grant(OWNER, ALICE, cmd="/job/answer", pol=APPROVE),)
    works = (
        court.grant(OWNER, BOB, cmd="/job/claim", pol=APPROVE),
        court.grant(OWNER, BOB, cmd="/job/complete", pol=APPROVE, nonce=b"another nonce"),
    )
    other = QuestionStory(court.ledger, kind="billing.refund")
    story, job = QuestionStory(court.ledger), court.job("approve.build")
    assert other.ask(OWNER) is OK
    assert story.ask(OWNER) is OK
    assert job.claim(ALICE, auth=answers) is Verdict.COMMAND
    assert job.claim(ALICE, answers=True, auth=answers) is Verdict.QUESTION
    assert job.cancel(ALICE, auth=answers) is Verdict.COMMAND
    assert other.take(ALICE, auth=answers) is Verdict.POLICY
    assert story.take(BOB, auth=works[:1]) is Verdict.COMMAND, "nor may a worker answer"
    assert story.take(ALICE, auth=answers) is OK
    assert story.answer(ALICE, auth=answers) is OK


def test_a_revoked_person_no_longer_holds_the_question():
    court = Court()
    alice = court.grant(OWNER, ALICE, cmd="/job/answer", pol=APPROVE)
    bob = (court.grant(OWNER, BOB, cmd="/job/answer", pol=APPROVE),)
    story = QuestionStory(court.ledger)
    assert story.ask(OWNER) is OK
    assert story.take(ALICE, auth=(alice,)) is OK
    fence = story.fence
    assert court.revoke(alice, OWNER) is OK
    assert story.answer(ALICE, auth=(alice,)) is Verdict.REVOKED
    assert story.take(BOB, auth=bob) is OK
    assert story.fence != fence
    assert story.answer(BOB, auth=bob) is OK


def test_a_question_that_somebody_took_and_left_is_open_again_and_not_used_up():
    story = asked(start_by=T0 + 10 * LEASE_MS)
    for turn in range(1, 5):
        assert story.take(Author(f"person {turn}")) is OK
        assert story.expire(at=turn * 2 * LEASE_MS) is OK
        assert story.state == "pending"
    assert story.job.start_by_ms == T0 + 10 * LEASE_MS, "it is not open for longer"
    assert story.take(ALICE, at=10 * LEASE_MS + 1) is Verdict.TOO_LATE
    assert story.expire(fence=None, at=10 * LEASE_MS + 1) is OK
    assert story.job.outcome == "expired"


def test_two_of_three_people_have_to_agree():
    story = QuestionStory()
    question = Replicated.__new__(Replicated)
    Story.__init__(question, story.ledger, kind=story.kind)
    question.manifest, question.id = story.manifest, story.id
    question.body = ScheduleBody(
        kind=story.kind, manifest=story.manifest, question=DEPLOY, replicas=3, quorum=2
    )
    assert story.ledger.put(JobSchedule, question.body, CAROL) is OK
    question.named = story.ledger.dep(len(story.ledger.log))
    assert column(story.job, "needs") == "question"
    people = []
    for index, who in enumerate((ALICE, BOB)):
        assert question.derive(index) is OK
        one = QuestionStory(story.ledger)
        one.id = question.child(index).id
        assert column(one.job, "needs") is None
        assert one.take(CAROL) is Verdict.SELF, "whoever asked for the quorum asked each"
        assert one.take(who) is OK
        assert one.answer(who) is OK
        people.append(one)
    assert question.resolve(*people, outputs=(answer_output('"no"'),)) is Verdict.QUORUM
    assert question.resolve(*people, outputs=(answer_output('"yes"'),)) is OK
    assert question.state == "succeeded"


def test_a_job_waits_as_long_as_its_question_is_open_and_is_told_that_it_was_one():
    story = asked()
    parent = Story(story.ledger)
    assert parent.schedule(CAROL, start_by=T0 + 1_000) is OK
    assert parent.claim(BOB, begin=True) is OK
    until = T0 + 86_400_000
    key = (story.kind, story.id)
    assert parent.give_back(BOB, reason="after", after=(key,), until=until) is OK
    assert parent.job.start_by_ms > until
    assert story.take() is OK
    assert story.answer() is OK
    derived = derive(
        Waiter(parent.job, BOB.did),
        None,
        lambda _: story.job,
        lambda job: Predecessor(job, (answer_output('"yes"'),)),
        lambda *_: True,
    )
    (result,) = derived.body.results
    assert result.is_answer
    assert result.text == '"yes"'
    assert parent.offer(OWNER, results=(result,)) is OK
