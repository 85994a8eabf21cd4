"""What running a command means for its job: names of ends, the network, room in a record."""

from types import SimpleNamespace

import pytest
from msgspec import UNSET

from antiphon.core import manifest
from antiphon.core.policy import command_outcome
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record import codec


@pytest.mark.parametrize(
    "reason, code, name",
    [
        ("exited", 1, "exit:1"),
        ("exited", -9, "signal:9"),
        ("timeout", -15, "timeout"),
        ("memory", 137, "memory"),
        ("killed", None, "killed"),
    ],
)
def test_an_end_has_a_name_that_rules_can_match(reason, code, name):
    assert command_outcome.failure_of(reason, code, b"").name == name


def test_success_is_no_failure():
    assert command_outcome.failure_of("exited", 0, b"a warning") is None


def test_a_message_ends_with_the_last_lines_and_stays_short():
    said = b"\xff noise\n" * 1000 + b"\n  the cause  \n\n"
    message = command_outcome.failure_of("exited", 1, said).message
    assert message.startswith("exited with 1: ")
    assert message.endswith("the cause")
    assert len(message) < command_outcome.LAST_WORDS + 40
    assert (
        len(command_outcome.failure_of("exited", 1, b"x" * 5000).message)
        < command_outcome.LAST_WORDS + 40
    )


def test_a_message_has_as_many_of_the_last_lines_as_fit():
    said = b"x" * command_outcome.LAST_WORDS + b"\nreading\nno such file\n"
    message = command_outcome.failure_of("exited", 1, said).message
    assert message == "exited with 1: reading\nno such file"


# --- the network ------------------------------------------------------------------------------


def control(authority, **links):
    metas = {
        cid: SimpleNamespace(payload=SimpleNamespace(meta=meta)) for cid, meta in links.items()
    }
    grants = SimpleNamespace(find=lambda cid, before: metas.get(cid))
    return SimpleNamespace(rules=SimpleNamespace(authority=authority), grants=grants)


YES = {"network": True}


@pytest.mark.parametrize(
    "authority, links, auth, node, words",
    [
        ("chain", {}, (), True, ""),
        ("chain", {}, (), False, "--network"),
        ("chain", {"a": YES, "b": YES}, ("a", "b"), True, ""),
        ("chain", {"a": YES, "b": {}}, ("a", "b"), True, "delegation b"),
        ("chain", {"a": UNSET, "b": YES}, ("a", "b"), True, "delegation a"),
        ("chain", {"a": {"network": 1}}, ("a",), True, "delegation a"),
        ("chain", {}, ("gone",), True, "delegation gone"),
        ("open", {}, ("any",), True, ""),
        ("open", {}, (), False, "--network"),
    ],
)
def test_the_network_is_given_where_node_and_every_link_agree(authority, links, auth, node, words):
    refused = command_outcome.network_refusal(control(authority, **links), auth, node_allows=node)
    assert (words in refused) if words else refused == ""


# --- what is kept -----------------------------------------------------------------------------


def test_inputs_without_a_name_are_called_by_their_place():
    content = manifest.author(
        {
            "command": ["true"],
            "timeout": 1,
            "inputs": [
                {"kind": "nonce", "nonce": "0" * 16},
                {"kind": "blobptr", "algo": "blake3", "hash": "1" * 64},
                {"kind": "blobptr", "algo": "blake3", "hash": "2" * 64, "name": "b", "size": 7},
            ],
        }
    )
    assert [(one.name, one.size) for one in command_outcome.inputs_of(content)] == [
        ("input-2", None),
        ("b", 7),
    ]


def test_only_plain_names_can_be_missing():
    assert command_outcome.missing_outputs(["a", "b/*", "c?"], ["b/x"]) == ["a"]


@pytest.mark.parametrize("length", [1, 40, 255])
def test_whatever_is_said_to_fit_does_fit_into_a_record(length):
    inputs = tuple(
        command_outcome.CommandInput(f"{at:05}{'i' * 40}", "blake3:" + "0" * 64, None)
        for at in range(150)
    )
    count = 1
    while command_outcome.room_for_text([f"{at:0{length}}" for at in range(count)], inputs) >= 0:
        count += 10
    names = [f"{at:0{length}}" for at in range(count - 10)]
    room = command_outcome.room_for_text(names, inputs)
    outputs = [
        Output(
            name=name,
            type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            stored=Stored(hash="blake3:" + "0" * 64, size=2**50, sha256="0" * 64),
        )
        for name in names
    ]
    listed = sum(len(codec.encode(one.name)) + 100 for one in inputs)
    assert len(outputs) <= 1024
    whole = len(codec.encode(outputs)) + listed + room
    assert whole < codec.MAX_OP_BYTES - 8 * 1024
