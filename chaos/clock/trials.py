"""The trials of `chaos clock`: clocks are set wrong and right again, and every process watched."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from antiphon.core.record.verdict import Verdict
from antiphon.runtime.node.full_node import Applied
from bench.measurement.report import say
from chaos.audit.execution_journal import boot_ns
from chaos.clock.jumps import Jump, draw
from chaos.clock.process_group import ClockedProcess, ProcessGroup

PAUSE_S: Final = (0.05, 0.4)
DRIFT_STEP_S: Final = 0.05
RECOVERY_WITHIN_S: Final = 20.0
SAID_AFTER_S: Final = 1.0
"""A process whose clock is wrong for this long usually meets the rules."""
CLOCK_WARNING: Final = re.compile(r"clock is .+ (ahead of|behind) the mesh's")


class Plan(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    jumps: int
    workers: int
    at_once: int
    """Processes that may be wrong at the same time."""
    seed: int


class TimestampCheck:
    """Every timestamp that was signed, as a full node with a right clock reads them."""

    def __init__(self) -> None:
        self._signed: dict[tuple[str, int, int], str] = {}
        self.reused: list[str] = []
        """Two ops of one author with one timestamp: a fence that two runs could share."""
        self.verdicts: dict[str, int] = {}

    def add(self, applied: Applied) -> None:
        verdict = applied.verdict.value
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        op = applied.opened.op
        if op is None or applied.verdict in {Verdict.SIGNATURE, Verdict.MALFORMED}:
            return
        stamp = (op.author, *op.hlc)
        first = self._signed.setdefault(stamp, applied.opened.op_id)
        if first != applied.opened.op_id:
            self.reused.append(f"{op.author} signed two ops at {op.hlc}: {applied.opened.seq}")


class Trial(Struct, kw_only=True):
    """What one jump did to one process."""

    process: str
    jump: Jump
    recovery_s: float | None = None
    """From setting its clock right to its next accepted op; None: there was none in time."""
    said: bool | None = None
    """Whether it logged that its clock is wrong; None: it need not have noticed."""


class JumpRunner:
    """Sets clocks wrong and right again, and watches how their processes recover."""

    def __init__(self, group: ProcessGroup, plan: Plan, chance: random.Random) -> None:
        self.group, self.plan, self._chance = group, plan, chance
        self.trials: list[Trial] = []
        self._wrong: set[str] = set()
        self.begun = self.together = 0

    @property
    def progress(self) -> float:
        return self.begun / self.plan.jumps

    async def run(self) -> None:
        """All jumps, a few at a time; never so many that no worker is left."""
        async with asyncio.TaskGroup() as tasks:
            while self.begun < self.plan.jumps:
                jump = draw(self._chance)
                while jump.everybody and self._wrong:
                    await asyncio.sleep(0.02)
                processes = self._choose(jump)
                if processes:
                    self.begun += 1
                    self.together += jump.everybody
                    self._wrong |= {process.name for process in processes}
                    tasks.create_task(self._try(processes, jump))
                await asyncio.sleep(self._chance.uniform(*PAUSE_S))
                while len(self._wrong) >= self.plan.at_once:
                    await asyncio.sleep(0.02)

    def _choose(self, jump: Jump) -> list[ClockedProcess]:
        right = [one for one in self.group.processes if one.name not in self._wrong]
        if jump.everybody:
            return right
        if jump.how == "suspend" or jump.restarts:
            right = [one for one in right if one.role == "worker"]
        return [self._chance.choice(right)] if right else []

    async def _try(self, processes: Sequence[ClockedProcess], jump: Jump) -> None:
        logged = {process.name: len(process.log_text()) for process in processes}
        if jump.how == "suspend":
            await self.group.suspend(processes[0], jump.wrong_s)
        elif jump.how == "drift":
            await self._drift(processes, jump)
        else:
            for process in processes:
                process.clock.set(jump.by_s)
            if jump.restarts:
                await self.group.restart(processes[0])
                await self.group.wait_until_ready()
            await asyncio.sleep(jump.wrong_s)
        right_ns = boot_ns()
        for process in processes:
            process.clock.set(0.0)
        async with asyncio.TaskGroup() as tasks:
            for process in processes:
                tasks.create_task(self._recover(process, jump, right_ns, logged[process.name]))

    async def _drift(self, processes: Sequence[ClockedProcess], jump: Jump) -> None:
        begun = time.monotonic()
        while (for_s := time.monotonic() - begun) < jump.wrong_s:
            for process in processes:
                process.clock.set(for_s * jump.by_s)
            await asyncio.sleep(DRIFT_STEP_S)

    async def _recover(
        self, process: ClockedProcess, jump: Jump, right_ns: int, logged: int
    ) -> None:
        trial = Trial(process=process.name, jump=jump)
        self.trials.append(trial)
        if process.role == "node":
            # Whether it writes again depends on whether there is anything to write.
            trial.recovery_s = 0.0
        deadline = time.monotonic() + RECOVERY_WITHIN_S
        while trial.recovery_s is None and time.monotonic() < deadline:
            when_ns = self.group.active_after(process, right_ns)
            if when_ns is not None:
                trial.recovery_s = (when_ns - right_ns) / 1e9
                break
            await asyncio.sleep(0.05)
        if jump.is_refused and jump.wrong_s >= SAID_AFTER_S and process.role != "node":
            trial.said = CLOCK_WARNING.search(process.log_text()[logged:]) is not None
        self._wrong.discard(process.name)
        if trial.recovery_s is None:
            say(f"{process.name}, {jump}: has not recovered after {RECOVERY_WITHIN_S:g} s")
