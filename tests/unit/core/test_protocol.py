"""A protocol that this code does not have stops it; nothing less does (SPEC §4.1)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import codec
from antiphon.core.control import ControlHistory
from antiphon.core.ids import mesh_id
from antiphon.core.reasons import Reason
from antiphon.core.records import open_record
from antiphon.core.rules import PROTOCOL
from antiphon.errors import Misconfigured, Outdated
from tests.unit.core.authors import ALICE, BOB, OWNER, sign_bytes
from tests.unit.core.ledger import T0, Ledger, Reader
from tests.unit.core.strategies import BRISK, plain_values

NEWER = PROTOCOL + 1


def rules_bytes(ledger, *, rules=None, **fields):
    """A `mesh.rules` op of the future, canonical by hand."""
    op = {
        "auth": [],
        "author": OWNER.did,
        "body": {"rules": {"protocol": NEWER, "tempo": "adagio"} if rules is None else rules},
        "deps": [],
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


def test_readable_rules_of_a_newer_protocol_stop_this_code():
    ledger = Ledger()
    before = ledger.history.current
    with pytest.raises(Outdated) as stop:
        ledger.rules(protocol=NEWER)
    assert f"protocol {NEWER}" in stop.value.message
    assert "upgrade" in stop.value.hint
    assert isinstance(stop.value, Misconfigured)
    assert ledger.history.current is before


@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"at": 5_000, "stamp": 0}, Reason.DRIFT),
        ({"prev": 7}, Reason.PREV),
        ({"at": 0}, Reason.EQUIVOCATION),
        ({"at": -1}, Reason.STALE),
    ],
    ids=str,
)
def test_readable_newer_rules_that_do_not_take_effect_are_only_rejected(how, verdict):
    assert Ledger().rules(protocol=NEWER, how=how) is verdict


def test_readable_newer_rules_by_anyone_else_are_only_rejected():
    assert Ledger().rules(ALICE, protocol=NEWER) is Reason.NOT_OWNER


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
    with pytest.raises(Outdated):
        put(ledger, rules_bytes(ledger, rules=rules))


def test_newer_rules_that_contradict_themselves_by_our_reading_stop_it_too():
    with pytest.raises(Outdated):
        Ledger().rules(protocol=NEWER, attempts=50, attempts_max=1)


def test_an_unreadable_genesis_of_a_newer_protocol_stops_this_code():
    op = {
        "auth": [],
        "author": OWNER.did,
        "body": {"name": "x", "owner": OWNER.did, "rules": {"protocol": NEWER}, "tempo": "adagio"},
        "deps": [],
        "hlc": [T0, 0],
        "mesh": "",
        "prev": 0,
        "type": "mesh.genesis",
        "v": 1,
    }
    genesis = codec.encode(op)
    mesh = mesh_id(genesis)
    subject = f"ap.{mesh}.ctl.genesis"
    entry = open_record(mesh, 1, T0, subject, sign_bytes(OWNER, genesis))
    with pytest.raises(Outdated):
        ControlHistory(mesh).apply(entry)
    forged = open_record(mesh, 1, T0, subject, sign_bytes(ALICE, genesis))
    assert ControlHistory(mesh).apply(forged) is Reason.MALFORMED


def test_newer_rules_may_have_further_fields_outside_the_rules_too():
    ledger = Ledger()
    body = {"rules": {"protocol": 3}, "why": "progress"}
    with pytest.raises(Outdated):
        put(ledger, rules_bytes(ledger, body=body, extra=[1]))


ONLY_REJECTED = {
    "not the owner's": {"author": ALICE.did},
    "not the newest": {"hlc": [T0, 0]},
    "before the newest": {"hlc": [T0 - 1, 0]},
    "another predecessor": {"prev": 1},
    "this protocol": {"rules": {"protocol": 1, "tempo": "adagio"}},
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
    by = ALICE if fields.get("author") == ALICE.did else OWNER
    assert put(ledger, rules_bytes(ledger, **fields), by=by) is Reason.MALFORMED
    assert ledger.history.current is before
    assert ledger.coordinator(BOB, at=2_000) is Reason.OK


def test_unreadable_newer_rules_with_a_bad_signature_are_only_malformed():
    ledger = Ledger()
    assert put(ledger, rules_bytes(ledger), by=ALICE) is Reason.MALFORMED
    payload = bytearray(sign_bytes(OWNER, rules_bytes(ledger)))
    payload[-5] ^= 1
    subject = f"ap.{ledger.mesh}.ctl.rules"
    assert ledger.append(subject, bytes(payload)) is Reason.MALFORMED
    cut = rules_bytes(ledger) + b"\n{}"
    assert ledger.append(subject, cut) is Reason.MALFORMED


@pytest.mark.parametrize("place", ["ctl.route.a", "ctl.coordinator", "ctl.genesis", "ctl.rules.x"])
def test_unreadable_newer_rules_in_another_place_are_only_malformed(place):
    ledger = Ledger()
    verdict = put(ledger, rules_bytes(ledger), subject=f"ap.{ledger.mesh}.{place}")
    assert verdict is Reason.MALFORMED


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
    assert reader.judge(record) is Reason.MALFORMED


@BRISK
@given(st.dictionaries(st.sampled_from(["v", "hlc", "prev", "body", "author"]), plain_values))
def test_rules_by_a_stranger_never_stop_this_code_whatever_they_hold(fields):
    ledger = Ledger()
    op_bytes = rules_bytes(ledger, **{**fields, "author": ALICE.did})
    assert not put(ledger, op_bytes, by=ALICE).is_accepted
