"""Commands: paths like `/job/claim`, where a shorter path covers longer ones.

A command is a string that `parse_command` accepts: it begins with a slash, has no empty segment,
no slash at the end (except `/` itself, the top command) and no capital letter.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from antiphon.core.ucan.dag_cbor import malformed

TOP: Final = "/"
MAX_LETTERS: Final = 256
# What counts as a capital letter must not depend on the interpreter's Unicode tables, which change
# with each release: nodes would disagree. Every Python has the frozen tables of Unicode 3.2.
_category: Final = unicodedata.ucd_3_2_0.category
_CAPITALS: Final = frozenset({"Lu", "Lt"})


def parse_command(text: str) -> str:
    """`text`, if it is a command; otherwise `Malformed`."""
    if text == TOP:
        return text
    if len(text) > MAX_LETTERS:
        raise malformed(
            f"a command of {len(text)} characters is too long; the limit is {MAX_LETTERS}"
        )
    if not text.startswith("/"):
        raise malformed(f"command {text!r} does not begin with a slash")
    if text.endswith("/") or "//" in text:
        raise malformed(f"command {text!r} has an empty segment")
    if any(_category(letter) in _CAPITALS for letter in text):
        raise malformed(f"command {text!r} is not in lower case")
    return text


def covers(command: str, other: str) -> bool:
    """Whether `command` covers `other`: itself, and everything below it."""
    return command in {TOP, other} or other.startswith(command + "/")
