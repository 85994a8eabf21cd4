"""A run without mutants: which tests pass, how long each takes, and which places each reaches."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutate.mutants import Mutant, Tree
from tests.mutate.overlay import PROBES, REACHED
from tests.pytest_process import environment, limit, run_pytest

PROCESS = Path(__file__).parent / "process"
LIMIT_S = 7_200.0
TEST_S = 300.0


@dataclass
class Survey:
    """What the tests do when nothing is changed."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By test that passed."""
    reached: dict[str, set[str]] = field(default_factory=dict)
    """By a mutant's name: the tests that run the statement it changes."""


async def survey(
    tree: Tree, mutants: Sequence[Mutant], arguments: Sequence[str], more: dict[str, str], jobs: int
) -> Survey:
    """Run tests with a probe at the place of each mutant."""
    places: dict[str, tuple[str, dict[str, int]]] = {}
    for number, mutant in enumerate(mutants):
        if mutant.is_probed:
            file = str(tree.root / mutant.path)
            places.setdefault(tree.module(mutant.path), (file, {}))[1][mutant.key] = number
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "reached").mkdir()
        (folder / "probes").write_text(json.dumps(places), encoding="utf-8")
        (folder / "wanted").write_text("\n".join(arguments), encoding="utf-8")
        env = environment(
            PROCESS,
            {
                **more,
                PROBES: str(folder / "probes"),
                REACHED: str(folder / "reached"),
                "ANTIPHON_MUTANT_TIMES": str(folder / "times"),
            },
        )
        side_by_side = ("-n", str(jobs), "--dist", "loadfile") if jobs > 1 else ()
        options = ("-p", "times", "--hypothesis-seed=0", *limit(TEST_S), *side_by_side)
        wanted = (*options, f"@{folder / 'wanted'}")
        ran = await run_pytest(wanted, env, limit_s=LIMIT_S, root=tree.root)
        if not (folder / "times").exists():
            raise RuntimeError(f"the tests cannot be run: {ran.said[-2_000:]}")
        return _read(folder, mutants)


def _read(folder: Path, mutants: Sequence[Mutant]) -> Survey:
    found = Survey(seconds=json.loads((folder / "times").read_text(encoding="utf-8")))
    for file in (folder / "reached").iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            number, test = json.loads(line)
            if test in found.seconds:
                found.reached.setdefault(mutants[number].name, set()).add(test)
    return found
