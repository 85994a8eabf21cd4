"""A candidate for the pulse in a process of its own."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from msgspec import Struct

from antiphon import assembly
from antiphon.core.tempo.messages import Suggestion
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse import Pulse
from chaos.cluster.child_process import begin


class CandidateConfig(Struct, frozen=True, kw_only=True):
    """How such a process works."""

    home: Path
    key: str
    """The name of its key; whoever takes its place has the same."""
    log: Path
    bpm: tuple[int, int]
    """Between which tempi its suggestions lie."""


async def beat(config: CandidateConfig) -> None:
    """Be a candidate until killed."""
    chance = random.Random()

    def suggest() -> Suggestion:
        return Suggestion(tempo_bpm=chance.randint(*config.bpm))

    async with assembly.join(StateDirectory(config.home), "node", key=config.key) as connection:
        await connection.session.sync_control()
        await Pulse(BeatClock(connection.session), connection.keyring, suggest=suggest).run()


def main(config: CandidateConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log)
    asyncio.run(beat(config))
