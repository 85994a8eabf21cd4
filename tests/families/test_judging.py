"""Steps 1 and 2 of the recipe: ops and a table, judged by the reducer that judges everything."""

import tracemalloc

import pytest
from msgspec.structs import replace

from antiphon.core.authority.rules import NOTICE_MS
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.family import Needs
from antiphon.core.history.story import tell
from antiphon.core.protocol import PLACES_KEPT, PROTOCOL, Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import Ledger, Reader, Story, open_stored
from tests.families.polls import POLLS, WITH_POLLS
from tests.families.polls.ops import CloseBody, OpenBody, PollClose, PollOpen, PollVote, VoteBody
from tests.families.polls.table import PollLane

KIND, NAME = "team.lunch", "pizza"
KEY = LaneKey("polls", KIND, NAME)


class Vote:
    """A mesh that has polls, and one of them."""

    def __init__(self, code=WITH_POLLS, **rules) -> None:
        self.ledger = Ledger(code, **rules)

    def open(self, by=ALICE, **how):
        body = OpenBody(kind=KIND, poll=NAME, question="Pizza?")
        return self.ledger.put(PollOpen, body, by, **how)

    def vote(self, by, choice=True, **how):
        if "deps" not in how:
            how["deps"] = (self.ledger.dep(2),)
        return self.ledger.put(PollVote, VoteBody(kind=KIND, poll=NAME, choice=choice), by, **how)

    def close(self, by=ALICE, **how):
        return self.ledger.put(PollClose, CloseBody(kind=KIND, poll=NAME), by, **how)

    @property
    def poll(self):
        return self.ledger.reader.all_lanes[KEY].state


def test_one_line_makes_it_part_of_a_protocol_and_leaves_the_other_as_it_was():
    assert WITH_POLLS.family("polls") is POLLS
    assert {"poll.open", "poll.vote", "poll.close"} <= set(WITH_POLLS.ops)
    assert not {"poll.open", "poll.vote", "poll.close"} & set(PROTOCOL.ops)
    assert WITH_POLLS.number == PROTOCOL.number
    with pytest.raises(ValueError, match="the branch poll is already used"):
        WITH_POLLS.adding(POLLS).place_of("")


def test_a_poll_lives_by_its_own_table():
    vote = Vote()
    assert vote.vote(BOB, deps=()) is Verdict.NO_JOB
    vote = Vote()
    assert vote.open() is Verdict.OK
    assert vote.open(BOB) is Verdict.EXISTS
    assert vote.vote(BOB) is Verdict.OK
    assert vote.vote(BOB) is Verdict.ALREADY
    assert vote.vote(CAROL, choice=False) is Verdict.OK
    assert vote.close() is Verdict.OK
    assert vote.vote(ALICE) is Verdict.FINISHED, "a transition that its table refuses"
    assert (vote.poll.voters, vote.poll.ayes, vote.poll.is_open) == ((BOB.did, CAROL.did), 1, False)


@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"at": 9_000, "stamp": 20}, Verdict.DRIFT),
        ({"prev": 77}, Verdict.PREV),
        ({"deps": ((1, "blake3:" + "0" * 64),)}, Verdict.MISSING_DEP),
        ({"deps": ()}, Verdict.MISSING_DEP),
        ({"at": 5, "stamp": 30}, Verdict.STALE),
        ({"mesh": "a" * 16}, Verdict.MESH),
    ],
    ids=["time", "predecessor", "another record", "no record", "order", "mesh"],
)
def test_what_all_ops_share_holds_for_it_without_a_line_of_its_own(how, verdict):
    vote = Vote()
    assert vote.open(at=10) is Verdict.OK
    assert vote.vote(BOB, **how) is verdict


def test_authority_is_by_its_own_commands():
    vote = Vote(authority="chain")
    assert vote.open(OWNER) is Verdict.OK
    assert vote.vote(BOB) is Verdict.NO_CHAIN
    assert vote.vote(OWNER) is Verdict.OK


def test_a_job_of_the_same_kind_is_no_reason_for_a_vote():
    """Whoever may read polls may not be able to read jobs: deps stay within what both see."""
    vote = Vote()
    assert vote.open() is Verdict.OK
    story = Story(vote.ledger, kind=KIND)
    assert story.schedule() is Verdict.OK
    named = (vote.ledger.dep(2), vote.ledger.dep(len(vote.ledger.log)))
    assert vote.vote(BOB, deps=named) is Verdict.MISSING_DEP
    assert JobSchedule in WITH_POLLS.family_of


def test_a_light_reader_of_one_lane_comes_to_the_same():
    vote = Vote()
    vote.open()
    vote.vote(BOB)
    vote.ledger.append(f"ap.{vote.ledger.mesh}.vote.{KIND}.{NAME}", b"junk", stamp=30)
    vote.vote(CAROL)
    vote.close()
    light = Reader(vote.ledger.mesh, vote.ledger.log, WITH_POLLS)
    subjects = {
        f"ap.{vote.ledger.mesh}.ctl.genesis",
        *WITH_POLLS.subjects_of(vote.ledger.mesh, KEY),
    }
    for record, verdict in zip(vote.ledger.log, vote.ledger.verdicts, strict=True):
        if record.subject in subjects:
            assert light.judge(record) is verdict
    assert light.all_lanes[KEY] == vote.ledger.reader.all_lanes[KEY] != PollLane()


def test_it_is_told_in_its_own_words():
    vote = Vote()
    vote.open()
    vote.vote(BOB, choice=False)
    judged = [
        (open_stored(vote.ledger.mesh, record, WITH_POLLS), verdict)
        for record, verdict in zip(vote.ledger.log, vote.ledger.verdicts, strict=True)
    ]
    words = [line.words for line in tell(judged)]
    assert words[1].endswith("asked 'Pizza?'")
    assert words[2].endswith("voted no")


# --- since which protocol -----------------------------------------------------------------------


def of_protocol_two():
    """The same family, a protocol later."""
    later = type("Later", (PollOpen,), {"SINCE": 2}, frozen=True, tag="poll.open")
    return PROTOCOL.adding(replace(POLLS, ops=(later,))), later


def test_a_family_of_a_later_protocol_begins_with_its_activation():
    code, later = of_protocol_two()
    assert code.number == 2
    old, new = Ledger(), Ledger(code)
    body = OpenBody(kind=KIND, poll=NAME, question="Pizza?")
    for ledger in (old, new):
        assert ledger.put(later, body, ALICE, at=10) is Verdict.TYPE, "no op before"
        assert ledger.rules(protocol=2, how={"at": 20}) is Verdict.OK
        assert ledger.put(later, body, ALICE, at=NOTICE_MS) is Verdict.TYPE, (
            "announced, not in force"
        )
    assert new.put(later, body, ALICE, at=20 + NOTICE_MS) is Verdict.OK
    assert new.reader.all_lanes[KEY].state.question == "Pizza?"


@pytest.mark.parametrize("bend", ["signature", "canonical", "field"])
def test_before_its_activation_newer_code_finds_wrong_what_older_code_does(bend):
    code, later = of_protocol_two()
    old, new = Ledger(), Ledger(code)
    draft = new.draft(later, OpenBody(kind=KIND, poll=NAME, question="x"), ALICE, at=10)
    payload = {
        "signature": draft.payload[:-40] + b"0000" + draft.payload[-36:],
        "canonical": draft.payload.replace(b'"body":', b'"body": ', 1),
        "field": draft.payload.replace(b'"question":"x"', b'"question":1', 1),
    }[bend]
    assert payload != draft.payload
    assert old.append(draft.subject, payload, stamp=10) is Verdict.TYPE
    assert new.append(draft.subject, payload, stamp=10) is Verdict.TYPE


# --- bounds -------------------------------------------------------------------------------------


def test_a_family_that_never_has_enough_is_told_so_and_not_asked_for_ever():
    greedy = replace(POLLS, step=lambda _poll, _op, _at: Needs(upto=1))
    vote = Vote(PROTOCOL.adding(greedy))
    with pytest.raises(TypeError, match="asked for a second read"):
        vote.open()


def test_places_are_remembered_within_bounds_whatever_stands_at_the_end_of_a_subject():
    code = Protocol(PROTOCOL.number, PROTOCOL.families)
    long = "x" * 4_000

    def grown(ends) -> int:
        tracemalloc.start()
        try:
            for end in ends:
                assert code.place_of(f"ap.m.jobs.job.render.{end}").key.kind == "render"
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert grown(f"{long}{n}" for n in range(2_000)) < 100_000, "the long ones are not kept"
    assert grown(f"{n:064x}" for n in range(3 * PLACES_KEPT)) < 8_000_000
