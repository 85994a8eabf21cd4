"""ASCII output: a substitute for each of our symbols, an escape for any other character.

A stream whose encoding lacks a symbol gets the substitute. A terminal whose locale is `C` gets
only ASCII, although Python would write UTF-8 to it. A pipe keeps its bytes as they are: they may
be data.
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
    "●": "O",
    "⊘": "-",
    "·": "-",
    "…": "...",
    "→": "->",
    "×": "x",
    "—": "-",
    "├": "|",
    "└": "`",
    "│": "|",
    "─": "-",
    "▁": "_",
    "▂": ".",
    "▃": ",",
    "▄": "-",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "█": "#",
}
ERRORS: Final = "antiphon-plain"
"""The name under which our codec error handler is registered."""
_PLAIN: Final = frozenset({"C", "POSIX"})
_COERCED: Final = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
"""What Python itself sets as LC_CTYPE where the locale is C: no user chose it."""


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
    """Make sure that everything written to a stream can be displayed there."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    if stream.isatty() and _locale() in _PLAIN:
        stream.reconfigure(encoding="ascii", errors=ERRORS)
    else:
        stream.reconfigure(errors=ERRORS)


def _locale() -> str:
    """The locale that the user set for characters; empty if none is set."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = os.environ.get(name, "")
        if value and not (name == "LC_CTYPE" and value in _COERCED):
            return value
    return ""
