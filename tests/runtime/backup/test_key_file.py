"""The file of keys: only its passphrase opens it, and no byte of it may change."""

import pytest

from antiphon.errors import Corrupt, Misconfigured
from antiphon.runtime.backup import key_file
from antiphon.runtime.backup.key_file import KeyFile, seal, unseal

SEED = b"a" * 32
KEYS = KeyFile(mesh="m", made_ms=7, files={"keys/owner.key": SEED})


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(key_file, "OPS", 1)
    monkeypatch.setattr(key_file, "MEMORY_BYTES", 8192)


def test_what_was_sealed_comes_back_with_its_passphrase():
    assert unseal(seal(KEYS, "correct horse"), "correct horse") == KEYS


def test_another_passphrase_does_not_open_it():
    with pytest.raises(Corrupt, match="passphrase"):
        unseal(seal(KEYS, "correct horse"), "battery staple")


def test_a_short_passphrase_is_refused():
    with pytest.raises(Misconfigured, match="at least 8"):
        seal(KEYS, "1234567")


def test_the_keys_are_neither_in_the_file_nor_in_what_is_printed():
    sealed = seal(KEYS, "correct horse")
    assert SEED not in sealed
    assert SEED.decode() not in repr(KEYS)
    assert seal(KEYS, "correct horse") != sealed


def test_every_byte_of_it_counts():
    sealed = seal(KEYS, "correct horse")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(Corrupt):
            unseal(bytes(changed), "correct horse")


def test_a_file_that_asks_for_too_much_memory_is_refused_before_it_is_tried():
    sealed = seal(KEYS, "correct horse")
    with pytest.raises(Corrupt, match="not a file of keys"):
        unseal(sealed.replace(b"8192", b"99999999999999"), "correct horse")
