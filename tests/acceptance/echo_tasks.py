"""Tasks that send back what they are given, and say what it was: for workers and their callers."""

from typing import Any

from antiphon import AsyncTask, Mesh, Task
from tests.runtime.values.typed_values import TYPES, described

MODULE = """
from antiphon import Mesh
from tests.acceptance.echo_tasks import register

mesh = Mesh.open()
register(mesh)
"""
"""A worker's module; its `PYTHONPATH` must lead here."""


def register(mesh: Mesh) -> dict[str, Task[[Any], tuple[Any, str]]]:
    """A task for each type, by the type's name, and one for large values."""
    tasks = {name: _echo(mesh, name, annotation) for name, (annotation, _) in TYPES.items()}
    return {**tasks, "turn": mesh.task("echo.turn", timeout="10m")(turn)}


def turn(data: bytes) -> bytes:
    return data[::-1]


def _echo(mesh: Mesh, name: str, annotation: Any) -> AsyncTask[[Any], tuple[Any, str]]:
    async def echo(value: Any) -> tuple[Any, str]:
        return value, described(value)

    echo.__annotations__ = {"value": annotation, "return": tuple[annotation, str]}
    return mesh.task(f"echo.{name}")(echo)
