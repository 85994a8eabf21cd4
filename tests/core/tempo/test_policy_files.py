"""Policy, score and budget files, with their keys as they stand, and addresses with times."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.tempo.addresses import parse_address
from antiphon.core.tempo.budget import read_budget
from antiphon.core.tempo.messages import HelpPromise, StatusClaim, upgraded
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.core.tempo.score import read_score
from antiphon.errors import Malformed

POLICY = {
    "cluster_id": "chorus-aus-01",
    "initial_bpm": 12,
    "bar_len_beats": 8,
    "phases": ["plan", "work", "review"],
    "limits": {"max_bpm": 24, "min_bpm": 6},
    "adaptation": {"enable": True, "hysteresis_pct": 10, "change_per_minute": "1_beat"},
    "observability": {"emit_bar_reports": True},
}
SCORE = {
    "tempo": 15,
    "bar_len": 8,
    "phases": {"plan": 2, "work": 4, "review": 2},
    "wait_budget": {"help": 2, "io": 1},
    "retry": {"max_phrases": 2, "backoff": "geometric"},
    "escalation": {
        "on_wait_exhausted": ["emit:needs-attention", "fallback:coarse-answer"],
        "on_overrun": ["checkpoint", "defer:next-phrase"],
    },
}


@pytest.mark.req("B25")
def test_a_policy_file_is_read_as_it_stands_and_its_hash_follows_from_what_it_says():
    policy = read_policy(POLICY)
    assert policy.meter == Meter(bpm=12, bar_len=8)
    assert policy_hash(policy).startswith("sha256:")
    assert policy_hash(policy) == policy_hash(read_policy(dict(reversed(POLICY.items()))))
    assert policy_hash(policy) != policy_hash(read_policy({**POLICY, "initial_bpm": 13}))


@pytest.mark.req("B17")
@pytest.mark.parametrize(
    "wrong, why",
    [
        ({"initial_bpm": 25}, "initial_bpm"),
        ({"limits": {"min_bpm": 24, "max_bpm": 6}}, "min_bpm"),
        ({"phases": ["work", "plan", "review"]}, "in this order"),
        ({"phases": {"plan": 1, "work": 1, "review": 1}}, "the bar 8"),
        ({"tempo": 15}, "tempo"),
        ({"adaptation": {"change_per_minute": "2_beats"}}, "change_per_minute"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused_with_the_reason(wrong, why):
    with pytest.raises(Malformed, match=why):
        read_policy({**POLICY, **wrong})


@pytest.mark.req("B11")
@pytest.mark.parametrize("file", [SCORE, {"score": SCORE}, {"ucxl": "ucxl://a", "score": SCORE}])
def test_a_score_file_is_read_as_it_stands(file):
    score = read_score(file)
    assert (score.tempo, score.phases.beats, score.wait_budget.help) == (15, 8, 2)
    assert score.escalation.on_overrun == ("checkpoint", "defer:next-phrase")


@pytest.mark.req("B11")
@pytest.mark.parametrize("word", ["shout:loud", "fallback:", "defer:tomorrow", "emit:Two words"])
def test_an_escalation_that_nobody_knows_is_refused(word):
    with pytest.raises(Malformed, match="score"):
        read_score({**SCORE, "escalation": {"on_overrun": [word]}})


@pytest.mark.req("B21")
def test_a_budget_has_the_keys_of_its_file():
    budget = read_budget(
        {
            "budget": {
                "max_bu": 40,
                "phase_caps": {"plan": 4, "work": 30, "review": 6},
                "wait_caps": {"help": 2, "io": 1},
                "hard_end": "bar+6",
                "charge_to": "ucxl://acct/research",
            }
        }
    )
    assert (budget.max_bu, budget.bars, budget.wait_caps.help) == (40, 6, 2)
    with pytest.raises(Malformed, match="hard_end"):
        read_budget({"hard_end": "6 bars"})


@pytest.mark.req("B3")
def test_a_thread_does_not_close_before_its_promise_is_due():
    with pytest.raises(ValueError, match="fail_after_beats"):
        HelpPromise(thread_id="a" * 16, promise_beats=3, fail_after_beats=2)
    text = b'{"type":"promise","thread_id":"abcdefgh","promise_beats":3,"fail_after_beats":2}'
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=HelpPromise)


@pytest.mark.req("B5")
def test_the_deprecated_bar_and_beat_are_mapped_with_a_warning():
    old = {"agent_id": "a", "task_id": "t", "bar": 1287, "beat": 3, "state": "waiting", "hlc": "-"}
    fields, warning = upgraded(old)
    assert "deprecated" in warning
    assert msgspec.convert(fields, StatusClaim).beat_index == 3
    assert upgraded(fields) == (fields, "")


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.req("B23")
@given(st.integers(0, 9_999_999), st.sampled_from(["plan", "work", "review"]))
def test_an_address_names_a_beat_from_now_and_a_phase(beats, phase):
    ahead = parse_address(f"build/ab12;beats=^^{beats};phase={phase}")
    assert (ahead.what, ahead.beats, ahead.phase) == ("build/ab12", beats, phase)
    assert parse_address(f"x;beats=~~{beats}").beats == -beats
    meter = Meter()
    assert ahead.at_ms(meter, 5_000) == 4_000 + beats * 4_000


@pytest.mark.req("B23")
def test_the_older_suffix_is_read_as_now_with_a_warning():
    old = parse_address("ucxl://proj:any/*/task/ingest;bar=1287#beat=8")
    assert (old.what, old.beats) == ("ucxl://proj:any/*/task/ingest", 0)
    assert "deprecated" in old.warning
    assert not parse_address("plain").warning


@pytest.mark.req("B23")
@pytest.mark.parametrize(
    "text", ["a;beats=4", "a;beats=^4", "a;phase=rest", "a;beats=^^1;beats=^^2", "a;when=now"]
)
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(Malformed) as refused:
        parse_address(text)
    assert "^^4" in refused.value.hint


def test_the_default_policy_is_what_the_files_default_to():
    assert read_policy({}) == TempoPolicy()
