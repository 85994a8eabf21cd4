"""A ticket's login, made on two machines from the same few bytes."""

import pytest

from antiphon.engines.nats import UserKey, sign_ticket_login, ticket_login
from antiphon.engines.nats.credentials.jwts import claims_of
from antiphon.engines.nats.server import permissions
from antiphon.engines.nats.server.accounts import AccountKeys, Accounts
from antiphon.errors import Malformed

MESH = "x2trbqd4x3ujftog"
KEY = UserKey(bytes(range(32)))
TIMES = {"issued_s": 1_000, "expires_s": 1_900}


def signed() -> tuple[bytes, bytes]:
    accounts = Accounts(AccountKeys.new(), "shop")
    return sign_ticket_login(accounts, MESH, KEY.public, **TIMES)


def test_the_holder_makes_the_login_that_the_account_signed():
    login = ticket_login(MESH, KEY, *signed(), **TIMES)
    claims = claims_of(login.current_jwt())
    assert (claims["sub"], claims["iat"], claims["exp"]) == (KEY.public, 1_000, 1_900)
    granted = permissions.of_ticket(MESH, KEY.public)
    assert tuple(claims["nats"]["pub"]["allow"]) == granted.publish
    assert tuple(claims["nats"]["sub"]["allow"]) == granted.subscribe


@pytest.mark.parametrize(
    "changed", ["mesh", "key", "account", "signature", "issued_s", "expires_s"]
)
def test_a_login_for_anything_else_is_not_made(changed):
    account, signature = signed()
    given = {"mesh": MESH, "key": KEY, "account": account, "signature": signature, **TIMES}
    given[changed] = {
        "mesh": "y2trbqd4x3ujftog",
        "key": UserKey(bytes(32)),
        "account": AccountKeys.new().members.raw_public,
        "signature": bytes(64),
        "issued_s": 999,
        "expires_s": 1_901,
    }[changed]
    with pytest.raises(Malformed, match="was changed, or another version"):
        ticket_login(**given)
