"""`antiphon msg send|read|ack|threads|dead|address`: messages between agents."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.screen.command import Answer, Options, command, fields
from antiphon.interfaces.cli.screen.durations import seconds, some_seconds
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.outbox_words import say_sent, say_tentative

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.messages.received_message import ReceivedMessage

msg = typer.Typer(help="Send messages to agents, and read your own.", no_args_is_help=True)

AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Which agent of this node. Default: main."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=64, help="At most this many.")]


@dataclass(frozen=True)
class MessageOptions(Options):
    """What a message can have."""

    kind: str = typer.Option("message", help="What sort of message it is.")
    thread: str = typer.Option("", help="Messages of one thread are read in order.")
    priority: int = typer.Option(0, min=0, max=3, help="The higher, the sooner.")
    ttl: float | None = typer.Option(
        None,
        parser=some_seconds,
        metavar="TIME",
        help="When it becomes a dead letter: 90s, 15m, 4beats.",
    )
    key: str = typer.Option("", help="The same key again is the same message.")
    agent: AgentOption = None


@msg.command()
@command
def send(
    home: Path | None,
    as_json: bool,
    to: str = typer.Argument(
        ..., metavar="TO", help="An address (did:key:…/agent), or an alias.", show_default=False
    ),
    payload: str = typer.Argument(
        "null", metavar="PAYLOAD", help="JSON; anything else is sent as text."
    ),
    *,
    asked: MessageOptions,
) -> Coroutine[Any, Any, Answer]:
    """Send a message. It waits in the receiver's inbox until it is acknowledged."""

    async def go() -> Answer:
        async with open_mesh(home, offline=True) as mesh:
            receiver = await mesh.messages.address_of(to)
            sent = await mesh.messages.send(receiver, _value(payload), **asdict(asked))
            say_sent(mesh, as_json=as_json)
            return await _sent(mesh, sent, receiver)

    return go()


async def _sent(mesh: Mesh, sent: str, receiver: str) -> Answer:
    facts = {"id": sent, "to": receiver}
    if mesh.outbox.keeps(sent):
        why = mesh.outbox.unreachable
        return Answer({**facts, "is_tentative": True}, lambda: say_tentative("message", why))
    node, _, whom = receiver.rpartition("/")
    name = await node_names(mesh, [node])
    told = f" sent {sent} to agent {whom} of {name(node)}"
    return Answer(facts, lambda: out.say("✓", told, style="succeeded"))


@msg.command()
@command
async def read(
    mesh: Mesh,
    as_json: bool,
    *,
    agent: AgentOption = None,
    limit: LimitOption = 16,
    wait: float = typer.Option(
        0.0,
        parser=seconds,
        metavar="TIME",
        show_default="0s",
        help="How long to wait for a message.",
    ),
    ack: bool = typer.Option(False, "--ack", help="Acknowledge what is shown."),
) -> None:
    """Show the next messages. Each is shown again until you acknowledge it."""
    shown = 0
    async with mesh.messages.inbox(agent=agent, wait=wait) as inbox:
        async for message in inbox:
            if as_json:
                print_json(_message_object(message))
            else:
                _tell(message)
            if ack:
                await message.ack()
            shown += 1
            if shown >= limit:
                break
    if not shown and not as_json:
        err.pieces(("no messages", "quiet"))


@msg.command("ack")
@command
async def acknowledge(
    mesh: Mesh,
    ids: list[str] = typer.Argument(..., metavar="ID…", help="As 'msg read' shows them."),
    *,
    agent: AgentOption = None,
) -> Answer:
    """Acknowledge messages: they are removed from the inbox."""
    for one in ids:
        await mesh.messages.ack(one, agent=agent)

    def words() -> None:
        for one in ids:
            out.say("✓", f" {one}", style="succeeded")

    return Answer({"acknowledged": ids}, words)


@msg.command()
@command
async def threads(mesh: Mesh, *, agent: AgentOption = None) -> Answer:
    """List the threads that have messages, the oldest first."""
    found = await mesh.messages.threads(agent=agent)

    def words() -> None:
        for one in found:
            out.say(f"{one.messages:6}  {one.thread or '(no thread)'}  {_time(one.oldest_ms)}")
        if not found:
            err.pieces(("no messages", "quiet"))

    facts = [
        {**fields(one, "thread", "messages", "senders"), "oldest": _time(one.oldest_ms)}
        for one in found
    ]
    return Answer(facts, words)


@msg.command()
@command
async def dead(mesh: Mesh, *, agent: AgentOption = None, limit: LimitOption = 64) -> Answer:
    """List messages that nobody handled: too many attempts, or too late."""
    found = await mesh.messages.dead(agent=agent, limit=limit)

    def words() -> None:
        for one in found:
            why = f"{one.reason}, {one.attempts} attempts{': ' if one.error else ''}{one.error}"
            out.say(f"{one.id}  {one.kind}  {why}")
        if not found:
            err.pieces(("no dead letters", "quiet"))

    names = ("id", "reason", "attempts", "error", "sender", "kind", "thread", "payload")
    return Answer([{**fields(one, *names), "put": _time(one.put_ms)} for one in found], words)


@msg.command()
@command
async def address(mesh: Mesh, *, agent: AgentOption = None) -> Answer:
    """Print the address of this node's agent."""
    ours = mesh.messages.address if agent is None else f"{mesh.did}/{agent}"
    return Answer({"address": ours}, lambda: print(ours, flush=True))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _message_object(message: ReceivedMessage) -> dict[str, Any]:
    names = ("id", "sender", "kind", "thread", "priority", "attempt", "in_reply_to", "payload")
    return {**fields(message, *names), "sent": _time(message.sent_ms)}


def _tell(message: ReceivedMessage) -> None:
    thread = f" in {message.thread}" if message.thread else ""
    again = f", attempt {message.attempt}" if message.attempt > 1 else ""
    out.say(f"{message.id}  {message.kind}{thread} from {message.sender}{again}")
    out.say(f"  {json.dumps(message.payload, ensure_ascii=False)}")
