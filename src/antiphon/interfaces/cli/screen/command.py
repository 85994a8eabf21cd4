'''How a command is declared: one function with its options, which returns what to print.

    @command
    async def cancel(mesh: Mesh, job: JobArgument, *, reason: ReasonOption = "") -> Answer:
        """Cancel a job that has not ended."""
        ended = await …
        return Answer({"job": ended.id}, lambda: out.say("it is cancelled"))

Every command has `--home` and `--json` besides its own options. Parameters with these names are
given to it, and are no options: `mesh`, which is open while the function runs; `home`, the state
directory that was typed; `as_json`, for commands that print while they run; `stop`, for commands
that run until they are told to stop.

A plain function does its part before the event loop starts, such as asking for a key, and returns
the answer or a coroutine of it.
'''

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, get_type_hints

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh, print_json

GIVEN: Final = frozenset({"mesh", "home", "as_json", "stop"})
SHARED: Final = (
    inspect.Parameter("home", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=HomeOption),
    inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
    ),
)


class Answer(NamedTuple):
    """What a command found out or did: for programs, for people, and as an exit code."""

    facts: Any
    """One JSON object, or a list of them: one line for each."""
    words: Callable[[], object]
    """Prints the same for a person."""
    code: int = Exit.OK


def fields(thing: object, *names: str) -> dict[str, Any]:
    """These attributes of a thing, for its facts."""
    return {name: getattr(thing, name) for name in names}


Told = Answer | int | None
Work = Callable[..., Any]
"""Returns `Told`, or a coroutine of it."""


class Options:
    """Options that several commands share: a dataclass whose fields are the options.

    A command that has a parameter of such a type has all of its options.
    """


def command(work: Work) -> Callable[..., int]:
    """Make a command of a function: read its options, run it, print what it returns."""
    declared = inspect.signature(work).parameters
    bundles: dict[str, tuple[type[Options], list[str]]] = {}
    typed: list[inspect.Parameter] = []
    for name, hint in _hints(work, declared.keys() - GIVEN).items():
        if isinstance(hint, type) and issubclass(hint, Options):
            inner = _fields(hint)
            bundles[name] = hint, [one.name for one in inner]
            typed += inner
        else:
            typed.append(declared[name].replace(annotation=hint))

    @functools.wraps(work)
    def run(*, home: Path | None, as_json: bool, **options: Any) -> int:
        for name, (bundle, inner) in bundles.items():
            options[name] = bundle(**{one: options.pop(one) for one in inner})
        given = {"home": home, "as_json": as_json}
        options |= {name: value for name, value in given.items() if name in declared}
        return _run(work, declared.keys() & {"mesh", "stop"}, options, home, as_json=as_json)

    # Typer reads these.
    run.__signature__ = inspect.Signature([*sorted(typed, key=lambda one: one.kind), *SHARED])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def _run(
    work: Work, wanted: set[str], options: dict[str, Any], home: Path | None, *, as_json: bool
) -> int:
    async def with_mesh(**more: Any) -> Told:
        async with open_mesh(home) as mesh:
            told: Told = await work(mesh=mesh, **more, **options)
            return told

    begin = with_mesh if "mesh" in wanted else functools.partial(work, **options)
    if "stop" in wanted:
        return command_loop.run(serve(lambda stop: begin(stop=stop), as_json=as_json))
    told: Any = begin()
    return tell(command_loop.run(told) if inspect.iscoroutine(told) else told, as_json=as_json)


async def serve(
    work: Callable[[command_loop.Stop], Coroutine[Any, Any, Told]], *, as_json: bool
) -> int:
    """Run what keeps running until it is told to stop, and print what it returns."""

    async def served(stop: command_loop.Stop) -> int:
        return tell(await work(stop), as_json=as_json)

    return await command_loop.serving(served)


def tell(told: Told, *, as_json: bool) -> int:
    """Print what a command returned; its exit code."""
    if not isinstance(told, Answer):
        return told or Exit.OK
    if not as_json:
        told.words()
    else:
        for one in told.facts if isinstance(told.facts, list) else [told.facts]:
            print_json(one)
    return told.code


def _hints(work: Work, names: set[str]) -> dict[str, Any]:
    """The types of these parameters. What else it names may be known to type checkers only."""
    written = {name: hint for name, hint in work.__annotations__.items() if name in names}
    return get_type_hints(
        SimpleNamespace(__annotations__=written), work.__globals__, include_extras=True
    )


def _fields(bundle: type[Options]) -> list[inspect.Parameter]:
    """The options of a bundle, as parameters of a function."""
    hints = get_type_hints(bundle, include_extras=True)
    defaults = {one.name: one.default for one in dataclasses.fields(bundle)}  # type: ignore[arg-type]
    # A command's own options first, then those that it shares.
    own_first = dict.fromkeys(
        name for one in bundle.__mro__ for name in vars(one).get("__annotations__", ())
    )
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hints[name]
        )
        for name in own_first
    ]
