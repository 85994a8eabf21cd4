"""`antiphon msg send|read|ack|threads|dead|address`: messages between agents."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.durations import seconds, some_seconds
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.sdk.messages.received_message import ReceivedMessage

msg = typer.Typer(help="Send messages to agents, and read your own.", no_args_is_help=True)

AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Which agent of this node. Default: main."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=64, help="At most this many.")]


@msg.command()
def send(
    to: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="An address (did:key:…/agent), or an alias.", show_default=False
        ),
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON; anything else is sent as text.")
    ] = "null",
    *,
    kind: Annotated[str, typer.Option("--kind", help="What sort of message it is.")] = "message",
    thread: Annotated[
        str, typer.Option("--thread", help="Messages of one thread are read in order.")
    ] = "",
    priority: Annotated[
        int, typer.Option("--priority", min=0, max=3, help="The higher, the sooner.")
    ] = 0,
    ttl: Annotated[
        float | None,
        typer.Option(
            "--ttl",
            parser=some_seconds,
            metavar="TIME",
            help="When it becomes a dead letter: 90s, 15m, 4beats.",
        ),
    ] = None,
    key: Annotated[str, typer.Option("--key", help="The same key again is the same message.")] = "",
    agent: AgentOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send a message. It waits in the receiver's inbox until it is acknowledged."""

    async def act() -> int:
        async with open_mesh(home) as mesh:
            sent = await mesh.send(
                to,
                _value(payload),
                kind=kind,
                thread=thread,
                priority=priority,
                ttl=ttl,
                key=key,
                agent=agent,
            )
        if as_json:
            print_json({"id": sent})
        else:
            out.say("✓", f" sent {sent}", style="succeeded")
        return Exit.OK

    return command_loop.run(act())


@msg.command()
def read(
    *,
    agent: AgentOption = None,
    limit: LimitOption = 16,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            parser=seconds,
            metavar="TIME",
            show_default="0s",
            help="How long to wait for a message.",
        ),
    ] = 0.0,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge what is shown.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show the next messages. Each is shown again until you acknowledge it."""
    return command_loop.run(_read(home, agent, limit, wait, is_acking=ack, as_json=as_json))


async def _read(
    home: Path | None, agent: str | None, limit: int, wait: float, *, is_acking: bool, as_json: bool
) -> int:
    shown = 0
    async with open_mesh(home) as mesh, mesh.inbox(agent=agent, wait=wait) as inbox:
        async for message in inbox:
            if as_json:
                print_json(_message_object(message))
            else:
                _tell(message)
            if is_acking:
                await message.ack()
            shown += 1
            if shown >= limit:
                break
    if not shown and not as_json:
        err.pieces(("no messages", "quiet"))
    return Exit.OK


@msg.command()
def ack(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="As 'msg read' shows them.")],
    *,
    agent: AgentOption = None,
    home: HomeOption = None,
) -> int:
    """Acknowledge messages: they are removed from the inbox."""

    async def act() -> int:
        async with open_mesh(home) as mesh:
            for one in ids:
                await mesh.ack_message(one, agent=agent)
                out.say("✓", f" {one}", style="succeeded")
        return Exit.OK

    return command_loop.run(act())


@msg.command()
def threads(
    *, agent: AgentOption = None, home: HomeOption = None, as_json: JsonOption = False
) -> int:
    """List the threads that have messages, the oldest first."""

    async def act() -> int:
        async with open_mesh(home) as mesh:
            found = await mesh.message_threads(agent=agent)
        for one in found:
            if as_json:
                print_json(
                    {
                        "thread": one.thread,
                        "messages": one.messages,
                        "oldest": _time(one.oldest_ms),
                        "senders": list(one.senders),
                    }
                )
            else:
                out.say(f"{one.messages:6}  {one.thread or '(no thread)'}  {_time(one.oldest_ms)}")
        if not found and not as_json:
            err.pieces(("no messages", "quiet"))
        return Exit.OK

    return command_loop.run(act())


@msg.command()
def dead(
    *,
    agent: AgentOption = None,
    limit: LimitOption = 64,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List messages that nobody handled: too many attempts, or too late."""

    async def act() -> int:
        async with open_mesh(home) as mesh:
            found = await mesh.dead_messages(agent=agent, limit=limit)
        for one in found:
            fields = {
                "id": one.id,
                "reason": one.reason,
                "attempts": one.attempts,
                "error": one.error,
                "sender": one.sender,
                "kind": one.kind,
                "thread": one.thread,
                "put": _time(one.put_ms),
                "payload": one.payload,
            }
            if as_json:
                print_json(fields)
            else:
                why = f"{one.reason}, {one.attempts} attempts{': ' if one.error else ''}{one.error}"
                out.say(f"{one.id}  {one.kind}  {why}")
        if not found and not as_json:
            err.pieces(("no dead letters", "quiet"))
        return Exit.OK

    return command_loop.run(act())


@msg.command()
def address(*, agent: AgentOption = None, home: HomeOption = None) -> int:
    """Print the address of this node's agent."""

    async def act() -> int:
        async with open_mesh(home) as mesh:
            print(mesh.address if agent is None else f"{mesh.did}/{agent}", flush=True)
        return Exit.OK

    return command_loop.run(act())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _message_object(message: ReceivedMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "sender": message.sender,
        "kind": message.kind,
        "thread": message.thread,
        "priority": message.priority,
        "attempt": message.attempt,
        "in_reply_to": message.in_reply_to,
        "sent": _time(message.sent_ms),
        "payload": message.payload,
    }


def _tell(message: ReceivedMessage) -> None:
    thread = f" in {message.thread}" if message.thread else ""
    again = f", attempt {message.attempt}" if message.attempt > 1 else ""
    out.say(f"{message.id}  {message.kind}{thread} from {message.sender}{again}")
    out.say(f"  {json.dumps(message.payload, ensure_ascii=False)}")
