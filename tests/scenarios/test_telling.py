"""The stories can fail: a script that says what is not so, or what means nothing, is told so."""

import pytest

from antiphon.core.record.verdict import Verdict
from tests.scenarios import script, stage
from tests.scenarios.telling import NotAsTold, tell

HEAD = """
# A story
today: Saturday 12:00
cast:  owner, anna, bert

owner  grants A to anna: /job on render.* until Sunday 12:00  -> ok
owner  calls render.frame as J                                -> ok
"""


def story(*lines: str) -> script.Story:
    return script.parse("\n".join([HEAD, *lines]), name="story")


@pytest.mark.parametrize(
    "line",
    [
        "anna claims J -> held",
        "bert claims J -> ok",
        "owner routes render to anna -> stale",
        "elsewhere: owner routes render to anna -> stale",
        "state J is claimed",
        "state J is unknown",
        "state coordinator is anna",
        "state coordinators were owner, anna",
        "state owner is bert",
        "state render.frame is routed to anna",
        "state quarantined is anna",
    ],
)
async def test_a_wrong_expectation_fails(line):
    await tell(story(), "memory")
    with pytest.raises(NotAsTold, match=f"story.txt:9: {line}"):
        await tell(story(line), "memory")


async def test_a_claimer_that_is_told_wrong_fails():
    claimed = "anna claims J -> ok"
    await tell(story(claimed, "state J is claimed by anna"), "memory")
    with pytest.raises(NotAsTold, match="told: claimed by bert"):
        await tell(story(claimed, "state J is claimed by bert"), "memory")


@pytest.mark.parametrize("reader", ["light_verdict", "full_verdict"])
@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
async def test_one_reader_that_judges_otherwise_fails_the_story(monkeypatch, reader, is_late):
    honest = getattr(stage, reader)
    calls = []

    def is_odd(who) -> bool:
        # Everybody is asked about two records at once, and about the same two afterwards.
        calls.append(who)
        return (len(calls) > 2) is is_late

    async def light(session, seq, subject):
        return Verdict.PROOF if is_odd(session) else await honest(session, seq, subject)

    def full(node, seq):
        return Verdict.PROOF if is_odd(node) else honest(node, seq)

    monkeypatch.setattr(stage, reader, light if reader == "light_verdict" else full)
    with pytest.raises(NotAsTold, match=r"told: ok\n(.*\n)*.*: proof"):
        await tell(story(), "memory")
    assert len(calls) == (3 if is_late else 1)


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("anna claims J", "no verdict"),
        ("anna claims J ->", "no verdict"),
        ("anna claims J -> fine", "'fine' is no verdict"),
        ("anna claims J -> unsent", "'unsent' is no verdict"),
        ("anna writes W to bert: /job -> ok", "'ok' is no verdict"),
        ("carol claims J -> ok", "'carol' is not in the cast"),
        ("owner names carol coordinator -> ok", "'carol' is not in the cast"),
        ("owner names nobody coordinator -> ok", "'nobody' is not in the cast"),
        ("anna snatches J -> ok", "nobody can do 'snatches'"),
        ("anna claims K -> no_job", "no job 'K' yet"),
        ("anna claims J under B -> ok", "no grant 'B' yet"),
        ("anna claims J dated as C -> ok", "no record 'C' yet"),
        ("anna replays A -> prev", "no record 'A' yet"),
        ("owner calls render.frame as J -> exists", "a job 'J' already"),
        ("anna claims J quickly -> ok", "to say is: claims {job}"),
        ("anna claims J dated Caturday 12:00 -> ok", "to say is: claims {job}"),
        ("anna writes W to bert: /job called W -> unsent", "to say is: writes"),
        ("owner routes render -> ok", "to say is: routes"),
        ("state J is asleep", "no such check"),
        ("state weather is fine", "no such check"),
        ("-- tomorrow --", "no time"),
        ("cast: owner, anna, bert, carol", "at the beginning"),
    ],
)
def test_a_line_that_means_nothing_is_refused(line, complaint):
    with pytest.raises(script.ScriptError, match=f"story.txt:9: .*{complaint}"):
        story(line)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Only a title",
        "# No cast\ntoday: Monday 09:00\nowner calls a as J -> ok",
        "# No owner\ntoday: Monday 09:00\ncast: anna\nanna calls a as J -> ok",
        "# No day\ncast: owner\nowner calls a as J -> ok",
        "today: Monday 09:00\ncast: owner\nowner calls a as J -> ok",
        "# Nothing happens\ntoday: Monday 09:00\ncast: owner",
        "# A strange rule\ntoday: Monday 09:00\ncast: owner\nrules: be kind",
        "# A strange day\ntoday: Monday\ncast: owner",
    ],
)
def test_a_story_that_is_none_is_refused(text):
    with pytest.raises(script.ScriptError):
        script.parse(text, name="story")


@pytest.mark.parametrize(
    "time, hours",
    [
        ("Saturday 12:00", 0),
        ("Saturday 13:00:00", 1),
        ("Thursday 12:00", -48),
        ("Sunday 12:00", 24),
        ("next Monday 12:00", 48),
        ("last Saturday 12:00", -168),
    ],
)
def test_times_are_those_of_one_week(time, hours):
    assert story().after_ms(time) == hours * 3_600_000


@pytest.mark.parametrize("to", ["Friday 12:00", "Saturday 12:00", "Sunday 12:00"])
async def test_the_clocks_move_on_and_only_by_seconds(to):
    with pytest.raises(ValueError, match="clocks move on"):
        await tell(story(f"-- {to} --"), "memory")
