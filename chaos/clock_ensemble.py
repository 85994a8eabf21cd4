"""The processes of `chaos clock`, each with a clock of its own that can be set wrong.

Only processes that were started here are ever signalled, by their own handle; all end at the end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Final, Self

import msgspec

from chaos.clock_faking import FakeClock
from chaos.clock_process import Acked
from chaos.witness import Reader, Tally, Witness

LOOK_S: Final = 0.02
ENDED_WITHIN_S: Final = 10.0
LAST_WORDS: Final = 30
_acked = msgspec.json.Decoder(Acked).decode


class Player:
    """One process, its clock, and the files that it writes."""

    def __init__(self, role: str, name: str, place: Path, clock: FakeClock) -> None:
        """Not started yet."""
        self.role, self.name, self.clock = role, name, clock
        self.log = place / f"{name}.log"
        self.own = place / f"{name}.own"
        """What only this role writes: acknowledged calls, or a replica."""
        self.process: Process | None = None
        self.is_ending = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def words(self) -> str:
        """All that it said so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def acked(self) -> list[Acked]:
        """Calls of its own that were acknowledged; whole lines only."""
        if self.role != "caller" or not self.own.exists():
            return []
        *lines, _ = self.own.read_bytes().split(b"\n")
        return [_acked(line) for line in lines]


class Ensemble:
    """Starts the processes and sees what the witness sees of them."""

    def __init__(self, place: Path, home: Path, preload: Path) -> None:
        """`place` is a directory of its own."""
        place.mkdir(parents=True)
        self._place, self._home, self._preload = place, home, preload
        self._witness_file = place / "witness"
        self._reader = Reader(self._witness_file)
        self._witness = Witness(self._witness_file)
        self.tally = Tally()
        self.players: list[Player] = []
        self.crashed: list[str] = []
        """Last words of processes that ended without being asked to."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        self._reader.close()
        self._witness.close()

    def of(self, role: str) -> list[Player]:
        return [player for player in self.players if player.role == role]

    async def start(self, role: str, name: str) -> Player:
        """One more process, with a clock that is right."""
        clock = FakeClock(self._preload, self._place / f"clock-{name}")
        player = Player(role, name, self._place, clock)
        await self._launch(player)
        self.players.append(player)
        return player

    async def start_again(self, player: Player) -> None:
        """Kill it, and start it anew under the same clock, whatever that says."""
        await self.end_one(player)
        player.is_ending = False
        await self._launch(player)

    async def _launch(self, player: Player) -> None:
        files = {
            "home": self._home,
            "witness": self._witness_file,
            "log": player.log,
            "own": player.own,
            "suspended": player.clock.suspended_file,
        }
        told = [word for key, path in files.items() for word in (f"--{key}", str(path))]
        with player.log.open("ab") as out:
            player.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "chaos.clock_process", player.role, *told),
                stdout=out,
                stderr=out,
                env=player.clock.environment,
            )

    async def all_up(self, within_s: float = 60.0) -> None:
        """Wait until everybody has come up."""
        async with asyncio.timeout(within_s):
            while not all(player.pid in self.tally.ready for player in self.players):
                self.look()
                self._find_crashes()
                if self.crashed:
                    return
                await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Read what the witness wrote meanwhile."""
        self.tally.add(self._reader.new())

    def begun_after(self, player: Player, at_ns: int) -> int | None:
        """When this process next did something that the log accepted; None: not yet."""
        if player.role == "caller":
            return next((one.at_ns for one in player.acked() if one.at_ns >= at_ns), None)
        self.look()
        begun = (run.begun_ns for run in self.tally.executions if run.pid == player.pid)
        return next((when for when in begun if when >= at_ns), None)

    async def suspend(self, player: Player, for_s: float) -> None:
        """Stop it, and let monotonic time stand still meanwhile, as suspended machines do."""
        assert player.process is not None
        begun = time.monotonic()
        player.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            player.clock.forget(time.monotonic() - begun)
            player.process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """End every process that is still there; workers are killed, nobody is asked."""
        self._find_crashes()
        for player in self.players:
            await self.end_one(player)
        self.look()

    async def end_one(self, player: Player) -> None:
        process, player.is_ending = player.process, True
        if process is not None and process.returncode is None:
            process.kill()
            await asyncio.wait_for(process.wait(), ENDED_WITHIN_S)
            self._witness.note("dead", pid=process.pid)

    def _find_crashes(self) -> None:
        for player in self.players:
            process = player.process
            if process is None or player.is_ending or process.returncode is None:
                continue
            player.is_ending = True
            words = "\n".join(player.words().splitlines()[-LAST_WORDS:])
            self.crashed.append(f"{player.name} ended with {process.returncode}: {words}")
            print(self.crashed[-1], file=sys.stderr, flush=True)
