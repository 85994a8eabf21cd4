"""Three agents that work on one Git repository: one process each.

    python agents.py ada --repo REPO            takes tickets, edits, commits
    python agents.py bob --repo REPO
    python agents.py cleo --repo REPO --once    reviews what waits in its inbox, and ends: for cron

A ticket is a job, so one agent at a time has it, and another gets it if that one dies. A file is
locked while it is edited. What is known about a ticket is a document in shared memory. A review is
asked for by message.
"""

import argparse
import asyncio
import signal
from pathlib import Path

from antiphon import Mesh

SCOPE = "repo.demo"
NOTES = "notes.demo"
TEAM = "team.demo"
REVIEWER = "cleo"

options = argparse.ArgumentParser()
options.add_argument("name", choices=["ada", "bob", "cleo"])
options.add_argument("--repo", type=Path, required=True)
options.add_argument("--home", type=Path)
options.add_argument("--think", type=float, default=0.5, help="seconds that an edit takes")
options.add_argument("--once", action="store_true", help="review what is there, and end")


async def propose(ticket: dict, text: str, think_s: float) -> str:
    """The new text of a file. This is where an agent would call its model."""
    await asyncio.sleep(think_s)
    return f"{text}{ticket['line']}\n"


async def git(repo: Path, *words: str) -> str:
    """What a git command prints."""
    process = await asyncio.create_subprocess_exec(
        "git", "-C", str(repo), *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"git {words[0]} failed")
    return out.decode().strip()


class Agent:
    """One of the three."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.name, self.repo, self.think_s = chosen.name, chosen.repo, chosen.think
        # A key of its own by its name: the same inbox in every process that is this agent.
        self.mesh = Mesh.open(home=chosen.home, key=self.name, agent=self.name)
        self.mesh.task("ticket.edit", lease="5s", attempts=5)(self.edit)

    async def work(self) -> None:
        """Take tickets until somebody stops it."""
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with self.mesh, self.mesh.worker(slots=1):
            await self.introduce()
            print(f"{self.name} is ready", flush=True)
            await stop.wait()

    async def introduce(self) -> None:
        """Tell the others where this agent's inbox is."""
        await self.mesh.memory[TEAM].update(self.name, lambda _: self.mesh.messages.address)

    async def edit(self, ticket: dict) -> str:
        """Carry out a ticket: `{"id": …, "file": …, "line": …}`. The commit that has it."""
        notes = self.mesh.memory[NOTES]
        path = ticket["file"]
        async with self.mesh.lock(f"file:{path}", scope=SCOPE, ttl=5) as lock:
            # Somebody who was killed may have committed and not told, or left half an edit.
            found = await git(self.repo, "log", "--format=%H", f"--grep=^Ticket: {ticket['id']}$")
            await notes.update(ticket["id"], lambda note: {"tries": [*tries(note), self.name]})
            if not found:
                await git(self.repo, "checkout", "--", path)
                print(f"{self.name} edits {path} for {ticket['id']}", flush=True)
                file = self.repo / path
                file.write_text(await propose(ticket, file.read_text(), self.think_s))
                async with self.mesh.lock("git:index", scope=SCOPE, ttl=5):
                    message = f"{ticket['line']}\n\nTicket: {ticket['id']}\nFence: {lock.fence}"
                    who = f"--author={self.name} <{self.name}@example.org>"
                    await git(self.repo, "commit", "--quiet", who, "-m", message, "--", path)
                    found = await git(self.repo, "rev-parse", "HEAD")
        print(f"{self.name} committed {ticket['id']}", flush=True)
        await self.ask_for_review(ticket, found)
        return found

    async def ask_for_review(self, ticket: dict, commit: str) -> None:
        """Once per ticket, however often it was tried: the key says so."""
        reviewer = await self.mesh.memory[TEAM].get(REVIEWER)
        if reviewer is not None:
            content = {"ticket": ticket, "commit": commit}
            await self.mesh.messages.send(
                reviewer.value, content, kind="review.request", key=ticket["id"]
            )

    async def review(self) -> None:
        """Review what waits in the inbox, and end when there is no more."""
        async with self.mesh:
            await self.introduce()
            async with self.mesh.messages.inbox(wait=2) as inbox:
                async for message in inbox:
                    ticket, commit = message.payload["ticket"], message.payload["commit"]
                    changed = await git(self.repo, "show", "--format=", "--name-only", commit)
                    verdict = "approved" if changed == ticket["file"] else "touches other files"
                    await self.mesh.memory[NOTES].update(
                        ticket["id"], lambda note, said=verdict: {**(note or {}), "review": said}
                    )
                    await message.ack()
                    print(f"{self.name} reviewed {ticket['id']}: {verdict}", flush=True)


def tries(note: dict | None) -> list[str]:
    """Who has tried a ticket so far."""
    return note["tries"] if note else []


if __name__ == "__main__":
    arguments = options.parse_args()
    agent = Agent(arguments)
    asyncio.run(agent.review() if arguments.once else agent.work())
