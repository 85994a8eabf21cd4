"""A protocol that this code does not have stops it; nothing less does (spec §4.1)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.authority.rules import NOTICE_MS
from antiphon.core.families.mesh.ops import MeshRecover, MeshRoute, RecoverBody, RouteBody
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.opened_record import open_record
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record import codec
from antiphon.core.record.ids import mesh_id
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Misconfigured, Outdated
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY, sign_bytes
from tests.core.ledger import T0, Ledger, Reader
from tests.core.strategies import BRISK, plain_values

NEWER = PROTOCOL.number + 1
NEWER_CODE = Protocol(NEWER, PROTOCOL.families)
"""Code that has the next protocol, in which nothing is different."""


def rules_bytes(ledger, *, rules=None, **fields):
    """A `mesh.rules` op of the future, canonical by hand."""
    op = {
        "author": OWNER.did,
        "body": {"rules": {"protocol": NEWER, "tempo": "adagio"} if rules is None else rules},
        "hlc": [T0 + 1_000, 0],
        "mesh": ledger.mesh,
        "prev": 0,
        "type": "mesh.rules",
        "v": 1,
        **fields,
    }
    return json.dumps(op, sort_keys=True, separators=(",", ":")).encode()


def put(ledger, op_bytes, *, by=OWNER, subject=None):
    subject = subject or f"ap.{ledger.mesh}.ctl.rules"
    return ledger.append(subject, sign_bytes(by, op_bytes), stamp=1_000)


def past(ledger):
    """Any record that is committed when the notice of what was announced at 1,000 has passed."""
    body = RouteBody(kind="a", target=BOB.did)
    return ledger.put(MeshRoute, body, OWNER, at=1_000 + NOTICE_MS)


def test_readable_rules_of_a_newer_protocol_stop_this_code_when_the_notice_has_passed():
    ledger = Ledger()
    before = ledger.history.current.rules
    assert ledger.rules(protocol=NEWER, attempts=7, how={"at": 1_000}) is Verdict.OK
    current = ledger.history.current
    assert (current.rules, current.rise.protocol) == (before, NEWER), (
        "the old one judges everything"
    )
    assert ledger.coordinator(BOB, at=999 + NOTICE_MS) is Verdict.OK
    with pytest.raises(Outdated) as stop:
        past(ledger)
    assert f"protocol {NEWER}" in stop.value.message
    assert "upgrade" in stop.value.hint
    assert isinstance(stop.value, Misconfigured)


def test_a_recovery_takes_back_what_a_stolen_key_announced():
    ledger = Ledger()
    assert ledger.rules(protocol=65_535, how={"at": 1_000}) is Verdict.OK
    body = RecoverBody(owner=BOB.did, recovery=CAROL.did)
    assert ledger.put(MeshRecover, body, RECOVERY, at=NOTICE_MS) is Verdict.OK
    assert ledger.history.current.rise is None
    assert ledger.coordinator(BOB, BOB, at=1_000 + NOTICE_MS) is Verdict.OK


def test_the_owner_takes_it_back_with_other_rules():
    ledger = Ledger()
    assert ledger.rules(protocol=NEWER, how={"at": 1_000}) is Verdict.OK
    assert ledger.rules(attempts=5, how={"at": 2_000}) is Verdict.OK
    assert past(ledger) is Verdict.OK
    assert ledger.history.current.rules.attempts == 5


def test_a_known_protocol_comes_into_force_by_the_commit_stamp_alone():
    ledger = Ledger(NEWER_CODE)
    assert ledger.rules(protocol=NEWER, attempts=7, how={"at": 1_000}) is Verdict.OK
    rules = [ledger.history.at(3, T0 + ms).rules for ms in (999 + NOTICE_MS, 1_000 + NOTICE_MS)]
    assert [(one.protocol, one.attempts) for one in rules] == [(PROTOCOL.number, 3), (NEWER, 7)]
    assert past(ledger) is Verdict.OK
    current = ledger.history.current
    assert (current.rules.protocol, current.rules.attempts, current.rise) == (NEWER, 7, None)
    assert ledger.rules(protocol=PROTOCOL.number) is Verdict.PROTOCOL


def test_values_that_contradict_one_another_do_not_come_with_a_protocol():
    ledger = Ledger(NEWER_CODE, attempts=5)
    assert ledger.rules(protocol=NEWER, attempts=50, attempts_max=1, how={"at": 1_000}).is_accepted
    assert past(ledger) is Verdict.OK
    rules = ledger.history.current.rules
    assert (rules.protocol, rules.attempts, rules.attempts_max) == (NEWER, 5, 100)


@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"at": 5_000, "stamp": 0}, Verdict.DRIFT),
        ({"prev": 7}, Verdict.PREV),
        ({"at": 0}, Verdict.EQUIVOCATION),
        ({"at": -1}, Verdict.STALE),
    ],
    ids=str,
)
def test_readable_newer_rules_that_do_not_take_effect_are_only_rejected(how, verdict):
    assert Ledger().rules(protocol=NEWER, how=how) is verdict


def test_readable_newer_rules_by_anyone_else_are_only_rejected():
    assert Ledger().rules(ALICE, protocol=NEWER) is Verdict.NOT_OWNER


def test_a_mesh_that_was_founded_with_a_newer_protocol_stops_this_code():
    with pytest.raises(Outdated):
        Ledger(protocol=NEWER)


@pytest.mark.parametrize(
    "rules",
    [
        {"protocol": NEWER, "tempo": "adagio"},
        {"protocol": NEWER, "attempts": "many"},
        {"protocol": 65_536},
        {"protocol": NEWER, "selection": {"a": "queue"}},
    ],
    ids=str,
)
def test_unreadable_rules_of_a_newer_protocol_by_the_owner_stop_this_code(rules):
    ledger = Ledger()
    assert put(ledger, rules_bytes(ledger, rules=rules)) is Verdict.OK
    assert ledger.coordinator(BOB, at=999 + NOTICE_MS) is Verdict.OK
    with pytest.raises(Outdated):
        past(ledger)


def test_an_unreadable_genesis_of_a_newer_protocol_stops_this_code():
    op = {
        "author": OWNER.did,
        "body": {"name": "x", "owner": OWNER.did, "rules": {"protocol": NEWER}, "tempo": "adagio"},
        "hlc": [T0, 0],
        "mesh": "",
        "prev": 0,
        "type": "mesh.genesis",
        "v": 1,
    }
    genesis = codec.encode(op)
    mesh = mesh_id(genesis)
    subject = f"ap.{mesh}.ctl.genesis"
    opened = open_record(PROTOCOL, mesh, 1, T0, subject, sign_bytes(OWNER, genesis))
    with pytest.raises(Outdated):
        ControlHistory(PROTOCOL, mesh).apply(opened)
    forged = open_record(PROTOCOL, mesh, 1, T0, subject, sign_bytes(ALICE, genesis))
    assert ControlHistory(PROTOCOL, mesh).apply(forged) is Verdict.MALFORMED


def test_newer_rules_may_have_further_fields_outside_the_rules_too():
    ledger = Ledger()
    body = {"rules": {"protocol": NEWER}, "why": "progress"}
    assert put(ledger, rules_bytes(ledger, body=body, extra=[1])) is Verdict.OK
    assert ledger.history.current.rise.protocol == NEWER


JUDGED = {
    "not the owner's": ({"author": ALICE.did}, Verdict.NOT_OWNER),
    "not the newest": ({"hlc": [T0, 0]}, Verdict.EQUIVOCATION),
    "before the newest": ({"hlc": [T0 - 1, 0]}, Verdict.STALE),
    "ahead of its commit": ({"hlc": [T0 + 3_001, 0]}, Verdict.DRIFT),
    "without its reason": ({"deps": [[1, "blake3:" + "0" * 64]]}, Verdict.MISSING_DEP),
    "another predecessor": ({"prev": 1}, Verdict.PREV),
}


@pytest.mark.parametrize("fields, verdict", JUDGED.values(), ids=JUDGED.keys())
def test_an_announcement_is_judged_as_any_op_is_and_as_newer_code_judges_it(fields, verdict):
    by = ALICE if fields.get("author") == ALICE.did else OWNER
    plain, further = {"protocol": NEWER}, {"protocol": NEWER, "tempo": "adagio"}
    for code, rules in ((PROTOCOL, plain), (PROTOCOL, further), (NEWER_CODE, plain)):
        ledger = Ledger(code)
        before = ledger.history.current
        assert put(ledger, rules_bytes(ledger, rules=rules, **fields), by=by) is verdict
        assert ledger.history.current is before


ONLY_REJECTED = {
    "this protocol": {"rules": {"protocol": PROTOCOL.number, "tempo": "adagio"}},
    "no protocol": {"rules": {"tempo": "adagio"}},
    "a protocol in words": {"rules": {"protocol": "2", "tempo": "adagio"}},
    "a protocol that is true": {"rules": {"protocol": True, "tempo": "adagio"}},
    "a fractional protocol": {"rules": {"protocol": 2.5}},
    "rules that are a list": {"rules": [2]},
    "no body": {"body": None},
    "another mesh": {"mesh": "b" * 16},
    "another type": {"type": "mesh.route"},
}


@pytest.mark.parametrize("fields", ONLY_REJECTED.values(), ids=ONLY_REJECTED.keys())
def test_anything_less_is_only_malformed(fields):
    ledger = Ledger()
    before = ledger.history.current
    assert put(ledger, rules_bytes(ledger, **fields)) is Verdict.MALFORMED
    assert ledger.history.current is before
    assert ledger.coordinator(BOB, at=2_000) is Verdict.OK


def test_unreadable_newer_rules_with_a_bad_signature_are_only_malformed():
    ledger = Ledger()
    assert put(ledger, rules_bytes(ledger), by=ALICE) is Verdict.MALFORMED
    payload = bytearray(sign_bytes(OWNER, rules_bytes(ledger)))
    payload[-40] ^= 1
    subject = f"ap.{ledger.mesh}.ctl.rules"
    assert ledger.append(subject, bytes(payload)) is Verdict.MALFORMED
    cut = rules_bytes(ledger) + b"\n{}"
    assert ledger.append(subject, cut) is Verdict.MALFORMED


@pytest.mark.parametrize("place", ["ctl.route.a", "ctl.coordinator", "ctl.genesis", "ctl.rules.x"])
def test_unreadable_newer_rules_in_another_place_are_only_malformed(place):
    ledger = Ledger()
    verdict = put(ledger, rules_bytes(ledger), subject=f"ap.{ledger.mesh}.{place}")
    assert verdict is Verdict.MALFORMED


def test_before_genesis_nobody_is_the_owner_who_could_stop_this_code():
    ledger = Ledger()
    draft = rules_bytes(ledger)
    reader = Reader(ledger.mesh, [])
    record = type(ledger.log[0])(
        seq=1,
        commit_ms=T0,
        subject=f"ap.{ledger.mesh}.ctl.rules",
        payload=sign_bytes(OWNER, draft),
    )
    assert reader.judge(record) is Verdict.GENESIS


@BRISK
@given(st.dictionaries(st.sampled_from(["v", "hlc", "prev", "body", "author"]), plain_values))
def test_rules_by_a_stranger_never_stop_this_code_whatever_they_hold(fields):
    ledger = Ledger()
    op_bytes = rules_bytes(ledger, **{**fields, "author": ALICE.did})
    assert not put(ledger, op_bytes, by=ALICE).is_accepted
