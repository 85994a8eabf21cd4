"""The working group's own data: read, written back byte for byte, and agreed with."""

import base64
import json
from pathlib import Path

import libipld
import pytest

from antiphon.core.ucan import Chain, ChainVerdict, Policy, open_envelope, seal_envelope
from antiphon.core.ucan.did import did_of
from antiphon.core.ucan.signatures import is_signed
from tests.core.ucan.principals import Principal, holds

VECTORS = Path(__file__).parents[2] / "vectors" / "ucan"
GO = sorted(VECTORS.glob("go-*.dagjson"))
RUST = json.loads((VECTORS / "rs-delegation.json").read_text())
POLICIES = json.loads((VECTORS / "policy.json").read_text())


def from_dag_json(value):
    if isinstance(value, dict):
        if value.keys() == {"/"}:
            text = value["/"]["bytes"]
            return base64.b64decode(text + "=" * (-len(text) % 4))
        return {key: from_dag_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [from_dag_json(each) for each in value]
    return value


def read_back(raw):
    """Everything a vector is held to, whatever it says."""
    delegation = open_envelope(raw)
    assert is_signed(delegation)
    assert seal_envelope(delegation.payload, delegation.signature).raw == raw
    return delegation


def test_all_vectors_are_here():
    assert [path.name for path in GO] == [
        "go-new.dagjson",
        "go-powerline.dagjson",
        "go-root.dagjson",
    ]
    assert len(RUST["valid"]) == 1


@pytest.mark.parametrize("path", GO, ids=lambda path: path.stem)
def test_a_go_delegation_is_read_and_written_back(path):
    envelope = from_dag_json(json.loads(path.read_text()))
    payload = read_back(libipld.encode_dag_cbor(envelope)).payload
    written = envelope[1]["ucan/dlg@1.0.0-rc.1"]
    assert payload.iss == written["iss"]
    assert payload.aud == written["aud"]
    assert payload.subject == written.get("sub")
    assert payload.cmd == "/foo/bar"
    assert payload.pol.source == written["pol"]
    assert payload.meta == {"foo": "fooo", "bar": "barr"}
    assert payload.exp == 7_258_118_400
    assert payload.nonce == written["nonce"]


def test_a_go_root_admits_what_its_policy_says():
    path = VECTORS / "go-root.dagjson"
    link = open_envelope(libipld.encode_dag_cbor(from_dag_json(json.loads(path.read_text()))))
    chain = Chain.of(link.payload.iss, [link])
    arguments = {
        "status": "draft",
        "reviewer": [{"email": "bob@example.com"}],
        "tags": ["sport", "news"],
    }
    judge = chain.judge
    assert judge(link.payload.aud, "/foo/bar/baz", arguments, [1_763_000_000]).ok
    arguments["tags"] = ["sport"]
    outcome = judge(link.payload.aud, "/foo/bar/baz", arguments, [1_763_000_000])
    assert outcome.verdict is ChainVerdict.POLICY


@pytest.mark.parametrize("vector", RUST["valid"], ids=lambda vector: vector["name"])
def test_the_shared_fixture_is_read_and_written_back(vector):
    delegation = read_back(base64.b64decode(vector["token"]))
    payload, wanted = delegation.payload, vector["envelope"]["payload"]
    assert delegation.cid == vector["cid"]
    assert delegation.signature == base64.b64decode(vector["envelope"]["signature"])
    assert payload.nonce == base64.b64decode(wanted["nonce"])
    for name in ("iss", "aud", "sub", "cmd", "exp"):
        assert getattr(payload, name) == wanted[name]
    assert payload.pol.source == wanted["pol"]


def test_the_fixtures_principals_are_the_ones_in_its_delegation():
    from nacl import bindings

    dids = {}
    for name, text in RUST["principals"].items():
        seed = base64.b64decode(text)[2:]  # after the two bytes of the multicodec
        dids[name] = did_of(bindings.crypto_sign_seed_keypair(seed)[0])
    payload = RUST["valid"][0]["envelope"]["payload"]
    assert (payload["iss"], payload["aud"]) == (dids["bob"], dids["carol"])
    assert Principal("bob").did not in dids.values()


CASES = [
    pytest.param(policy, case["args"], verdict == "valid", id=f"{verdict}-{number}-{nth}")
    for verdict in ("valid", "invalid")
    for number, case in enumerate(POLICIES[verdict])
    for nth, policy in enumerate(case["policies"])
]


@pytest.mark.parametrize("policy, arguments, satisfied", CASES)
def test_every_policy_case_is_agreed_with(policy, arguments, satisfied):
    assert holds(Policy(policy), arguments) is satisfied
