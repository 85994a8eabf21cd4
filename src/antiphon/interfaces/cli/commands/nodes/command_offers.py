"""What a worker offers beside its tasks: commands, and on which terms."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from antiphon.interfaces.cli.screen.completion import complete_kind
from antiphon.sdk.defaults import COMMAND_KIND, SLOTS

SlotsOption = Annotated[
    int | None, typer.Option("--slots", min=1, help=f"Jobs at the same time. Default: {SLOTS}.")
]
CommandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--commands",
        metavar="KIND",
        help="Also run commands of this kind, shut in; may be repeated.",
        autocompletion=complete_kind,
        show_default=False,
    ),
]
NetworkOption = Annotated[
    bool,
    typer.Option("--network", help="Let commands have the network, where the mesh grants it."),
]
UnsafeOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run commands as plain processes: each can do whatever this user can.",
    ),
]


class Offered(NamedTuple):
    """What the command line says about commands."""

    kinds: tuple[str, ...] = ()
    network: bool = False
    unsafe: bool = False

    @property
    def for_worker(self) -> dict[str, Any]:
        """The same as arguments of `Mesh.worker`."""
        return {
            "commands": self.kinds,
            "network": self.network,
            "unsafe_no_sandbox": self.unsafe,
        }

    @property
    def in_words(self) -> str:
        """The terms, where they are not the safe ones."""
        words = ", with the network" if self.network else ""
        return words + (", NOT SHUT IN: each can do what this user can" if self.unsafe else "")


def offered(commands: list[str] | None, *, network: bool, unsafe: bool) -> Offered:
    """What was asked for; the terms mean nothing without commands."""
    from antiphon.interfaces.cli.screen.exits import WrongUsage

    if not commands and (network or unsafe):
        option = "--network" if network else "--unsafe-no-sandbox"
        raise WrongUsage(
            f"{option} is about commands, and none are offered",
            hint=f"--commands {COMMAND_KIND}",
        )
    return Offered(tuple(dict.fromkeys(commands or ())), network, unsafe)
