"""`chaos liar`, as small as it still shows something."""

import json

import pytest

from antiphon.core.record.verdict import Verdict
from chaos.liar.command import run

pytestmark = [pytest.mark.nats, pytest.mark.slow]


async def test_a_lie_is_outvoted_and_two_workers_of_one_member_are_one_vote(capsys):
    code = await run(jobs=1)
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["accepted_true"], said["liar_named"], said["others_named"]) == (1, 1, 0)
    assert (said["colluders_accepted"], said["forced_verdict"]) == (0, Verdict.QUORUM.value)
    # What a quorum does not show: whoever reads a replica's result can repeat it.
    assert (said["copied"], said["copies_accepted"], said["copied_lies_accepted"]) == (1, 1, 1)
