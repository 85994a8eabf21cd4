"""Open files that a child process inherits, all closed together in every case."""

from __future__ import annotations

import os
from contextlib import suppress
from types import TracebackType
from typing import Self


class OpenFiles:
    """Small contents as anonymous files in memory: nothing touches a disk, nothing has a name."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of them, as the child will know them."""
        return tuple(self._numbers)

    def holding(self, content: bytes) -> int:
        """A file with this content, at its beginning."""
        number = os.memfd_create("antiphon")
        self._numbers.append(number)
        left = memoryview(content)
        while left:
            left = left[os.write(number, left) :]
        os.lseek(number, 0, os.SEEK_SET)
        return number

    def close(self) -> None:
        """Close what is still open; safe twice."""
        while self._numbers:
            with suppress(OSError):
                os.close(self._numbers.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
