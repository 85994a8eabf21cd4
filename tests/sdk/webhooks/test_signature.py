"""Whoever has a webhook's secret is believed, within its time, and nobody else."""

import hmac
from hashlib import sha256

import pytest

from antiphon.errors import Malformed, Misconfigured, Rejected
from antiphon.sdk.webhooks.hook_file import HookFile, read_hooks
from antiphon.sdk.webhooks.incoming import Incoming
from antiphon.sdk.webhooks.signature import (
    GITHUB,
    OWN,
    TOLERANCE_S,
    check_sender,
    signed_header,
)

SECRET, BODY, NOW = b"a-secret-of-16-bytes", b'{"a": [1, {"b": "c"}]}', 1_790_000_000


def github(body=BODY, secret=SECRET) -> dict[str, str]:
    return {GITHUB: f"sha256={hmac.new(secret, body, sha256).hexdigest()}"}


def own(body=BODY, at=NOW, secret=SECRET) -> dict[str, str]:
    return {OWN: signed_header(secret, body, at)}


def sender(headers, body=BODY, *, plain=False, now=NOW) -> str:
    return check_sender(SECRET, headers, body, now_s=now, plain=plain)


def refused(headers, **how) -> str:
    with pytest.raises(Rejected) as problem:
        sender(headers, **how)
    return problem.value.reason


def test_a_signature_is_good_for_its_body_its_secret_and_its_time():
    assert sender(own()) == sender(own(), now=NOW + TOLERANCE_S)
    assert refused(own(), body=BODY + b" ") == "signature"
    assert refused(own(secret=b"another-secret-16")) == "signature"
    assert refused(own(), now=NOW + TOLERANCE_S + 1) == "late"
    assert refused(own(at=NOW + TOLERANCE_S + 1)) == "late"
    moved = own()[OWN].replace(str(NOW), str(NOW + 1))
    assert refused({OWN: moved}) == "signature", "the time is signed, too"
    for text in ("", "t=1", "v1=aa", f"t={NOW},v1={'0' * 63}", "t=٣,v1=" + "0" * 64):
        assert refused({OWN: text}) == "signature"


def test_a_request_that_is_signed_anew_is_the_same_by_its_id():
    def told(at: int, same: str, body=BODY) -> str:
        return sender({OWN: signed_header(SECRET, body, at, same)}, body)

    assert told(NOW, "one") == told(NOW + 9, "one")
    assert len({told(NOW, "one"), told(NOW, "two"), told(NOW, "one", b"{}"), sender(own())}) == 4
    header = signed_header(SECRET, BODY, NOW, "one")
    for changed in (header.replace("one", "two"), header.replace(",id=one", "")):
        assert refused({OWN: changed}) == "signature"
    assert refused({OWN: own()[OWN].replace(",v1", ",id=one,v1")}) == "signature"


def test_the_form_of_github_is_accepted_and_is_the_same_for_the_same_body():
    assert sender(github()) == sender(github())
    assert sender(github()) != sender(github(b"{}"), b"{}")
    assert refused(github(), body=b"{}") == "signature"
    assert refused({GITHUB: github()[GITHUB].removeprefix("sha256=")}) == "signature"
    # A wrong signature is not made good by the secret beside it.
    assert refused({GITHUB: "sha256=0", "x-gitlab-token": SECRET.decode()}, plain=True)


def test_the_secret_itself_is_enough_only_where_the_hook_says_so():
    for headers in (
        {"authorization": f"Bearer {SECRET.decode()}"},
        {"x-gitlab-token": SECRET.decode()},
    ):
        assert sender(headers, plain=True) == ""
        assert refused(headers) == "signature"
    assert refused({"authorization": "Bearer "}, plain=True) == "signature"
    assert refused({}) == "signature"


FILE = """
[ship]
secret = "a-secret-of-16-bytes"
submit = "release.ship"
args = ["a.1.b", "a"]

[paid]
secret = "a-secret-of-16-bytes"
answer = "payment"
"""


def written(path, text=FILE, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def test_arguments_are_taken_from_the_body_by_their_places(tmp_path):
    incoming = Incoming(HookFile(written(tmp_path / "webhooks.toml")))
    wanted = incoming.wanted("ship", own(), BODY, now_s=NOW)
    assert (wanted.hook.submit, wanted.args) == ("release.ship", ("c", [1, {"b": "c"}]))
    assert wanted.key
    for body in (b"{}", b"[]", b"1", b'{"a": [1]}', b"{", b"\xff", b"[" * 5_000):
        with pytest.raises(Malformed):
            incoming.wanted("ship", own(body), body, now_s=NOW)
    body = b'{"question": "ab", "answer": {"n": 1}}'
    assert incoming.wanted("paid", own(body), body, now_s=NOW).answer.answer == {"n": 1}
    with pytest.raises(Malformed):
        incoming.wanted("paid", own(), BODY, now_s=NOW)
    with pytest.raises(Rejected) as missing:
        incoming.wanted("nothing", own(), BODY, now_s=NOW)
    assert missing.value.reason == "signature", "which webhooks there are is nobody's business"


def test_the_file_is_read_again_when_it_changes_and_what_is_wrong_changes_nothing(tmp_path):
    path = tmp_path / "webhooks.toml"
    hooks = HookFile(path)
    assert hooks.hook("ship") is None
    written(path)
    assert hooks.hook("ship").submit == "release.ship"
    written(path, FILE + "[")
    assert hooks.hook("ship").submit == "release.ship"
    path.unlink()
    assert hooks.hook("ship") is None
    assert "a-secret" not in repr(read_hooks(written(path)))


@pytest.mark.parametrize(
    "text, mode",
    [
        (FILE, 0o644),
        ("[", 0o600),
        ("[ship]\nsubmit = 'a'", 0o600),
        ("[ship]\nsecret = 'short'\nsubmit = 'a'", 0o600),
        ("[ship]\nsecret = '0123456789abcdef'", 0o600),
        ("[ship]\nsecret = '0123456789abcdef'\nsubmit = 'a'\nanswer = 'b'", 0o600),
        ("[ship]\nsecret = '0123456789abcdef'\nsubmit = 'Not A Kind'", 0o600),
        ("[ship]\nsecret = '0123456789abcdef'\nsubmit = 'a'\nmore = 1", 0o600),
        ("#" * 70_000, 0o600),
    ],
)
def test_a_file_that_is_wrong_or_that_others_can_read_is_refused(tmp_path, text, mode):
    with pytest.raises(Misconfigured):
        read_hooks(written(tmp_path / "webhooks.toml", text, mode))
