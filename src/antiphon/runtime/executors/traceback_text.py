"""The traceback of a handler's error as a short text, for the log and for whoever waits.

It has files, lines, function names and source lines, and never the value of a variable. Of a deep
stack the innermost calls are kept. Paths are cut to what follows the module search path, so they
do not name a machine's directories. Credentials in messages are replaced: those in an address,
and the values of environment variables that are named like secrets.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Final

MAX_BYTES: Final = 4096
"""Of the whole text."""
MAX_FRAMES: Final = 16
"""Of one error, the innermost."""
MAX_ERRORS: Final = 6
"""Causes, contexts and members of groups together."""
MAX_LINE: Final = 200
"""Letters of one source line, and of one error's message."""
LEFT_OUT: Final = "  ... outer calls are left out"
HIDDEN: Final = "***"
_LEAST_SECRET: Final = 6
"""Shorter values are no secrets; replacing them would only spoil the text."""

_OUR_FOLDER: Final = f"{Path(__file__).parents[1]}{os.sep}"
_CARRIERS: Final = ("asyncio", "concurrent", "threading.py", "contextlib.py")
"""Modules of the standard library that only pass a call on to the handler."""
_IN_ADDRESS: Final = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|_KEY\Z|_DSN\Z", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """The text without credentials that this process knows of."""
    for name, value in os.environ.items():
        if len(value) >= _LEAST_SECRET and value in text and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    return _IN_ADDRESS.sub(HIDDEN, text)


def traceback_text(error: BaseException) -> str:
    """The error's traceback, with those of its causes; empty if it was raised by no handler."""
    blocks = list(_blocks(error, set()))
    if not any(has_frames for _, has_frames in blocks):
        return ""
    lines = [line for block, _ in blocks for line in block]
    text = without_secrets("\n".join(lines))
    return _last(text.encode("utf-8", "replace").decode())


def _blocks(error: BaseException, seen: set[int]) -> Iterator[tuple[list[str], bool]]:
    """Each error as lines, its cause before it, and whether it has calls to show."""
    if id(error) in seen or len(seen) >= MAX_ERRORS:
        return
    seen.add(id(error))
    before, words = error.__cause__, "which caused:"
    if before is None and not error.__suppress_context__:
        before, words = error.__context__, "and while that was handled:"
    if before is not None:
        earlier = list(_blocks(before, seen))
        if earlier:
            yield from earlier
            yield [words], False
    frames = _frames(error.__traceback__)
    yield [*frames, _headline(error)], bool(frames)
    if isinstance(error, BaseExceptionGroup):
        for number, member in enumerate(error.exceptions, 1):
            inner = list(_blocks(member, seen))
            if inner:
                yield [f"member {number} of {len(error.exceptions)}:"], False
                yield from inner


def _headline(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        message = ""
    first = message[:MAX_LINE] + ("..." if len(message) > MAX_LINE else "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _frames(raised: TracebackType | None) -> list[str]:
    """The calls from the handler inwards, two lines each."""
    places = [(frame.f_code, line) for frame, line in walk_tb(raised)]
    while places and _only_carries(places[0][0]):
        del places[0]
    cut = places[-MAX_FRAMES:]
    lines = [LEFT_OUT] if len(cut) < len(places) else []
    for code, number in cut:
        lines.append(f'  File "{_place(code.co_filename)}", line {number}, in {code.co_name}')
        source = linecache.getline(code.co_filename, number).strip()
        if source:
            lines.append(f"    {source[:MAX_LINE]}")
    return lines


def _only_carries(code: CodeType) -> bool:
    name = code.co_filename
    if name.startswith((_OUR_FOLDER, "<frozen")):
        return True
    return _place(name).split("/", 1)[0] in _CARRIERS


def _place(file: str) -> str:
    """The file's path as its module is found: without what differs from machine to machine."""
    known = [(os.path.abspath(one) if one else os.getcwd()) + os.sep for one in sys.path]  # noqa: PTH100, PTH109 - compared with file names of code, which are texts
    matching = [len(one) for one in known if file.startswith(one)]
    if matching:
        return PurePath(file[max(matching) :]).as_posix()
    return "/".join(PurePath(file).parts[-2:])


def _last(text: str) -> str:
    """The end of a text, from the beginning of a line, that fits into `MAX_BYTES`."""
    raw = text.encode()
    if len(raw) <= MAX_BYTES:
        return text
    room = MAX_BYTES - len(LEFT_OUT) - 1
    kept = raw[-room:].decode("utf-8", "ignore")
    return LEFT_OUT + "\n" + kept.partition("\n")[2]
