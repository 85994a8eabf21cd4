"""Engine keys, account keys on disk, and the signed texts that servers believe."""

import base64
import json
import stat

import pytest
from nacl.signing import VerifyKey

from antiphon.engines.nats.credentials.jwts import claims_of
from antiphon.engines.nats.credentials.keypairs import AccountKey, OperatorKey, UserKey, is_user
from antiphon.engines.nats.server.accounts import (
    MAX_LOGIN_S,
    MAX_REVOKED,
    MAX_USED_TICKETS,
    AccountKeys,
    Accounts,
    Revocations,
)
from antiphon.engines.nats.server.permissions import Permissions
from antiphon.errors import Corrupt, Malformed, Misconfigured, Unavailable

RAW = bytes(range(32))
# As the NATS project's own implementation writes them.
VECTORS = [
    (
        UserKey,
        "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK",
        "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y",
    ),
    (
        AccountKey,
        "AAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QPZV",
        "SAAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4HYMHI",
    ),
    (
        OperatorKey,
        "OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT",
        "SOAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H2AJA",
    ),
]
ANYTHING = Permissions(("a.>",), ("b.>",))


def accounts(**extra) -> Accounts:
    return Accounts(AccountKeys.new(), "mesh", **extra)


def login(of: Accounts, user: str, permissions=ANYTHING, *, expires_s=None, issued_s=1000) -> dict:
    jwt = of.user_jwt(user, permissions, expires_s=expires_s, name="x", issued_s=issued_s)
    return claims_of(jwt)


# --- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, public, seed", VECTORS)
def test_keys_have_the_text_that_servers_read(kind, public, seed):
    key = kind(RAW)
    assert (key.public, key.seed) == (public, seed)
    assert kind.from_seed(seed).public == public
    VerifyKey(base64.b32decode(public)[1:33]).verify(b"nonce", key.sign(b"nonce"))


@pytest.mark.parametrize("kind, public, seed", VECTORS)
def test_a_seed_of_another_role_or_with_a_slip_of_the_pen_is_refused(kind, public, seed):
    slipped = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]
    for text in (slipped, seed[:-1], seed + "A", seed.lower(), public, "", "S", "ü" * 58):
        with pytest.raises(Malformed) as caught:
            kind.from_seed(text)
        assert not text or text not in str(caught.value)
    for other, _, others in VECTORS:
        if other is not kind:
            with pytest.raises(Malformed):
                kind.from_seed(others)


def test_only_users_are_users():
    assert is_user(UserKey.new().public)
    for text in (AccountKey.new().public, UserKey.new().seed, "", "*", ">", "U" * 56):
        assert not is_user(text)


def test_new_keys_differ_and_show_no_secret():
    one, other = UserKey.new(), UserKey.new()
    assert one.public != other.public
    for text in (repr(one), str(one), f"{one}"):
        assert one.public in text
        assert one.seed not in text
    keys = AccountKeys.new()
    for key in (keys.operator, keys.system, keys.mesh, keys.members):
        assert key.seed not in repr(keys)


def test_account_keys_are_kept_in_a_file_of_their_owners(tmp_path):
    path = tmp_path / "deeper" / "accounts.json"
    keys = AccountKeys.new()
    keys.store(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again = AccountKeys.load(path)
    assert again.members.seed == keys.members.seed
    assert again.operator.public == keys.operator.public
    path.chmod(0o644)
    keys.store(path)  # written anew, not over the old one
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["accounts.json"]


def test_missing_or_damaged_account_keys_are_told_apart(tmp_path):
    path = tmp_path / "accounts.json"
    with pytest.raises(Misconfigured):
        AccountKeys.load(path)
    AccountKeys.new().store(path)
    text = path.read_text()
    for damaged in ("", "[]", "{}", text.replace('"SO', '"SU'), text[:-1]):
        path.write_text(damaged)
        with pytest.raises(Corrupt) as caught:
            AccountKeys.load(path)
        assert "SA" not in str(caught.value)


# --- signed texts -----------------------------------------------------------------------------


def test_every_text_is_signed_by_whom_it_names():
    of = accounts()
    keys = of.keys
    user = UserKey.new().public
    named = {
        of.operator_jwt(1): (keys.operator, keys.operator),
        of.system_account_jwt(1): (keys.operator, keys.system),
        of.mesh_account_jwt(1): (keys.operator, keys.mesh),
        of.members_account_jwt(1): (keys.operator, keys.members),
        of.system_user_jwt(user, name="s", issued_s=1): (keys.system, None),
        of.user_jwt(user, None, expires_s=None, name="f", issued_s=1): (keys.mesh, None),
        of.user_jwt(user, ANYTHING, expires_s=9, name="m", issued_s=1): (keys.members, None),
    }
    assert len(named) == 7
    for jwt, (issuer, subject) in named.items():
        head, body, signature = jwt.split(".")
        claims = claims_of(jwt)
        assert json.loads(base64.urlsafe_b64decode(head + "=="))["alg"] == "ed25519-nkey"
        assert claims["iss"] == issuer.public
        assert claims["sub"] == (user if subject is None else subject.public)
        VerifyKey(base64.b32decode(issuer.public)[1:33]).verify(
            f"{head}.{body}".encode(), base64.urlsafe_b64decode(signature + "==")
        )


def test_texts_with_other_contents_have_other_ids():
    of = accounts()
    before = claims_of(of.members_account_jwt(5))["jti"]
    assert claims_of(of.members_account_jwt(5))["jti"] == before
    of.revoke([UserKey.new().public], 5)
    assert claims_of(of.members_account_jwt(5))["jti"] != before


def test_only_the_mesh_account_stores_and_neither_lets_bearers_in():
    of = accounts()
    storing = {
        what: claims_of(jwt)["nats"]["limits"].get("disk_storage", 0)
        for what, jwt in (
            ("system", of.system_account_jwt(1)),
            ("mesh", of.mesh_account_jwt(1)),
            ("members", of.members_account_jwt(1)),
        )
    }
    assert storing == {"system": 0, "mesh": -1, "members": 0}
    assert claims_of(of.members_account_jwt(1))["nats"]["limits"]["disallow_bearer"] is True


def test_an_empty_list_of_subjects_admits_nothing():
    nats = login(accounts(), UserKey.new().public, Permissions((), ()))["nats"]
    assert nats["pub"] == nats["sub"] == {"deny": [">"]}


def test_a_login_is_for_a_user_and_nothing_else():
    with pytest.raises(Malformed):
        login(accounts(), AccountKey.new().public)


@pytest.mark.parametrize(
    "asked, given",
    [(None, 1000 + MAX_LOGIN_S), (2000, 2000), (10**12, 1000 + MAX_LOGIN_S)],
)
def test_every_login_ends(asked, given):
    assert login(accounts(), UserKey.new().public, expires_s=asked)["exp"] == given


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "e30.W10.e30", "a.e30=.b"])
def test_a_text_that_is_no_login_says_so(text):
    if text == "a.e30=.b":
        assert claims_of(text) == {}
        return
    with pytest.raises(Misconfigured):
        claims_of(text)


# --- revocations ------------------------------------------------------------------------------


def test_a_revoked_user_is_admitted_again_only_by_a_later_login():
    of, user = accounts(), UserKey.new().public
    assert login(of, user, issued_s=1000)["iat"] == 1000
    of.revoke([user], 1000)
    assert of.revocations.since[user] >= 1000
    again = login(of, user, issued_s=1000)["iat"]
    assert again > of.revocations.since[user]
    of.revoke([user], 1000)  # in the same second
    assert of.revocations.since[user] >= again
    assert login(of, user, issued_s=1000)["iat"] > of.revocations.since[user]


def test_a_clock_that_was_set_back_spares_nobody():
    of, user = accounts(), UserKey.new().public
    issued = login(of, user, issued_s=5000)["iat"]
    of.revoke([user], 4000)
    assert of.revocations.since[user] >= issued


def test_revocations_outlive_the_process(tmp_path):
    user = UserKey.new().public
    Accounts.open(tmp_path, "mesh").revoke([user], 1000)
    again = Accounts.open(tmp_path, "mesh")
    assert again.revocations.since == {user: 1000}
    for jwt in (again.members_account_jwt(2000), again.mesh_account_jwt(2000)):
        assert claims_of(jwt)["nats"]["revocations"] == {user: 1000}
    assert stat.S_IMODE((tmp_path / "revoked.json").stat().st_mode) == 0o600
    assert Accounts.open(tmp_path, "mesh").keys.mesh.public == again.keys.mesh.public


def test_a_revocation_is_forgotten_when_no_login_can_be_so_old():
    kept = Revocations()
    old, new = UserKey.new().public, UserKey.new().public
    kept.add([old], 1000)
    kept.add([new], 1000 + MAX_LOGIN_S)
    assert set(kept.since) == {old, new}
    kept.add([new], 1001 + MAX_LOGIN_S)
    assert set(kept.since) == {new}


def test_a_used_ticket_is_forgotten_when_its_login_has_ended():
    kept, member, ticket = Revocations(), UserKey.new().public, UserKey.new().public
    kept.add([member], 1000)
    kept.add_tickets({ticket: 1900}, 1000)
    kept.add([member], 1900)
    assert set(kept.since) == {member, ticket}
    kept.add([member], 1901)
    assert set(kept.since) == {member}


def test_any_number_of_used_tickets_leaves_room_for_members(tmp_path):
    """All used within their 15 minutes; the ones that were used last are in the account."""
    path = tmp_path / "revoked.json"
    kept, member = Revocations(path), UserKey.new().public
    kept.add([member], 1000)
    tickets = [UserKey(n.to_bytes(32, "big")).public for n in range(2_000)]
    for at in range(0, len(tickets), 50):
        kept.add_tickets(dict.fromkeys(tickets[at : at + 50], 1900), 1000)
    of = accounts(revocations=Revocations(path))
    assert set(kept.since) == {member, *tickets[-MAX_USED_TICKETS:]}
    assert len(of.members_account_jwt(1000)) <= 16_000
    of.revoke([UserKey.new().public for _ in range(MAX_REVOKED - 1)], 1001)
    assert member in of.revocations.since


def test_more_revocations_than_the_server_takes_are_refused_whole(tmp_path):
    path = tmp_path / "revoked.json"
    kept = Revocations(path)
    users = [UserKey(n.to_bytes(32, "big")).public for n in range(MAX_REVOKED + 1)]
    kept.add(users[:-1], 5)
    with pytest.raises(Unavailable):
        kept.add(users[-1:], 6)
    assert len(Revocations(path).since) == len(kept.since) == MAX_REVOKED
    with pytest.raises(Malformed):
        kept.add(["*"], 6)  # would mean everybody
    of = accounts(revocations=kept)
    assert len(of.members_account_jwt(6)) < 1024 * 1024


def test_damaged_revocations_stop_the_wall(tmp_path):
    path = tmp_path / "revoked.json"
    for damaged in ("", "[]", '{"U": "x"}', '{"U": 5}'):
        path.write_text(damaged)
        with pytest.raises(Corrupt):
            Revocations(path)
