"""The operator's token: where it comes from, and who else can read it."""

import stat

import pytest

from antiphon.errors import Misconfigured
from antiphon.sdk.http.operator_token import FILE, operator_token

GIVEN = "given-by-the-environment"


def test_a_token_that_is_given_needs_no_file(tmp_path):
    token = operator_token(tmp_path, GIVEN)
    assert token.matches(GIVEN)
    assert not token.matches(GIVEN + " ")
    assert not token.matches("")
    assert not list(tmp_path.iterdir())
    assert GIVEN not in repr(token) + str(vars(token))


def test_otherwise_one_is_made_once_for_this_user_only(tmp_path):
    first = operator_token(tmp_path, None)
    file = tmp_path / FILE
    secret = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(secret) == 64
    assert first.matches(secret)
    assert operator_token(tmp_path, None).matches(secret), "the next start finds it"
    assert not operator_token(tmp_path / "another", None).matches(secret)


def test_a_file_that_others_can_read_is_refused(tmp_path):
    operator_token(tmp_path, None)
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(Misconfigured) as refused:
        operator_token(tmp_path, None)
    assert refused.value.hint == f"chmod 600 {tmp_path / FILE}"


@pytest.mark.parametrize("text", ["", "short\n", "x" * 257, "two lines of\ntext, which is none"])
def test_a_file_that_holds_no_token_is_refused_and_not_quoted(tmp_path, text):
    file = tmp_path / FILE
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(Misconfigured, match="is not a token") as refused:
        operator_token(tmp_path, None)
    assert "which is none" not in refused.value.message


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text(GIVEN)
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Misconfigured, match="cannot be read"):
        operator_token(tmp_path, None)


def test_an_owner_may_write_a_token_of_their_own(tmp_path):
    file = tmp_path / FILE
    file.write_text(f"{GIVEN}\n")
    file.chmod(0o600)
    assert operator_token(tmp_path, None).matches(GIVEN)
