"""The options for the commands that a worker runs: kinds, network, sandbox."""

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
        help="Also run commands of this kind, in a sandbox; may be repeated.",
        autocompletion=complete_kind,
        show_default=False,
    ),
]
NetworkOption = Annotated[
    bool,
    typer.Option("--network", help="Allow commands to use the network, if the mesh grants it."),
]
UnsafeOption = Annotated[
    bool,
    typer.Option(
        "--unsafe-no-sandbox",
        help="Run commands without a sandbox: each can do what this user can.",
    ),
]


class Offered(NamedTuple):
    """Which commands a worker runs, and on which terms."""

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
        """The terms that are not the safe defaults."""
        words = ", with network access" if self.network else ""
        return words + (
            ", WITHOUT A SANDBOX: each can do what this user can" if self.unsafe else ""
        )


def offered(commands: list[str] | None, *, network: bool, unsafe: bool) -> Offered:
    """The given options, checked: the terms need at least one kind of commands."""
    from antiphon.interfaces.cli.screen.exits import WrongUsage

    if not commands and (network or unsafe):
        option = "--network" if network else "--unsafe-no-sandbox"
        raise WrongUsage(f"{option} needs --commands", hint=f"--commands {COMMAND_KIND}")
    return Offered(tuple(dict.fromkeys(commands or ())), network, unsafe)
