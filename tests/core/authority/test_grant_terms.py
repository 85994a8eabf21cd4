"""From what people say to delegations, and back."""

import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.protocol import PROTOCOL
from antiphon.core.ucan import TOP
from antiphon.errors import Malformed
from tests.core.authors import ALICE, OWNER
from tests.core.ucan.principals import holds


def payloads(**said):
    return PROTOCOL.rights.payloads(
        Terms(**said),
        issuer=OWNER.did,
        audience=ALICE.did,
        owner=OWNER.did,
        mesh="m",
        nonce=lambda size: b"n" * size,
    )


def test_claiming_brings_completing_and_scheduling_brings_reading():
    assert [p.cmd for p in payloads(can=("claim",))] == ["/job/claim", "/job/complete"]
    assert [p.cmd for p in payloads(can=("schedule", "read"))] == ["/job/schedule", "/job/read"]
    assert [p.cmd for p in payloads(can=("claim", "all"))] == [TOP]


@pytest.mark.parametrize(
    "kinds, admitted, refused",
    [
        (("*",), ["render.video", "build"], []),
        (("render.*",), ["render.video"], ["render", "build"]),
        (("build",), ["build"], ["build.wheel"]),
        (("build", "render.*"), ["build", "render.video"], ["render", "test"]),
        (("build", "*"), ["test"], []),
    ],
)
def test_kinds_become_policies(kinds, admitted, refused):
    (payload, _) = payloads(can=("claim",), kinds=kinds)
    for kind in admitted:
        assert holds(payload.pol, {"kind": kind})
    for kind in refused:
        assert not holds(payload.pol, {"kind": kind})


def test_end_and_alias_are_carried():
    (payload,) = payloads(can=("read",), until_s=1_800_000_000, alias="gpu-box")
    assert payload.exp == 1_800_000_000
    assert payload.meta == {"alias": "gpu-box", "mesh": "m"}


@pytest.mark.parametrize(
    "said",
    [
        {"can": ("fly",)},
        {"can": ()},
        {"can": ("read",), "kinds": ()},
        {"can": ("read",), "kinds": ("render*",)},
        {"can": ("read",), "alias": "a" * 65},
        {"can": ("read",), "alias": "two\nlines"},
    ],
)
def test_what_makes_no_sense_is_refused_with_words(said):
    with pytest.raises(Malformed):
        payloads(**said)


@pytest.mark.parametrize(
    "command, typed",
    [
        ("/job/read", "antiphon delegate box --can read --kind a.b"),
        ("/job/schedule", "antiphon delegate box --can schedule --kind a.b"),
        ("/job/complete", "antiphon delegate box --can claim --kind a.b"),
        ("/memory/read", "antiphon delegate box --can read-memory --kind a.b"),
        ("/memory/write", "antiphon delegate box --can memory --kind a.b"),
        ("/lock/take", "antiphon delegate box --can lock --kind a.b"),
        ("/plan/put", "antiphon delegate box --can all --kind a.b"),
    ],
)
def test_what_grants_a_command_is_the_word_that_grants_the_least_besides(command, typed):
    assert PROTOCOL.rights.how_to_grant(command, "a.b", "box") == typed
    word = PROTOCOL.rights.word_for(command)
    granted = [p.cmd for p in payloads(can=(word,))]
    assert any(command == one or command.startswith(one.rstrip("/") + "/") for one in granted)
