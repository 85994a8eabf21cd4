"""Bar-bound tokens: whose they are, for what, and for how long."""

from base64 import urlsafe_b64encode
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.bar_tokens import bar_token
from antiphon.core.bar_tokens.bar_count import BarCount
from antiphon.core.bar_tokens.bar_token import (
    BARS,
    COMMANDS,
    MAX_BYTES,
    MAX_TEXT,
    ROLES,
    SUBJECT,
    BarToken,
    Bearer,
    Refusal,
    choose_chain,
)
from antiphon.core.bus.signed_message import MessageType
from antiphon.core.record import signing
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.meter import Meter
from tests.core.authority.test_chain_check import DAY_MS, RENDER, Court
from tests.core.authority.test_quarantine import show, two_faces
from tests.core.authors import ALICE, BOB, CAROL, OWNER, Author
from tests.core.ledger import T0, Ledger

METER = Meter()
NOW = METER.downbeat_after(T0)
"""A downbeat."""
COUNT = BarCount.of(METER)


def signer(who: Author):
    return who.did, partial(signing.sign, who.secret)


def text(who: Author = ALICE, mesh: str = "", court: Court | None = None, **fields) -> str:
    fields = {"project": "render", "role": "read", "downbeat_ms": NOW, **fields}
    mesh = mesh or (court.ledger.history.current.mesh if court else "")
    return bar_token.issue(BarToken(**fields), signer(who), mesh=mesh)


def used(court: Court, token: str, now: int = NOW, bars: BarCount = COUNT) -> Bearer | Refusal:
    return bar_token.check(token, control=court.ledger.history.current, bars=bars, now_ms=now)


@pytest.fixture
def court():
    return Court()


@pytest.fixture
def chain(court):
    return (court.grant(OWNER, ALICE, cmd="/job/read", pol=RENDER),)


@pytest.mark.req("B20")
def test_a_token_permits_its_role_in_its_project(court, chain):
    found = used(court, text(court=court, delegation=chain))
    kinds = ("render.>",)
    assert found == Bearer(
        holder=ALICE.did,
        command="/job/read",
        kinds=kinds,
        auth=chain,
        project="render",
        member=ALICE.did,
    )
    assert found.may(*READ_BY)
    assert not found.may("/job/schedule")
    assert not found.may("/tempo")
    assert not found.has_every_kind


def test_the_keys_that_a_member_makes_are_counted_with_it(court, chain):
    through = (*chain, court.grant(ALICE, BOB, cmd="/job/read", pol=RENDER))
    found = used(court, text(BOB, court=court, delegation=through))
    assert (found.holder, found.party) == (BOB.did, ALICE.did)
    owners = used(court, text(OWNER, court=court, delegation=chain))
    assert owners.party == OWNER.did


@pytest.mark.req("B20")
def test_it_is_good_for_two_bars_and_refused_from_then_on(court, chain):
    token = text(court=court, delegation=chain)
    end = NOW + BARS * METER.bar_ms
    assert BARS == 2
    assert isinstance(used(court, token, NOW), Bearer)
    assert isinstance(used(court, token, end - 1), Bearer)
    assert used(court, token, end) is Refusal.LATE
    assert used(court, token, end + DAY_MS) is Refusal.LATE


@pytest.mark.req("B20")
def test_after_a_change_of_tempo_its_bars_are_those_that_are_heard(court, chain):
    token = text(court=court, delegation=chain)
    faster = Meter(bpm=24, anchor_ms=NOW + METER.bar_ms)
    end = faster.anchor_ms + faster.bar_ms
    assert isinstance(used(court, token, end - 1, COUNT.noted(faster)), Bearer)
    assert used(court, token, end, COUNT.noted(faster)) is Refusal.LATE
    assert isinstance(used(court, token, end), Bearer), "at the old tempo there is time left"


@pytest.mark.req("B20")
def test_it_is_refused_from_the_future_but_clocks_may_differ_by_a_beat(court, chain):
    token = text(court=court, delegation=chain)
    assert isinstance(used(court, token, NOW - METER.beat_ms), Bearer)
    assert used(court, token, NOW - METER.beat_ms - 1) is Refusal.EARLY


def test_nobody_can_make_one_that_lasts_longer(court, chain):
    said = {"delegation": chain, "project": "render", "role": "read", "downbeat_ms": NOW}
    lax = MessageType("bar-token", dict, max_bytes=MAX_BYTES)
    for bars, answer in ((BARS + 1, Refusal.MALFORMED), (BARS, None)):
        raw = lax.sign(
            {**said, "bars": bars}, signer(ALICE), mesh=court.ledger.mesh, subject=SUBJECT
        )
        found = used(court, urlsafe_b64encode(raw).decode().rstrip("="))
        assert found is answer if answer else isinstance(found, Bearer)
    assert isinstance(used(court, text(court=court, delegation=chain, bars=1)), Bearer)
    short = text(court=court, delegation=chain, bars=1)
    assert used(court, short, NOW + METER.bar_ms) is Refusal.LATE


@pytest.mark.req("B20")
def test_a_revocation_counts_at_once(court, chain):
    token = text(court=court, delegation=chain)
    assert isinstance(used(court, token), Bearer)
    court.revoke(chain[0], OWNER)
    assert used(court, token) is Refusal.ENDED


def test_what_lasts_longer_than_its_bars_ends_with_the_delegation(court, chain):
    now_s = NOW // 1000

    def holds(bearer, at_s=now_s):
        return bar_token.still_holds(court.ledger.history.current, bearer, at_s)

    found = used(court, text(court=court, delegation=chain))
    owners = used(court, text(OWNER, court=court))
    assert holds(found)
    assert holds(found, now_s + 3_600), "its bars are over"
    assert not holds(replace(found, auth=()))
    assert not holds(replace(found, holder=BOB.did))
    court.revoke(chain[0], OWNER)
    assert not holds(found)
    assert holds(owners)


def test_a_delegation_that_has_expired_or_is_revoked_above_ends_it(court):
    above = court.grant(OWNER, BOB, cmd="/job", pol=RENDER)
    below = court.grant(BOB, ALICE, cmd="/job/read", until_ms=NOW - T0)
    token = text(court=court, delegation=(above, below))
    assert isinstance(used(court, token), Bearer)
    late = NOW + 2_000
    fresh = text(court=court, delegation=(above, below), downbeat_ms=NOW)
    assert used(court, fresh, late) is Refusal.ENDED
    court.revoke(above, OWNER)
    assert used(court, token) is Refusal.ENDED


def test_a_holder_in_quarantine_is_refused(court, chain):
    token = text(court=court, delegation=chain)
    assert show(court.ledger, two_faces(court.ledger), at=100) is Verdict.OK
    assert used(court, token) is Refusal.QUARANTINED


@pytest.mark.req("B20")
@pytest.mark.parametrize(
    "fields, why",
    [
        ({"role": "schedule"}, Refusal.ROLE),
        ({"role": "tempo"}, Refusal.ROLE),
        ({"role": "all"}, Refusal.ROLE),
        ({"project": "build"}, Refusal.PROJECT),
        ({"project": "renders"}, Refusal.PROJECT),
        ({"project": "Render"}, Refusal.MALFORMED),
        ({"project": "render.*"}, Refusal.MALFORMED),
        ({"project": ""}, Refusal.MALFORMED),
    ],
)
def test_it_narrows_the_delegation_and_never_widens_it(court, chain, fields, why):
    assert used(court, text(court=court, delegation=chain, **fields)) is why


def test_a_project_of_every_kind_reaches_no_further_than_the_delegation(court, chain):
    found = used(court, text(court=court, delegation=chain, project="*"))
    assert isinstance(found, Bearer)
    assert found.kinds == ("render.>",)
    assert not found.has_every_kind


def test_without_a_chain_to_its_holder_it_is_worth_nothing(court, chain):
    assert used(court, text(court=court)) is Refusal.NO_CHAIN
    assert used(court, text(BOB, court=court, delegation=chain)) is Refusal.NO_CHAIN
    unknown = ("bafy" + "a" * 55,)
    assert used(court, text(court=court, delegation=unknown)) is Refusal.NO_CHAIN
    strangers = (court.grant(CAROL, ALICE, cmd="/job/read", subject=CAROL.did),)
    assert used(court, text(court=court, delegation=strangers)) is Refusal.NO_CHAIN


def test_the_owner_needs_no_chain_and_an_open_mesh_still_needs_one(court):
    found = used(court, text(OWNER, court=court, project="*", role="all"))
    assert isinstance(found, Bearer)
    assert found.has_every_kind
    open_court = Court()
    open_court.ledger = Ledger(authority="open")
    assert used(open_court, text(court=open_court)) is Refusal.NO_CHAIN
    assert isinstance(used(open_court, text(OWNER, court=open_court)), Bearer)


def test_a_token_for_another_mesh_is_refused(court, chain):
    assert used(court, text(mesh="a" * 16, delegation=chain)) is Refusal.MESH


def test_no_other_message_is_a_token_and_a_changed_one_is_not_signed(court, chain):
    token = BarToken(delegation=chain, project="render", role="read", downbeat_ms=NOW)
    mesh = court.ledger.history.current.mesh
    forged = (ALICE.did, partial(signing.sign, BOB.secret))
    assert used(court, bar_token.issue(token, forged, mesh=mesh)) is Refusal.SIGNATURE

    def as_an_op(_: str, payload: bytes) -> bytes:
        return signing.sign(ALICE.secret, signing.OP_TYPE, payload)

    other = bar_token.issue(token, (ALICE.did, as_an_op), mesh=mesh)
    assert used(court, other) is Refusal.SIGNATURE


@given(st.one_of(st.text(max_size=80), st.binary(max_size=200).map(lambda raw: raw.hex())))
def test_whatever_is_sent_is_refused_and_nothing_raises(sent):
    assert isinstance(used(Court(), sent), Refusal)


def test_what_is_too_long_is_not_even_decoded(court):
    assert used(court, "A" * (MAX_TEXT + 1)) is Refusal.MALFORMED


def test_a_holder_names_the_chain_with_the_whole_project(court):
    control = court.ledger.history.current
    some = court.grant(OWNER, ALICE, cmd="/job/read", pol=[["==", ".kind", "render.frame"]])
    assert choose_chain(control, ALICE.did, project="render", role="read", now_ms=NOW) == (some,)
    whole = court.grant(OWNER, ALICE, cmd="/job/read", nonce=b"another nonce")
    assert choose_chain(control, ALICE.did, project="render", role="read", now_ms=NOW) == (whole,)
    assert choose_chain(control, OWNER.did, project="*", role="all", now_ms=NOW) == ()


def test_a_holder_without_the_permission_learns_what_is_lacking(court):
    def lacking(**fields):
        fields = {"project": "render", "role": "read", **fields}
        return choose_chain(court.ledger.history.current, ALICE.did, now_ms=NOW, **fields)

    assert lacking() is Refusal.NO_CHAIN
    cid = court.grant(OWNER, ALICE, cmd="/job/read", pol=RENDER)
    assert lacking(role="claim") is Refusal.ROLE
    assert lacking(project="build") is Refusal.PROJECT
    court.revoke(cid, OWNER)
    assert lacking() is Refusal.ENDED


def test_every_role_is_one_command():
    assert set(COMMANDS) == set(ROLES)
