"""`bench logins` with more used tickets than the account's token has room for."""

import json

import pytest

from antiphon.engines.nats.server.accounts import MAX_USED_TICKETS
from bench import logins

pytestmark = pytest.mark.nats


def test_a_login_is_taken_back_after_many_used_tickets(capsys):
    used = 2 * MAX_USED_TICKETS
    assert logins.main(["--used", str(used)]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["used"] == used
    assert told["holds"]
