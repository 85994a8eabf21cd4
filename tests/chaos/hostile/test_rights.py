"""`chaos hostile --only reader --right R`, as small as it still shows something."""

import pytest

from chaos.hostile.command import main
from chaos.hostile.reader.trial import Plan
from chaos.hostile.right_trial import (
    MAX_GROWTH_MB,
    READ,
    RIGHTS,
    WORK,
    floods_of,
    holds,
    plan_of,
    trial,
)
from chaos.hostile.rights import material
from chaos.hostile.rights.client import steps_of


@pytest.mark.nats
@pytest.mark.soak
async def test_a_member_that_may_only_lock_stops_nobody():
    """How much later others are is measured by the command; this is too short for numbers."""
    plan = Plan(flood_s=0.0, beside_s=0.0, rounds=1, settle_s=0.05)
    said = await trial("lock", plan)
    assert holds({**said, "latency_ratio": 1.0, "revoked_s": 0.0}), said
    assert said["steps"] > 10
    assert said["calls"] >= len(said["floods"]) * 2


@pytest.mark.nats
@pytest.mark.long
async def test_what_a_right_opens_over_http_stops_nobody(monkeypatch):
    monkeypatch.setattr(material, "RENEWALS", 20)
    monkeypatch.setattr(material, "LISTED", 4)
    said = await trial("lock", plan_of(1.0, "http", 1), ["log"], "http")
    # How much later others are is measured by the command: here the machine may be slow.
    assert holds({**said, "latency_ratio": 1.0, "healthz_s_max": 0.0, "revoked_s": 0.0}), said
    assert said["statuses"].get("200", 0) > 0, said
    assert said["works"].keys() == {"lock", "http"}
    assert said["healthz_s_max"] > 0


@pytest.mark.parametrize("right", sorted({*RIGHTS} - {READ}))
def test_every_right_has_behaviours_and_work_that_they_could_slow_down(right):
    assert len(steps_of(right, "everything")) > 2
    assert steps_of(right, "nowhere") != steps_of(right, "everything")
    assert right in WORK or right == "answer"
    assert 60.0 / len(floods_of(right)) > 5


UNHARMED = {
    "lost": 0,
    "services_ended": 0,
    "latency_ratio": 2.0,
    "node_mb_growth": MAX_GROWTH_MB,
    "revoked_s": 5.0,
    "healthz_s_max": 1.0,
}


@pytest.mark.parametrize("name", UNHARMED)
def test_a_member_that_achieved_anything_does_not_pass(name):
    assert holds(UNHARMED)
    assert not holds({**UNHARMED, name: UNHARMED[name] + 0.1})


@pytest.mark.parametrize("words", [["--right", "lock"], ["--only", "acks", "--right", "lock"]])
def test_a_right_is_for_the_reader(words, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert "--right is for --only reader" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, why",
    [
        (["--flood", "crowds"], "are for --right"),
        (["--only", "reader", "--right", "lock", "--flood", "quorums"], "many locks, crowds"),
        (["--only", "reader", "--over", "http"], "--over is for --right"),
        (["--only", "reader", "--right", "read", "--flood", "lists"], "are for --right"),
    ],
)
def test_a_flood_alone_is_one_of_its_right(words, why, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert why in capsys.readouterr().err
