"""What decoding the bytes of others can raise."""

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""All of it: a text that is not UTF-8, or is nested too deeply, is no error of msgspec's own."""
