"""Tasks of your own. Try them beside a running `antiphon dev`.

- `antiphon worker examples/tasks.py`
- `antiphon submit text.count "the quick brown fox"`
- `antiphon submit math.primes 50`
- `antiphon submit example.stubborn 3`
"""

import time

from antiphon import JobContext, Mesh

mesh = Mesh.open()


@mesh.task("text.count")
async def count(text: str) -> dict[str, int]:
    return {"words": len(text.split()), "letters": sum(map(str.isalpha, text))}


@mesh.task("math.primes")
def primes(below: int) -> list[int]:
    """A plain function: it runs in a thread, so that it does not hold up the others."""
    return [n for n in range(2, below) if all(n % d for d in range(2, int(n**0.5) + 1))]


@mesh.task("example.patience")
def patience(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@mesh.task("example.stubborn")
async def stubborn(succeed_at: int, ctx: JobContext) -> str:
    """Fails until its n-th attempt. Asks for the context, which is not an argument of the call."""
    if ctx.attempt < succeed_at:
        raise RuntimeError(f"attempt {ctx.attempt} is not {succeed_at}")
    return f"at last, with fence {ctx.fence}"
