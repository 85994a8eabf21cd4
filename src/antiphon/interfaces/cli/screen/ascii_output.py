"""Output for those who read ASCII: a stand-in for every sign of ours, an escape for anything else.

A stream whose encoding lacks a sign gets the stand-in. A terminal in a locale that is set to `C`
gets ASCII alone, although Python would write UTF-8 to it; a pipe keeps its bytes as they are, for
they may be somebody's data.
"""

from __future__ import annotations

import codecs
import io
import os
from typing import Final

STAND_INS: Final = {
    "✓": "+",
    "✗": "x",
    "▶": ">",
    "◆": "*",
    "○": "o",
    "⊘": "-",
    "·": "-",
    "…": "...",
    "→": "->",
    "×": "x",
    "—": "-",
}
ERRORS: Final = "antiphon-plain"
"""The name of our error handler, as streams know it."""
_PLAIN: Final = frozenset({"C", "POSIX"})
_COERCED: Final = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""What Python itself sets as LC_CTYPE where the locale is C: nobody's wish."""


def _stand_in(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    if not any(letter in STAND_INS for letter in text):
        return codecs.backslashreplace_errors(error)
    letters = (
        STAND_INS.get(letter) or letter.encode("ascii", "backslashreplace").decode()
        for letter in text
    )
    return "".join(letters), error.end


codecs.register_error(ERRORS, _stand_in)


def make_readable(stream: object) -> None:
    """See to it that whatever is written to a stream can be read there."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.isatty() and _locale() in _PLAIN:
        stream.reconfigure(encoding="ascii", errors=ERRORS)
    else:
        stream.reconfigure(errors=ERRORS)


def _locale() -> str:
    """The locale that somebody set for characters; empty if nobody did."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = os.environ.get(name, "")
        if value and not (name == "LC_CTYPE" and value in _COERCED):
            return value
    return ""
