"""Time in beats, as typed: `antiphon tempo`, and addresses with a time."""

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest

from antiphon import Mesh
from antiphon.core.bus.signed_message import MessageType
from antiphon.core.bus.subjects import STATUS
from antiphon.core.tempo.time_text import parse_hlc, parse_time
from tests.acceptance.shell import Shell, until
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats

POLICY = """\
cluster_id: "chorus-aus-01"
initial_bpm: 30
bar_len_beats: 8
phases: [plan, work, review]
limits:
  max_bpm: 32
  min_bpm: 6
adaptation:
  enable: true
  hysteresis_pct: 10
  change_per_minute: 1_beat
observability:
  emit_bar_reports: true
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "wrong.yaml").write_text("initial_bpm: 99\n")
    typed = Shell(folder)
    with typed.dev() as ready:
        typed.mesh = ready["mesh"]
        yield typed


@pytest.mark.req("B7", "B10", "B17", "B25")
def test_the_seeds_policy_is_taken_as_it_stands_and_holds_soon(shell):
    assert "bpm" in shell.run("tempo", "set", "policy.yaml").out
    assert "has not changed" in shell.run("tempo", "set", "policy.yaml").out
    until(lambda: shell.run("tempo", "--json").json["bpm"] >= 30)
    until(lambda: "beats come from" in shell.run("tempo").out)
    until(lambda: shell.run("tempo", "--json").json["mode"] == "leader")
    now = shell.run("tempo", "--json").json
    assert now["bar_len"] == 8
    assert now["phases"] == {"plan": 2, "work": 4, "review": 2}


@pytest.mark.req("B21")
def test_rates_come_from_a_file_of_their_own_and_stay(shell):
    file = str(Path(__file__).parents[2] / "examples" / "rates.yaml")
    with_rates = shell.run("tempo", "set", "policy.yaml", "--rates", file, "--json").json
    assert with_rates["rates"]
    again = shell.run("tempo", "set", "policy.yaml", "--json").json
    assert (again["rates"], again["changed"]) == (with_rates["rates"], False)


@pytest.mark.req("B16")
def test_the_tempo_is_frozen_and_unfrozen(shell):
    assert shell.run("tempo", "freeze", "--json").json["adaptation"]["frozen"]
    assert shell.run("tempo", "--json").json["frozen"]
    assert not shell.run("tempo", "unfreeze", "--json").json["adaptation"]["frozen"]


@pytest.mark.req("B24")
def test_doctor_says_where_the_beats_come_from(shell):
    def found() -> dict[str, str]:
        checks = shell.run("doctor", "--json").json["checks"]
        return next(one for one in checks if one["check"] == "tempo")

    until(lambda: found()["level"] == "ok")  # a machine that is very busy may lose its lease
    assert "the beats come from" in found()["sentence"]


@pytest.mark.req("B5", "B23")
def test_a_job_is_submitted_some_beats_ahead_and_shown_as_it_was(shell):
    typed = "example.add;beats=^^2;bar=1287#beat=3"
    answer = shell.run("submit", typed, "2", "3", "--json")
    assert (answer.json["state"], answer.json["result"]) == ("succeeded", 5)
    assert "deprecated" in answer.err
    job = answer.json["job"]
    told = shell.run("show", job, "--json").json
    assert told["not_before_ms"] > told["story"][0]["at_ms"]
    long_ago = shell.run("show", f"{job};beats=~~900", "--json").json
    assert long_ago["story"] == []
    assert shell.run("show", f"{job};beats=^^2").code != 0
    assert shell.run("submit", "example.add;beats=~~2", "2", "3").code != 0


@pytest.mark.req("B6")
def test_who_waits_for_a_beat_is_told_so_and_when_the_job_begins(shell):
    ahead = shell.run("submit", "example.add;beats=^^4", "2", "3", "--detach")
    assert ahead.err.startswith(
        "listening for a beat of the mesh, to count from\nit may begin from "
    )
    assert re.search(r"it may begin from .*: [34] beats\n", ahead.err)
    job = ahead.out.strip()
    assert "listening for a beat" in shell.run("show", f"{job};beats=~~1").err
    quiet = shell.run("submit", "example.add;beats=^^4", "2", "3", "--detach", "--json")
    assert quiet.err == ""
    for one in (job, quiet.json["job"]):
        shell.run("cancel", one)


@pytest.mark.req("B26")
@pytest.mark.parametrize(
    "words, said",
    [
        (("tempo", "set", "missing.yaml"), "cannot be read"),
        (("tempo", "set", "wrong.yaml"), "initial_bpm is outside"),
        (("tempo", "--follow", "--topic", "status:render"), "no topic"),
        (("tempo", "--follow", "--topic", "backbeat://cluster/other"), "backbeat://cluster/"),
        (("show", "abc;beats=4"), "is no time"),
    ],
)
def test_mistakes_say_what_to_type(shell, words, said):
    answer = shell.run(*words)
    assert answer.code != 0
    assert said in answer.err
    assert "try:" in answer.err or "why:" in answer.err


def test_a_look_at_the_tempo_ends_and_following_it_goes_on(shell):
    """The beats that follow are told as they come, until somebody ends it."""
    now = shell.run("tempo").out
    assert "bpm" in now
    called = {one["alias"] for one in shell.run("nodes", "--json").json["nodes"]}
    assert any(f"beats come from {name}, term" in now for name in called), (now, called)
    with shell.start("tempo", "--follow", "--json") as following:
        assert "tempo_bpm" in following.line("beat")
        assert following.stop() == 0
    assert "--follow --topic" in shell.run("tempo", "--topic", "status://x").err


@pytest.mark.req("B1")
def test_each_beat_is_told_with_everything_that_follows_from_it(shell):
    now = shell.run("tempo", "--json").json
    with shell.start("tempo", "--follow", "--json", "--topic", "backbeat://cluster/") as following:
        frame = json.loads(following.line("beat_epoch"))
        after = json.loads(following.line("beat_epoch"))
    assert (frame["cluster_id"], frame["policy_hash"]) == (shell.mesh, now["policy_hash"])
    assert frame["bar_len_beats"] == 8
    assert frame["beat_ms"] == round(60_000 / frame["tempo_bpm"])
    for one in (frame, after):
        index, begun_ms = one["beat_index"], parse_time(one["beat_epoch"])
        assert one["downbeat"] is (index == 1)
        assert one["phase"] == ["plan", "work", "review"][(index > 2) + (index > 6)]
        assert parse_time(one["deadline_at"]) == begun_ms + one["beat_ms"]
        assert abs(parse_hlc(one["hlc"])[0] - begun_ms) < PATIENCE_S * 1000
        assert not {"bar", "beat"} & one.keys()
    beats, rest = divmod(
        parse_time(after["beat_epoch"]) - parse_time(frame["beat_epoch"]), frame["beat_ms"]
    )
    assert rest == 0
    assert after["beat_index"] == 1 + (frame["beat_index"] - 1 + beats) % 8


@pytest.mark.req("B5")
def test_a_claim_in_the_older_form_is_shown_with_a_warning(shell):
    async def say() -> None:
        async with Mesh.open(home=shell.home) as mesh:
            session, key = mesh.connection.session, mesh.connection.keyring
            where = STATUS.at(kind="example.old")
            old = {"agent_id": key.did, "task_id": "example.old/night", "bar": 1287, "beat": 3}
            old |= {"state": "waiting", "hlc": "2025-09-03T02:12:27.183Z+1287:3+17"}
            as_it_was = MessageType("status", dict, max_bytes=16 * 1024)
            me = (key.did, key.sign)
            payload = as_it_was.sign(old, me, mesh=session.mesh, subject=where)
            while not heard.is_set():
                await session.engine.bus.publish(where, payload)
                await asyncio.sleep(0.2)

    heard = threading.Event()
    saying = threading.Thread(target=lambda: asyncio.run(say()))
    following = ("tempo", "--follow", "--json", "--topic", "status://example.old")
    with shell.start(*following) as following:
        saying.start()
        try:
            line = following.line("example.old/night")
        finally:
            heard.set()
            saying.join()
    assert '"beat_index":3' in line.replace(" ", "")
    assert "bar and beat are deprecated" in line


@pytest.mark.req("B26")
def test_a_project_is_followed_with_the_kinds_below_it(shell):
    """A job of example.sleep is heard by who follows the project example, and by nobody else's."""
    with (
        shell.start("tempo", "--follow", "--json", "--topic", "status://example") as project,
        shell.start("tempo", "--follow", "--json", "--topic", "status://exam") as other,
    ):
        job = shell.run("submit", "example.sleep", "600", "--detach").out.strip()
        told = json.loads(project.line(job))
        assert (told["topic"], told["task_id"]) == ("status", f"example.sleep/{job}")
        assert told["state"] in {"planning", "executing", "review"}
        shell.run("cancel", job)
        assert project.stop() == 0
        assert other.stop() == 0
        assert other.seen == []


def test_durations_may_be_typed_in_beats_and_beats_in_seconds(shell):
    """At the tempo of the mesh: 30 bpm, two seconds a beat, while it is frozen."""
    still = POLICY.replace("enable: true", "enable: false")
    (shell.directory / "still.yaml").write_text(still)
    assert shell.run("tempo", "set", "still.yaml").code == 0
    job = shell.run(
        "submit", "example.add", "1", "2", "--delay", "1800beats", "--detach"
    ).out.strip()
    told = shell.run("show", job, "--json").json
    assert told["not_before_ms"] - told["called_ms"] == pytest.approx(3_600_000, abs=60_000)
    assert "16s" in shell.run("rules", "lease_ms=8beats").out
    score = "phases: {plan: 3s, work: 4, review: 2beats}\nwait_budget: {io: 10s}\n"
    (shell.directory / "score.yaml").write_text(score)
    words = ("submit", "example.add", "1", "2", "--score", "score.yaml", "--budget", "max_bu=9s")
    job = shell.run(*words, "--detach").out.strip()
    assert shell.ended(job)["state"] == "succeeded"
    assert shell.run("show", f"{job};seconds=~~900", "--json").json["story"] == []
    assert "is not a duration" in shell.run("submit", "example.add", "--delay", "4bars").err


@pytest.mark.req("B18")
def test_what_was_done_and_made_keeps_its_beat_under_another_policy(shell):
    job = shell.run("submit", "example.add", "4", "5", "--json").json["job"]
    shown = shell.run("show", job, "--json").json["story"]
    (made,) = shell.run("artifacts", job, "--json").json["artifacts"]
    assert {"beat", "phase", "hlc"} <= shown[-1].keys() & made.keys()
    assert made["hlc"] == shown[-1]["hlc"]
    listed = shell.run("artifacts", job).out
    assert f"{made['beat']} {made['phase']}" in listed
    assert made["hlc"] in listed
    other = POLICY.replace("initial_bpm: 30", "initial_bpm: 7").replace("beats: 8", "beats: 64")
    (shell.directory / "other.yaml").write_text(other)
    assert shell.run("tempo", "set", "other.yaml").code == 0
    assert shell.run("show", job, "--json").json["story"] == shown
    assert shell.run("artifacts", job, "--json").json["artifacts"] == [made]
