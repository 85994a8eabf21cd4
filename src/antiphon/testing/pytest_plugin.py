"""The pytest plugin: a `mesh` fixture for programs that use Antiphon (docs/do/testing.md).

pytest loads it by itself where Antiphon is installed, so it imports nothing until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.testing.tested_mesh import TestedMesh


@pytest.fixture
def mesh() -> Iterator[TestedMesh]:
    """A mesh in memory with a worker, on a clock that jumps: an hour of waiting takes no time."""
    from antiphon.testing.tested_mesh import TestedMesh

    tested = TestedMesh()
    try:
        yield tested
    finally:
        tested.close()
