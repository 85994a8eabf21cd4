"""`antiphon submit`: call a job and, unless told otherwise, wait for its answer.

A job is called by its kind with arguments, or by a manifest in a file. The result goes to standard
output and nothing else does, so that it can be piped; the job's id, its progress and what may be
wrong go to standard error.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli import life
from antiphon.interfaces.cli.authored import (
    STANDARD_INPUT,
    Authored,
    Call,
    bounds,
    by_manifest,
    kind_of,
    read,
    run_authored,
)
from antiphon.interfaces.cli.awaiting import Wish, answer
from antiphon.interfaces.cli.completion import complete_kind
from antiphon.interfaces.cli.durations import seconds, some_seconds, whole_seconds
from antiphon.interfaces.cli.exits import WrongUsage
from antiphon.interfaces.cli.options import HomeOption, JsonOption, open_mesh
from antiphon.interfaces.cli.run_command import (
    DetachOption,
    InputsOption,
    OutputsOption,
    parse_input,
)

if TYPE_CHECKING:
    from antiphon.sdk.handles import JobHandle
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.tasks import CallOptions

FILES: Final = (".yaml", ".yml", ".json")
"""How the name of a manifest's file ends; no kind that ends so can be called from here."""
TIMEOUT_S: Final = 3600


def complete_what(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds that were called before, and manifests lying here."""
    try:
        here = sorted(path.name for path in Path.cwd().iterdir() if path.suffix in FILES)
    except OSError:
        here = []
    kinds = complete_kind(context, incomplete)
    return [*kinds, *(name for name in here if name.startswith(incomplete))]


def submit(  # noqa: PLR0913 - each option is one argument
    what: Annotated[
        str,
        typer.Argument(
            metavar="KIND|FILE",
            help="What to call, such as example.add; or a manifest (.yaml, .yml, .json, or - for"
            " standard input).",
            show_default=False,
            autocompletion=complete_what,
        ),
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="Arguments as JSON; a plain word is text. Put -- before negative numbers.",
            show_default=False,
        ),
    ] = None,
    *,
    kw: Annotated[
        list[str] | None,
        typer.Option("--kw", metavar="NAME=JSON", help="An argument by name; may be repeated."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="The kind of a manifest's job: who may run it, and where. Needed, unless its"
            " command is a handler (@example.add), whose kind it then is.",
            autocompletion=complete_kind,
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run a manifest anew: a nonce makes it another job."),
    ] = False,
    alias: Annotated[
        bool,
        typer.Option("--alias", help="Give a manifest's job a ULID: a name, not part of its id."),
    ] = False,
    urgency: Annotated[
        int,
        typer.Option("--class", min=0, max=2, help="0 urgent, 1 normal, 2 whenever."),
    ] = 1,
    once: Annotated[
        bool,
        typer.Option("--once", help="The same call is the same job: run it once, ever."),
    ] = False,
    timeout: Annotated[
        int | None,
        typer.Option(
            parser=whole_seconds,
            metavar="TIME",
            help="How long one attempt may run: 90s, 15m, 2h. Default: 1h; a manifest has its own.",
        ),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Tries before it counts as failed. Default: the mesh's rule."),
    ] = None,
    retry_base: Annotated[
        float,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            show_default="1s",
            help="Pause before the second try; doubled before each further one.",
        ),
    ] = 1.0,
    retry_cap: Annotated[
        float,
        typer.Option(
            parser=seconds, metavar="TIME", show_default="1m", help="The longest such pause."
        ),
    ] = 60.0,
    give_up_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ERROR",
            help="An error that is not worth another try, such as ValueError; may be repeated.",
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            parser=some_seconds,
            metavar="TIME",
            help="How long a silent worker keeps the job. Default: the mesh's rule.",
        ),
    ] = None,
    requires: Annotated[
        list[str] | None,
        typer.Option(
            "--requires",
            metavar="LABEL",
            help="A label that a worker must have, such as gpu=a100 or gpu; may be repeated.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the result, or print the job's id.")
    ] = True,
    wait_timeout: Annotated[
        float | None,
        typer.Option(
            parser=seconds, metavar="TIME", help="Stop waiting after this long; the job goes on."
        ),
    ] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    detach: DetachOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Call a job and print its result.

    The same manifest is the same job: submitted again, its result is there at once.

    \b
    Examples:
      antiphon submit example.add 2 3
      antiphon submit example.echo '{"a": [1, 2]}'
      antiphon submit example.sleep --kw seconds=5 --no-wait
      antiphon submit job.yaml --kind build
      antiphon submit job.yaml --kind build --again
    """  # noqa: D301 - \b keeps the lines apart
    is_manifest = what == STANDARD_INPUT or what.lower().endswith(FILES)
    _refuse_mixture(
        is_manifest,
        {"ARGS": args, "--kw": kw, "--timeout": timeout, "--once": once},
        {
            "--kind": kind,
            "--again": again,
            "--alias": alias,
            "--input": inputs,
            "--output": outputs,
        },
    )

    from antiphon.sdk.commands import with_outputs
    from antiphon.sdk.tasks import CallOptions, Retry

    options = CallOptions(
        once=once,
        timeout_s=timeout or TIMEOUT_S,
        urgency=urgency,  # type: ignore[arg-type]
        retry=Retry(
            attempts=attempts,
            base_s=retry_base,
            cap_s=retry_cap,
            give_up_on=tuple(give_up_on or ()),
        ),
        lease_ms=None if lease is None else round(lease * 1000),
        requires=tuple(requires or ()),
    )
    notes: dict[str, str] = {}
    wait = wait and not detach
    if is_manifest:
        job = read(what)
        kind = kind_of(job, what, kind)
        words = ["antiphon", "submit", what, *(("--kind", kind) if job.handler is None else ())]
        anew = f"{shlex.join([*words, '--again'])} runs it as a new job"
        wish = Wish(wait, wait_timeout, as_json, anew, notes)
        authored = Authored(kind, with_outputs(job, outputs or []), again=again, alias=alias)
        if job.handler is None:
            files = [parse_input(text) for text in inputs or ()]
            return life.run(run_authored(open_mesh(home), authored, files, options, wish))
        if inputs or outputs:
            raise WrongUsage("a handler takes arguments, not files", hint="leave out --input")
        call = by_manifest(authored, options, notes)
        return life.run(_submit(open_mesh(home), call, wish))
    call = _by_kind(what, args or [], kw or [], options)
    wish = Wish(wait, wait_timeout, as_json, "leave out --once to call it anew", notes)
    return life.run(_submit(open_mesh(home), call, wish))


def _refuse_mixture(
    is_manifest: bool, for_kinds: dict[str, object], for_manifests: dict[str, object]
) -> None:
    """A manifest says what to run, whole; a kind is called with arguments."""
    for name, given in (for_kinds if is_manifest else for_manifests).items():
        if not given:
            continue
        if is_manifest:
            raise WrongUsage(
                f"{name} has no place beside a manifest, which says all of what is run",
                hint="write it into the manifest; --again runs the same one anew",
            )
        raise WrongUsage(
            f"{name} is for manifests, and this is a kind",
            hint=f"a manifest's file ends in {', '.join(FILES)}",
        )


# --- by kind ----------------------------------------------------------------------------------


def _by_kind(what: str, args: list[str], kw: list[str], options: CallOptions) -> Call:
    if "/" in what:
        raise WrongUsage(
            f"{what!r} is neither a kind nor a manifest",
            hint=f"a manifest's file ends in {', '.join(FILES)}",
        )
    values = [parse_value(text) for text in args]
    named = dict(_parse_named(text) for text in kw)

    async def call(mesh: Mesh) -> JobHandle[Any]:
        return await mesh.call(what, values, named, options=options)

    return call


def parse_value(text: str) -> Any:
    """A JSON value, or the text itself where it is plainly a word."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as problem:
        if text[:1] in {"{", "[", '"'}:
            raise WrongUsage(
                f"{text!r} looks like JSON and is not: {problem}",
                hint="put single quotes around JSON in a shell: '{\"a\": 1}'",
            ) from problem
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are not JSON, whatever Python thinks: words


def _parse_named(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise WrongUsage(f"{text!r} is not NAME=JSON", hint="such as --kw seconds=5")
    return name, parse_value(value)


# --- calling ----------------------------------------------------------------------------------


async def _submit(mesh: Mesh, call: Call, wish: Wish) -> int:
    async with mesh:
        try:
            handle = await call(mesh)
        except Rejected as refused:
            refused.hint = refused.hint or bounds(refused.reason, mesh)
            raise
        return await answer(mesh, handle, wish)
