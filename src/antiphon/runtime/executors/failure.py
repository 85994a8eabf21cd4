"""Turns an exception into a failure: the name and message for the log, and the wanted retry."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs.ops import Failure
from antiphon.core.policy.attempt_end import Fault
from antiphon.errors import GiveUp, HandlerDecision, RetryLater
from antiphon.runtime.executors.executor import Ran
from antiphon.runtime.executors.handler_exits import HandlerExit
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.executors.traceback_text import traceback_text, without_secrets

MAX_MESSAGE: Final = 2_000
MAX_NAME: Final = 255
WITHOUT_TEXT: Final = {
    "CancelledError": "the task's own code cancelled it, and not its worker",
    "GeneratorExit": "the task raised it",
    "KeyboardInterrupt": "the task raised it",
}
"""What is said of errors that mostly have no message."""


def failure_of(error: BaseException) -> Failure:
    """What the log keeps of an exception: its name, its message and a short traceback.

    A `Retry` or `GiveUp` that was raised from another error gets that error's name.
    """
    if isinstance(error, HandlerExit) and error.__cause__ is not None:
        error = error.__cause__
    told = _subject_of(error)
    message = _message_of(error)
    encodable = without_secrets(message).encode("utf-8", "replace").decode()
    return Failure(
        name=type(told).__name__[:MAX_NAME],
        message=encodable[:MAX_MESSAGE],
        traceback=traceback_text(error),
    )


def fault_of(error: BaseException) -> Fault:
    """What an exception means for its job."""
    asked_ms = round(error.after_s * 1000) if isinstance(error, RetryLater) else None
    names = type(_subject_of(error)).__mro__
    return Fault(
        failure=failure_of(error),
        lineage=tuple(kind.__name__ for kind in names if kind is not object),
        is_final=isinstance(error, GiveUp),
        asked_ms=asked_ms,
        reason="later" if asked_ms is not None else "error",
    )


def failed_with(error: BaseException) -> Ran:
    """The result of a run that ended in an exception."""
    return Ran(runner=python_runner(), fault=fault_of(error))


class GivingUp:
    """Arguments that do not fit, or a result: another attempt would fail the same way."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Nothing is wrong yet."""

    def __exit__(self, _: object, wrong: BaseException | None, __: object) -> None:
        """A `TypeError` becomes a `GiveUp`."""
        if isinstance(wrong, TypeError):
            raise GiveUp(str(wrong)) from wrong


given_up: Final = GivingUp()


def _message_of(error: BaseException) -> str:
    if isinstance(error, SystemExit) and error.code is None:
        return "0"
    return str(error) or WITHOUT_TEXT.get(type(error).__name__, "")


def _subject_of(error: BaseException) -> BaseException:
    if isinstance(error, HandlerDecision | HandlerExit) and error.__cause__ is not None:
        return error.__cause__
    return error
