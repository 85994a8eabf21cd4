"""What the worker of `chaos hostile --only reader` answers: nothing that takes time itself."""

from __future__ import annotations

from antiphon import Mesh

KIND = "build.image"

mesh = Mesh.open()


@mesh.task(KIND)
async def build(number: int) -> int:
    return number
