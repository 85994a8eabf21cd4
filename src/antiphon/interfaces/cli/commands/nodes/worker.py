"""`antiphon worker`: runs jobs for a module's tasks, and commands, until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.http_options import (
    HttpOptions,
    http_address,
    say_http,
    serve_http,
)
from antiphon.interfaces.cli.screen.options import load_settings, open_mesh, print_json, short_node
from antiphon.interfaces.cli.screen.terminal import counted, err, out
from antiphon.interfaces.cli.shared.command_offers import Offered, OfferOptions, SlotsOption
from antiphon.interfaces.cli.shared.task_modules import find_mesh
from antiphon.sdk.defaults import COMMAND_KIND

if TYPE_CHECKING:
    from antiphon.sdk.worker import Worker

COUNT_EVERY_S: Final = 0.5


ModuleArgument = Annotated[
    str,
    typer.Argument(
        metavar="[MODULE]",
        help="A dotted name or a path to a .py file; add :NAME to pick one of its meshes.",
        show_default=False,
    ),
]
LabelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="What this worker has that some jobs require, such as gpu=a100; may be repeated.",
        show_default=False,
    ),
]
WeightOption = Annotated[
    int | None,
    typer.Option(
        "--weight", min=1, help="Its share of jobs under rendezvous selection. Default: 1."
    ),
]
RatesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="KIND=RATE",
        help="Start at most this many jobs of a kind: example.add=10/s; may be repeated.",
        show_default=False,
    ),
]
PostsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--post-to",
        metavar="HOST",
        help="Run http.post jobs: requests to this host, such as hooks.example or"
        " http://127.0.0.1:8000; may be repeated. An address or a network permits what is not"
        " public.",
        show_default=False,
    ),
]


@command
async def worker(
    home: Path | None,
    as_json: bool,
    stop: Stop,
    module: ModuleArgument = "",
    *,
    commands: OfferOptions,
    slots: SlotsOption = None,
    label: LabelsOption = None,
    weight: WeightOption = None,
    rate: RatesOption = None,
    post_to: PostsOption = None,
    http: HttpOptions,
) -> Answer:
    """Run jobs: the tasks of a module, and commands.

    Commands run in a sandbox: no network, no files but their own, and limits on everything.

    The first Ctrl-C or SIGTERM finishes running jobs or gives them back; the second ends at once.
    SIGUSR1 says that the machine goes to sleep: jobs go back at once. SIGUSR2: it is awake again.
    """
    offer = commands.offered()
    if not module and not offer.kinds and not post_to:
        raise WrongUsage(
            "a worker needs something to run: a module with tasks, or commands",
            hint=f"antiphon worker MODULE, or antiphon worker --commands {COMMAND_KIND}",
        )
    rates = dict(_parse_rate(text) for text in rate or ())
    if home is not None:
        os.environ["ANTIPHON_HOME"] = str(home)  # so that the module's Mesh.open() finds it

    return await run_jobs(
        stop,
        module,
        offer,
        as_json=as_json,
        slots=slots,
        http=http,
        post_to=post_to or (),
        traits={"labels": label, "weight": weight, "rates": rates},
    )


def _parse_rate(text: str) -> tuple[str, str]:
    kind, equals, rate = text.partition("=")
    if not (kind and equals and rate):
        raise WrongUsage(f"{text!r} is not KIND=RATE", hint="such as --rate example.add=10/s")
    return kind, rate


async def run_jobs(
    stop: Stop,
    module: str,
    offer: Offered,
    *,
    as_json: bool,
    slots: int | None = None,
    http: HttpOptions | None = None,
    post_to: Sequence[str] = (),
    traits: dict[str, Any] | None = None,
) -> Answer:
    """Run jobs until told to stop."""
    from antiphon.sdk.worker import claimable

    settings, traits = load_settings(usual_level="info"), traits or {}
    serving = settings, http_address(http or HttpOptions(http="", http_exposed=False), settings)
    mesh = find_mesh(module) if module else open_mesh(None)
    if post_to:
        from antiphon.sdk.webhooks.outgoing import offer_posts

        offer_posts(mesh, post_to, secrets=settings.secrets or mesh.home.path / "secrets")
    _check_rated({*mesh.kinds, *offer.kinds}, traits.get("rates", {}))
    async with AsyncExitStack() as stack:
        countdown = stack.enter_context(Countdown())
        await stack.enter_async_context(mesh)
        answers = mesh.worker(slots=slots, **traits, **offer.for_worker)
        working = await stack.enter_async_context(answers)
        where = await serve_http(stack, serving, mesh, working)
        did = working.did
        kinds = working.kinds
        allowed = claimable(working)
        if as_json:
            told = {"event": "ready", "node": did, "kinds": kinds, "may_claim": allowed}
            print_json({**told, "pid": os.getpid(), **({"http": where} if where else {})})
        else:
            out.say(
                f"worker {short_node(did)} on mesh {mesh.id} runs"
                f" {', '.join(allowed) or 'nothing yet'}"
                f" ({counted(slots or settings.slots, 'slot')}{offer.in_words}); Ctrl-C stops it"
            )
            _say_forbidden([kind for kind in kinds if kind not in allowed])
            if where:
                say_http(mesh, where, settings)
        with naps(working):
            await stop.wait()
        say_draining(working.held, settings.drain_s, as_json=as_json)
        due = working.done + working.held
        if not as_json:
            countdown.begin(lambda: working.held, settings.drain_s)
    left = due - working.done
    rest = f"; {counted(left, 'job')} not finished, left for other workers" if left else ""
    return Answer(
        {"event": "stopped", "done": working.done},
        lambda: out.say(f"stopped after {counted(working.done, 'job')}{rest}"),
    )


@contextmanager
def naps(working: Worker) -> Iterator[None]:
    """Let a worker sleep on SIGUSR1 and wake on SIGUSR2, as a machine's suspend hook sends them."""
    loop, going = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def sleep() -> None:
        task = asyncio.ensure_future(working.pause("sleep", within_s=0.0))
        going.add(task)
        task.add_done_callback(going.discard)

    loop.add_signal_handler(signal.SIGUSR1, sleep)
    loop.add_signal_handler(signal.SIGUSR2, lambda: working.resume("sleep"))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
        loop.remove_signal_handler(signal.SIGUSR2)


def _say_forbidden(kinds: list[str]) -> None:
    """Warn about kinds that it has tasks for but may not claim."""
    if kinds:
        err.say(f"! this machine may not claim {', '.join(kinds)} until the owner permits it")
        err.say("  try: ", "antiphon who, which shows what it may do")


def _check_rated(kinds: set[str], rates: dict[str, str]) -> None:
    """Reject a rate for a kind that this worker does not run: it is a typing mistake."""
    for kind in sorted(rates.keys() - kinds):
        raise WrongUsage(
            f"--rate {kind}={rates[kind]} has no effect: this worker does not run {kind}",
            hint=f"it runs {', '.join(sorted(kinds))}",
        )


class Countdown:
    """While a worker stops: shows how many jobs it still waits for, and for how long."""

    def __init__(self) -> None:
        self._counting: asyncio.Task[None] | None = None

    def begin(self, held: Callable[[], int], drain_s: float) -> None:
        """Show the countdown until the block ends."""
        self._counting = asyncio.ensure_future(self._count(held, time.monotonic() + drain_s))

    async def _count(self, held: Callable[[], int], until_s: float) -> None:
        while held():
            left_s = max(until_s - time.monotonic(), 0.0)
            err.fading((f"{counted(held(), 'job')} running, {left_s:.0f} s left", "quiet"))
            await asyncio.sleep(COUNT_EVERY_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counting is not None:
            self._counting.cancel()
            err.erase()


def say_draining(held: int, drain_s: float, *, as_json: bool) -> None:
    """Print what the stop waits for."""
    if as_json:
        return
    if held:
        err.say(
            f"stopping: {counted(held, 'job')} may finish within {drain_s:g} s;"
            " Ctrl-C again ends at once"
        )
    else:
        err.say("stopping")


def chosen_home(home: Path | None) -> Path:
    """The state directory: as given, where one already exists, or here."""
    from antiphon.errors import Misconfigured
    from antiphon.sdk.mesh import StateDirectory

    try:
        return StateDirectory.find(home).path.resolve()
    except Misconfigured:
        return Path.cwd() / ".antiphon"
