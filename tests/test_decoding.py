"""Bytes that are no text, or nested without end, are refused like all others that are wrong."""

import pytest

from antiphon.core.messages.register import read_note
from antiphon.engines.nats.member.relay_protocol import place_in
from antiphon.errors import AntiphonError, Corrupt, Malformed
from antiphon.runtime.backup import manifest
from antiphon.runtime.backup.key_file import unseal
from antiphon.runtime.messages.message_desk import MessageDesk
from antiphon.runtime.messages.message_requests import PUT, read_answer

BENT = [
    b'{"error":"\xff","mesh":"\xff","receiver":"\xff","id":"\xff","form":"\xff","salt":"\xff"}',
    b'{"more":' + b"[" * 100_000,
]


@pytest.mark.parametrize("data", BENT)
def test_answers_of_a_gate_are_refused(data):
    for read in (read_answer, place_in):
        with pytest.raises(AntiphonError):
            read(data)


@pytest.mark.parametrize("data", BENT)
async def test_requests_to_a_gate_are_refused(data):
    with pytest.raises(Malformed, match="does not understand"):
        await MessageDesk.__new__(MessageDesk).answer("user", "party", PUT, data)


@pytest.mark.parametrize("data", BENT)
def test_files_are_refused(data):
    with pytest.raises(Corrupt, match="damaged"):
        manifest.read(data + b'\n{"sig":""}')
    with pytest.raises(AntiphonError):
        unseal(data, "passphrase")
    assert read_note(data) is None
