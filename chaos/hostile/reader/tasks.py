"""The task of the worker in `chaos hostile --only reader`: it takes no time itself."""

from __future__ import annotations

from antiphon import Mesh

KIND = "build.image"

mesh = Mesh.open()


@mesh.task(KIND)
async def build(number: int) -> int:
    return number
