"""Signed HTTP requests: what a signature covers, what is remembered, and the page's vectors."""

import json
import re
from base64 import b64encode, urlsafe_b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.bus.http_request import (
    MAX_AGE_MS,
    Asked,
    SeenRequests,
    open_request,
    sign_request,
)
from antiphon.core.bus.signed_message import Message, Refused
from antiphon.core.clock.hlc import pack
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest
from antiphon.runtime.identity.key_files import SeedKeyring

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "wire.md"
KEY = SeedKeyring(bytes(range(32)))
MESH = "lfihxgz6wbrgewxl"
ASKED = Asked("POST", "/v1/records?x=1", b"body")
NOW_MS = 1_763_158_000_000


def signed(asked: Asked = ASKED, nonce: str = "n" * 16) -> str:
    return sign_request(asked, (KEY.did, KEY.sign), mesh=MESH, at_ms=NOW_MS, nonce=nonce)


def test_a_request_names_who_signed_it():
    found = open_request(ASKED, signed(), mesh=MESH, now_ms=NOW_MS)
    assert isinstance(found, Message)
    assert found.author == KEY.did


@pytest.mark.parametrize(
    "asked, mesh, late_ms, reason",
    [
        (ASKED._replace(method="GET"), MESH, 0, Refused.SUBJECT),
        (ASKED._replace(target="/v1/records?x=2"), MESH, 0, Refused.SUBJECT),
        (ASKED._replace(body=b"other"), MESH, 0, Refused.SIGNATURE),
        (ASKED, "a" * 16, 0, Refused.MESH),
        (ASKED, MESH, MAX_AGE_MS + 1, Refused.STALE),
        (ASKED, MESH, -MAX_AGE_MS - 1, Refused.STALE),
    ],
)
def test_it_is_valid_for_nothing_else(asked, mesh, late_ms, reason):
    assert open_request(asked, signed(), mesh=mesh, now_ms=NOW_MS + late_ms) is reason


@given(st.text(max_size=200))
def test_whatever_a_header_says_nothing_is_raised(text):
    for header in (text, f"Antiphon {text}"):
        assert isinstance(open_request(ASKED, header, mesh=MESH, now_ms=NOW_MS), Refused)


def test_a_request_is_remembered_until_its_time_is_refused_anyway():
    seen = SeenRequests()
    assert seen.note("p", "k", "n1", NOW_MS) == "new"
    assert seen.note("p", "k", "n1", NOW_MS + 2 * MAX_AGE_MS) == "seen"
    assert seen.note("p", "k2", "n1", NOW_MS) == "new", "each key chooses for itself"
    assert seen.note("p", "k", "n1", NOW_MS + 2 * MAX_AGE_MS + 1) == "new"


def test_a_party_that_fills_its_memory_leaves_others_theirs():
    seen = SeenRequests(each=2, in_all=5)
    assert [seen.note("p", "k", f"{n}", NOW_MS) for n in range(3)] == ["new", "new", "full"]
    assert [seen.note("q", "k2", f"{n}", NOW_MS) for n in range(2)] == ["new", "new"]
    later_ms = NOW_MS + 2 * MAX_AGE_MS + 1
    assert [seen.note("p", "k", f"{n}", later_ms) for n in range(3)] == ["new", "new", "full"]


def test_the_vectors_of_the_page_are_what_this_code_makes():
    block = re.search(r"## Test vectors.*?```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    given = json.loads(block[1])
    assert given["did"] == KEY.did
    message = given["request"]["message"]
    method, _, target = message["subject"].partition(" ")
    header = sign_request(
        Asked(method, target),
        (KEY.did, KEY.sign),
        mesh=message["mesh"],
        at_ms=message["at_ms"],
        nonce=message["body"]["nonce"],
    )
    sent = json.loads(urlsafe_b64decode(header.split()[1] + "=="))
    assert sent == {"message": message, "sigs": [given["request"]["sig"]]}
    op = codec.encode(given["op"])
    assert digest(op) == f"blake3:{given['op_blake3']}"
    assert b64encode(KEY.sign(signing.OP_TYPE, op)).decode() == given["op_sig"]
    assert pack(tuple(given["op"]["hlc"])) == given["fence"]
