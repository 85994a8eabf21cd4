"""A job with a score: it keeps to its beats, asks for help, and falls back if nobody answers.

python examples/scores.py
"""

from __future__ import annotations

import asyncio

from antiphon import JobContext, Mesh

mesh = Mesh.open(engine="memory")

SCORE = {
    "phases": {"plan": 1, "work": 3, "review": 1},
    "wait_budget": {"help": 1, "io": 1},
    "escalation": {
        "on_wait_exhausted": ["emit:needs-attention", "fallback:coarse-answer"],
        "on_overrun": ["checkpoint", "defer:next-phrase"],
    },
}


@mesh.task("research.answer", score=SCORE)
async def answer(question: str, ctx: JobContext) -> str:
    """Ask others, work meanwhile, and wait for them no longer than the score allows."""
    helped = ctx.help(question)
    ctx.next_phase()  # planned; on to work
    await ctx.checkpoint(b"asked")  # a next tenure finds this in ctx.last_checkpoint
    return await helped


@answer.fallback("coarse-answer")
async def coarse(question: str) -> str:
    """What is said when nobody helped."""
    return f"nobody knows about {question!r}"


async def main() -> None:
    """Nobody listens, so the fallback answers after one beat."""
    async with mesh, mesh.worker():
        job = await answer.submit("the colour of the sky")
        print(await job.result())
        ended = await job.end()
        print(*(f"{one.name}: {one.text}" for one in ended.outputs), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
