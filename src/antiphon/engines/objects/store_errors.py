"""What a store's errors mean here.

Their texts quote whole answers, with key ids, signatures and addresses in them. Only the store's
error code and the status are kept, and the original error is not chained.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Final, TypeVar

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from antiphon.engines.objects.credentials import HINT
from antiphon.errors import AntiphonError, EngineDenied, Misconfigured, Unavailable

T = TypeVar("T")

_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS: Final = re.compile(r"\bstatus code: ([1-5][0-9]{2})\b")


async def asked(answer: Awaitable[T], shown_as: str) -> T:
    """A store's answer; `FileNotFoundError` where it has no such object."""
    failure: Exception = FileNotFoundError("no such object")
    try:
        return await answer
    except FileNotFoundError:
        pass
    except (BaseError, OSError) as problem:
        failure = _refusal(problem, shown_as)
    raise failure


async def stored(answer: Awaitable[object], shown_as: str) -> None:
    """A store's answer to a write: only the bucket can be missing there."""
    try:
        await asked(answer, shown_as)
    except FileNotFoundError:
        pass
    else:
        return
    raise Misconfigured(
        f"the bucket of {shown_as} does not exist", hint="create it, or change ANTIPHON_BLOBS"
    )


def _refusal(problem: Exception, shown_as: str) -> AntiphonError:
    words = str(problem)
    found = [*_STATUS.findall(words)[:1], *_CODE.findall(words)[:1]]
    said = f" ({' '.join(found)})" if found else ""
    if isinstance(problem, (PermissionDeniedError, UnauthenticatedError)):
        return EngineDenied(f"{shown_as} refused this process{said}", hint=HINT)
    return Unavailable(
        f"the request to {shown_as} failed{said}",
        hint="is it reachable from here, and does this process have keys for it?",
    )
