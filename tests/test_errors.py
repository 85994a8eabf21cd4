"""What every error of ours has in common: it says what to do, wherever it is seen."""

import copy
import pickle
import traceback

import pytest

from antiphon import errors
from antiphon.errors import (
    After,
    AntiphonError,
    CircuitOpen,
    JobFailed,
    Misconfigured,
    PartlySubmitted,
    RateLimited,
    RetryLater,
    WaitExhausted,
)


class Handle:
    def job_key(self):
        return ("a.b", "0" * 64)


WITH_MORE_ARGUMENTS = {
    CircuitOpen: lambda: CircuitOpen("stopped", retry_s=2.5, hint="wait"),
    RateLimited: lambda: RateLimited("too much", retry_s=2.5),
    PartlySubmitted: lambda: PartlySubmitted("some", position=3, submitted=[1, 2], hint="go on"),
    WaitExhausted: lambda: WaitExhausted("it waited", what="io", on="disk"),
    RetryLater: lambda: RetryLater(4.5, "soon"),
    After: lambda: After([Handle()]),
}
EVERY = [
    one
    for one in map(errors.__dict__.get, errors.__all__)
    if isinstance(one, type) and issubclass(one, AntiphonError)
]


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_traceback_shows_the_hint_once():
    error = Misconfigured("the door is shut", hint="open it")
    assert printed(error).count("try: open it") == 1
    assert str(error) == "the door is shut"


def test_a_hint_that_changes_is_shown_as_it_is_now():
    error = JobFailed("it failed", hint="antiphon show 1", traceback="at line 3")
    error.add_note("mine")
    error.hint = "antiphon retry 1"
    text = printed(error)
    assert "antiphon show 1" not in text
    assert text.count("antiphon retry 1") == 1
    assert "at line 3" in text
    assert "mine" in text
    error.hint = ""
    assert "try:" not in printed(error)


def test_an_error_without_a_hint_has_no_empty_line_for_it():
    assert printed(Misconfigured("so it is")).strip().endswith("Misconfigured: so it is")


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_is_the_same_after_a_pickle_or_a_copy(kind, again):
    error = WITH_MORE_ARGUMENTS.get(kind, lambda: kind("it went wrong"))()
    error.hint = error.hint or "try that"
    other = again(error)
    assert type(other) is kind
    assert (str(other), other.hint) == (str(error), error.hint)
    assert other.__dict__.keys() == error.__dict__.keys()
    assert printed(other).count(f"try: {error.hint}") == 1
    other.hint = "something else"
    assert printed(error).count(f"try: {error.hint}") == 1
