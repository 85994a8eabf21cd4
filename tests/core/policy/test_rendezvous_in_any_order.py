"""Whatever happens in whatever order: a call is kept in one place, and no liar loses a job."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.core.families.jobs.state import State
from antiphon.core.policy.rendezvous_turns import LOAN_S, Instant, MessageStamp, Step
from tests.core.drawn import WINDOW_S, Worker, a_call, a_job, at
from tests.core.strategies import BRISK

CALLS = [a_call(word, seq) for seq, word in enumerate("abc", start=1)]
calls = st.sampled_from(CALLS)
chances = st.floats(0, 1)
words = st.builds(MessageStamp, st.integers(0, 5), st.sampled_from(["did:key:one", "did:key:two"]))


class AnyStory(RuleBasedStateMachine):
    """Everything that can be told, in any order: a job is kept in one place at most."""

    def __init__(self) -> None:
        super().__init__()
        self.worker, self.now_s, self.out = Worker(), 0.0, []

    def at(self, chance=0.0) -> Instant:
        return at(self.now_s, chance)

    @rule(by_s=st.floats(0, 40))
    def pass_time(self, by_s):
        self.now_s += by_s

    @rule(call=calls, rank=st.integers(0, 3), chance=chances, is_known=st.booleans())
    def meet(self, call, rank, chance, is_known):
        self.worker.places[call.job_id] = (rank, rank)
        self.worker.turns.met(call, call.op, self.at(chance), is_known=is_known)

    @rule(call=calls, state=st.sampled_from(State), chance=chances)
    def find(self, call, state, chance):
        self.worker.found(call, a_job(call, state), self.now_s, chance)

    @rule(call=calls, said=words, chance=chances)
    def hear_taken(self, call, said, chance):
        self.worker.turns.hear_taken(call.job_id, call.seq, said, self.at(chance))

    @rule(call=calls, said=words)
    def hear_ended(self, call, said):
        self.worker.turns.hear_ended(call.job_id, call.seq, said, self.at())

    @rule(call=calls, said=words, after_s=st.floats(0, 100))
    def hear_returned(self, call, said, after_s):
        self.worker.turns.hear_returned(call.job_id, after_s, said, self.at())

    @rule(call=calls)
    def hear_pointer(self, call):
        self.worker.turns.hear_pointer(call.job_id, call.seq, self.at())

    @rule()
    def hand_out(self):
        call, pause_s = self.worker.turns.pick("normal", self.at(), revision=self.worker.revision)
        if call is not None:
            self.worker.turns.hand_out(call)
            self.out.append(call)
        assert pause_s is None or 0 <= pause_s <= 100

    @rule(delay_s=st.none() | st.floats(0, 5))
    def settle(self, delay_s):
        if self.out:
            self.worker.turns.settle(self.out.pop(), delay_s, self.at())

    @invariant()
    def every_job_is_in_one_place_at_most(self):
        kept = self.worker.turns
        places = [*kept._waiting, *kept._out, *kept._aside]
        assert len(places) == len(set(places))
        assert sorted(kept._out) == sorted(call.need.job_id for call in self.out)
        sizes = sum(len(call.record.payload) for call in kept._waiting.values())
        assert kept._waiting_bytes == sizes


TestAnyStory = AnyStory.TestCase
TestAnyStory.settings = BRISK


@BRISK
@given(
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(["taken", "ended", "back"]), words, chances), max_size=6),
    st.data(),
)
def test_a_liar_delays_a_job_by_a_bound(rank, lies, data):
    """Whatever others say of a pending job, it is handed out: here by the full node's next call."""
    worker, call = Worker(), CALLS[0]
    worker.met(call, 0.0, rank)
    recall_s = 2 * LOAN_S
    now_s, is_recalled = 0.0, False
    while (picked := worker.pick(now_s)) != call.job_id:
        if lies:
            what, said, chance = lies.pop()
            if what == "taken":
                worker.turns.hear_taken(call.job_id, call.seq, said, at(now_s, chance))
            elif what == "ended":
                worker.turns.hear_ended(call.job_id, call.seq, said, at(now_s))
            else:
                worker.turns.hear_returned(call.job_id, chance * 100, said, at(now_s))
            continue
        waits = [now_s + picked] if picked is not None else []
        waits += [worker.looks] if worker.looks is not None else []
        waits += [] if is_recalled else [recall_s]
        now_s = max(now_s, min(waits))
        assert now_s <= recall_s + (rank + 1) * WINDOW_S
        for job in worker.turns.due(now_s):
            if worker.turns.take_up(job) is not None:
                worker.found(call, a_job(call), now_s, data.draw(chances))
        if now_s >= recall_s and not is_recalled:
            is_recalled = True
            assert worker.met(call, now_s, is_known=True) is Step.READ
            worker.found(call, a_job(call), now_s, data.draw(chances))
    assert now_s <= recall_s + (rank + 1.25) * WINDOW_S
