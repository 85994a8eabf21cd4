"""The Typer application: registers every command, and turns errors into exit codes."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated

import typer

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.commands.authority import (
    coordinator,
    delegate,
    revoke,
    route,
    rules,
    who,
)
from antiphon.interfaces.cli.commands.jobs import (
    artifacts,
    cancel,
    get,
    jobs,
    retry,
    show,
    submit,
    watch,
    why,
)
from antiphon.interfaces.cli.commands.jobs import run as run_command
from antiphon.interfaces.cli.commands.mesh import (
    dev,
    doctor,
    init,
    invite,
    join,
    recover,
    up,
    version,
)
from antiphon.interfaces.cli.commands.nodes import node, nodes, worker
from antiphon.interfaces.cli.commands.proofs import export, proof, verify
from antiphon.interfaces.cli.screen.ascii_output import make_readable
from antiphon.interfaces.cli.screen.exits import EPILOG, Exit, WrongUsage, complain

app = typer.Typer(
    name="antiphon",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help comes up in a quarter of the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


@app.callback()
def antiphon(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=version.print_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """A job mesh: submit work on one machine, run it on another.

    \b
    Begin with two terminals:
      antiphon dev
      antiphon submit example.add 2 3
    """  # noqa: D301 - \b keeps the lines apart


for _name, _command in (
    ("dev", dev.dev),
    ("init", init.init),
    ("up", up.up),
    ("invite", invite.invite),
    ("join", join.join),
    ("submit", submit.submit),
    ("run", run_command.run),
    ("jobs", jobs.jobs),
    ("show", show.show),
    ("why", why.why),
    ("get", get.get),
    ("artifacts", artifacts.artifacts),
    ("proof", proof.proof),
    ("export", export.export),
    ("verify", verify.verify),
    ("watch", watch.watch),
    ("cancel", cancel.cancel),
    ("retry", retry.retry),
    ("worker", worker.worker),
    ("node", node.node),
    ("nodes", nodes.nodes),
    ("who", who.who),
    ("delegate", delegate.delegate),
    ("revoke", revoke.revoke),
    ("route", route.route),
    ("coordinator", coordinator.coordinator),
    ("rules", rules.rules),
    ("recover", recover.recover),
    ("doctor", doctor.doctor),
    ("version", version.version),
):
    # After the first word of the command to run, every option is that command's.
    _settings = {"allow_interspersed_args": False} if _name == "run" else None
    app.command(_name, context_settings=_settings)(_command)


def run() -> int:
    """Run the command that was typed; every error becomes a message and an exit code."""
    as_json = _wants_json(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        make_readable(stream)
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    if context is not None and not words():
        print(context.get_help(), file=sys.stderr)  # no command was given
        return Exit.USAGE
    path = context.command_path if context is not None else _typed_command()
    hint = f"{path} --help"
    if re.search(r"No such option: -\d", words()):
        hint = f"put -- before negative numbers: {path} … -- -1"
    return complain(WrongUsage(words(), hint=hint), as_json=as_json)


def _typed_command() -> str:
    """The command that was typed, for errors of Typer's that do not name it."""
    named = {command.name for command in app.registered_commands}
    return " ".join(["antiphon", *(word for word in sys.argv[1:2] if word in named)])


def _wants_json(arguments: list[str]) -> bool:
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    return "--json" in arguments
