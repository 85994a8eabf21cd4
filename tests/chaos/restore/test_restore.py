"""`chaos restore`, as small as it still shows something."""

import pytest

from antiphon.assembly.replaced_log import Accepted
from antiphon.core.families.jobs.state import job_key
from chaos.restore import command
from chaos.restore.command import Run, missing, trial
from chaos.restore.load import Acknowledged


@pytest.mark.nats
async def test_nothing_of_the_backup_is_lost_and_everything_later_is_named(tmp_path):
    found = await trial(tmp_path, Run(backups=2, rounds=1))
    assert (found["lost"], found["unverified"], found["silent"]) == (0, 0, 0)
    assert (found["stopped"], found["went_on"]) == (True, True)
    assert found["named"] == found["after_backup"] > 0
    assert found["records"] > 20


async def test_a_record_that_is_neither_there_nor_named_is_counted(monkeypatch):
    class Nothing:
        history = ()

        async def read(self, _key):
            return self

    class Emptied:
        connection = type("Connection", (), {"session": Nothing()})()

    monkeypatch.setattr(command, "say", lambda _: None)
    confirmed = [Acknowledged(what="job", key=job_key("a", str(one))) for one in range(3)]
    accepted = Accepted(agreed=0, lost=(), kept=None)
    assert await missing(Emptied(), confirmed, 1, accepted) == (1, 2)
