"""Options that all commands share (`--home`, `--json`), opening the mesh, and short ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh
    from antiphon.settings import Settings

_typed_home: list[Path | None] = []


def _noted(home: Path | None) -> Path | None:
    _typed_home[:] = [home]
    return home


def typed_home() -> Path | None:
    """The state directory that was typed, for options that ask the mesh while they are read."""
    return _typed_home[0] if _typed_home else None


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="PATH",
        envvar="ANTIPHON_HOME",
        show_envvar=False,
        is_eager=True,  # read before all others
        callback=_noted,
        help="State directory. Default: ANTIPHON_HOME, or the nearest .antiphon.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_mesh(home: Path | None, *, role: str = "client", offline: bool = False) -> Mesh:
    """The mesh of this directory; an error before anything connects if there is none.

    With `offline`, it opens also while the engine cannot be reached.
    """
    from antiphon.sdk.mesh import Mesh, StateDirectory

    found = StateDirectory.find(home)
    found.mesh()
    return Mesh.open(home=found.path, role=role, offline=offline)


def load_settings(*, usual_level: str = "") -> Settings:
    """Load the settings and configure logging by them.

    `usual_level` is what a command logs where the settings say nothing.
    """
    from antiphon.settings import is_set, load
    from antiphon.telemetry import configure

    settings = load()
    is_chosen = is_set("log_level") or not usual_level
    configure(settings.log_level if is_chosen else usual_level, settings.log_format)
    return settings


def print_json(value: Any) -> None:
    """One JSON object on one line of standard output."""
    print(json.dumps(value, ensure_ascii=True), flush=True)


def short(identifier: str) -> str:
    """A job id as it is shown to people: its beginning."""
    return identifier[:8]


def short_node(did: str) -> str:
    """A node id as it is shown to people: its end, where keys differ."""
    return did[-8:]
