"""`chaos hostile`, as small as it still shows something."""

import pytest
from msgspec import structs

from chaos.hostile import attacks
from chaos.hostile.attacks import ATTACKS
from chaos.hostile.command import holds, trial
from tests.examples import size


@pytest.mark.nats
@pytest.mark.long
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_a_hostile_worker_delays_and_loses_nothing(attack, monkeypatch):
    junk = size(4_000, soak=attacks.BURY_JUNK)
    monkeypatch.setattr(attacks, "BURY_JUNK", junk)
    said = await trial(structs.replace(attack, stays_s=attack.stays_s / 4), 3)
    # How late jobs are is for the command to judge: here the machine may be slow.
    assert holds({**said, "delayed_max_s": 0.0}), said
    assert said["jobs"] == 3
    if attack.name == "buries":
        assert said["records"] > junk
        assert said["expiries"] >= 1, "the buried job was claimed by an honest one afterwards"


IN_BOUNDS = {"jobs": 3, "lost": 0, "accepted_twice": 0, "delayed_max_s": 9.0, "bound_s": 9.0}


@pytest.mark.parametrize("change", [{"lost": 1}, {"accepted_twice": 1}, {"delayed_max_s": 9.1}])
def test_a_hostile_worker_that_achieved_anything_does_not_pass(change):
    assert holds(IN_BOUNDS)
    assert not holds({**IN_BOUNDS, **change})
