"""A nonce says where it comes from, and so whether somebody may ask for the same job again."""

import pytest

from antiphon.core import manifest
from antiphon.core.record import codec
from antiphon.errors import Malformed

PLAIN = {"command": ["true"], "timeout": 1}


def with_nonces(*origins: str) -> manifest.Manifest:
    given = [
        {"kind": "nonce", "nonce": f"{at:016x}", "origin": origin}
        for at, origin in enumerate(origins)
    ]
    return manifest.author({**PLAIN, "inputs": given})


@pytest.mark.parametrize("origin", ["random", "child", "replica", "retry", "plan"])
def test_a_job_that_was_made_for_one_time_is_not_asked_for_again(origin):
    assert not manifest.is_asked_again(with_nonces(origin))
    assert not manifest.is_asked_again(with_nonces("key", origin))


def test_content_without_a_nonce_and_keys_are_asked_for_again():
    assert manifest.is_asked_again(manifest.author(PLAIN))
    assert manifest.is_asked_again(with_nonces("key"))


def test_a_nonce_that_a_person_wrote_without_an_origin_is_a_key():
    written = manifest.author({**PLAIN, "inputs": [{"kind": "nonce", "nonce": "0" * 16}]})
    assert written == with_nonces("key")
    assert manifest.is_asked_again(written)


def test_the_origin_is_hashed_and_each_has_one_form():
    ids = {manifest.job_id(with_nonces(one)) for one in ("key", "random", "plan")}
    assert len(ids) == 3
    assert b"origin" not in codec.encode(with_nonces("key"))


def test_another_origin_is_refused():
    with pytest.raises(Malformed):
        with_nonces("elsewhere")
