"""The options for the commands that a worker runs: kinds, network, sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer

from antiphon.interfaces.cli.screen.command import Options
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.sdk.defaults import COMMAND_KIND, SLOTS

SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, help=f"Jobs at the same time. Default: {SLOTS}.")
]


@dataclass(frozen=True)
class OfferOptions(Options):
    """Which commands a worker runs, as typed."""

    commands: list[str] | None = typer.Option(
        None,
        metavar="KIND",
        help="Also run commands of this kind, in a sandbox; may be repeated.",
        autocompletion=complete_kind,
        show_default=False,
    )
    network: bool = typer.Option(
        False, "--network", help="Allow commands to use the network, if the mesh grants it."
    )
    unsafe_no_sandbox: bool = typer.Option(
        False,
        "--unsafe-no-sandbox",
        help="Run commands without a sandbox: each can do what this user can.",
    )

    def offered(self, usual: str = "") -> Offered:
        """The same, checked: the terms need a kind of commands; `usual` is one if none is typed."""
        kinds = tuple(dict.fromkeys(self.commands or ()))
        if not kinds and (self.network or self.unsafe_no_sandbox):
            if not usual:
                option = "--network" if self.network else "--unsafe-no-sandbox"
                raise WrongUsage(f"{option} needs --commands", hint=f"--commands {COMMAND_KIND}")
            kinds = (usual,)
        return Offered(kinds, self.network, self.unsafe_no_sandbox)


class Offered(NamedTuple):
    """Which commands a worker runs, and on which terms."""

    kinds: tuple[str, ...] = ()
    network: bool = False
    unsafe: bool = False

    @property
    def for_worker(self) -> dict[str, Any]:
        """The same as arguments of `Mesh.worker`."""
        terms = {"network": self.network, "unsafe_no_sandbox": self.unsafe}
        return {"commands": self.kinds, **terms}

    @property
    def in_words(self) -> str:
        """The terms that are not the safe defaults."""
        words = ", with network access" if self.network else ""
        return words + (
            ", WITHOUT A SANDBOX: each can do what this user can" if self.unsafe else ""
        )
