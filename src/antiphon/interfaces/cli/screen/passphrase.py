"""A passphrase: typed at a terminal, read from a file, or from standard input. Never an option."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.exits import WrongUsage

MOST_LETTERS: Final = 1024

PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        help="Read the passphrase from this file. Default: ask for it, or standard input.",
        show_default=False,
    ),
]


def ask_passphrase(file: Path | None, *, twice: bool) -> str:
    """The passphrase of a file of keys; a new one is typed twice."""
    if file is not None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as problem:
            raise Misconfigured(f"the passphrase cannot be read from {file}: {problem}") from None
    elif not sys.stdin.isatty():
        text = sys.stdin.read(MOST_LETTERS)
    else:
        text = getpass.getpass("Passphrase: ")
        if twice and getpass.getpass("The same again: ") != text:
            raise WrongUsage("these are two different passphrases", hint="run the command again")
    text = text.rstrip("\r\n")
    if not text:
        raise WrongUsage(
            "there is no passphrase", hint="type one, or name a file with --passphrase-file"
        )
    return text
