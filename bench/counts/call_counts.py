"""Counts what the product does while a profile runs: calls, and signatures made and verified.

Calls are those of the product's own functions, and those that they make to functions in C and in
other packages. What the memory engine, the virtual clock and this benchmark do is left out: a real
mesh has none of it.
"""

from __future__ import annotations

import cProfile
from pathlib import Path
from types import CodeType
from typing import Final

from msgspec import Struct

import antiphon

_PACKAGE: Final = str(Path(antiphon.__file__).parent) + "/"
_LEFT_OUT: Final = (f"{_PACKAGE}engines/memory/", f"{_PACKAGE}testing/")
_SIGNS: Final = "crypto_sign"
_VERIFIES: Final = "crypto_sign_open"


class CallCounts(Struct, frozen=True):
    calls: int
    signed: int
    verified: int


def counted(profile: cProfile.Profile) -> CallCounts:
    """What happened while it ran."""
    calls = signed = verified = 0
    for entry in profile.getstats():
        name = entry.code
        if not isinstance(name, CodeType):
            continue
        if name.co_filename.endswith("nacl/bindings/crypto_sign.py"):
            signed += entry.callcount if name.co_name == _SIGNS else 0
            verified += entry.callcount if name.co_name == _VERIFIES else 0
        if _is_ours(name):
            calls += entry.callcount
            calls += sum(
                called.callcount
                for called in entry.calls or ()
                if not isinstance(called.code, CodeType) or not _is_of_package(called.code)
            )
    return CallCounts(calls, signed, verified)


def _is_of_package(code: CodeType) -> bool:
    return code.co_filename.startswith(_PACKAGE)


def _is_ours(code: CodeType) -> bool:
    return _is_of_package(code) and not code.co_filename.startswith(_LEFT_OUT)
