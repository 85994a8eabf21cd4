"""Makes small random changes to the package, one at a time: a test should notice each.

    python -m tests.mutate --count 40 --seed 1
    python -m tests.mutate --only src/antiphon/core/policy/write_pace.py:107:11:compare

Which changes are drawn, and which kinds are not: `changes`. A mutant is first tried against the
files of tests that are nearest to it (`nearest`). For those that survive the pure tests run once
without any mutant (`survey`), which says which of them reach each place and how long they take;
those that reach it are asked next (`trial`). The same follows with the tests that have servers and
processes, except slow ones. That takes many minutes, however few mutants are left: `--quick` asks
the nearest tests alone. What nobody can notice is listed in equivalent.toml, with why. Nothing is
written to the sources: an import hook changes a module as it is loaded.

Libraries were weighed. mutmut 3 also forks and knows which tests reach a function, but it mutates
a copy of the tree, runs the whole suite before anything else, changes nothing outside functions and
draws no sample by a seed. cosmic-ray runs one command for every mutant, whatever it changes.

The last line on standard output is one JSON object; exits 0 if at least 95 of 100 mutants that are
not equivalent were noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from tests.mutate.mutants import ROOT, Mutant, Tree, draw, equivalents, named
from tests.mutate.trial import Trial, Trials, cores

ENOUGH = 0.95


def main(arguments: list[str] | None = None) -> int:
    """Draw, try, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="replays mutants")
    parser.add_argument("--quick", action="store_true", help="asks only the nearest tests")
    wanted = parser.parse_args(arguments)
    tree = Tree(ROOT)
    only = [named(tree, name) for name in wanted.only]
    mutants = only or draw(tree, wanted.count, wanted.seed)
    known = [] if only else equivalents()
    tried = [one for one in mutants if not any(each.is_of(one) for each in known)]
    trials = asyncio.run(Trials(tree, wanted.jobs).run(tried, is_quick=wanted.quick))
    said = figures(mutants, trials)
    print(json.dumps(said), flush=True)
    return 0 if said["noticed"] >= ENOUGH * len(trials) else 1


def figures(mutants: list[Mutant], trials: list[Trial]) -> dict[str, Any]:
    """The closing line."""
    survivors = [trial.mutant for trial in trials if not trial.noticed_by]
    return {
        "mutants": len(mutants),
        "equivalent": len(mutants) - len(trials),
        "noticed": len(trials) - len(survivors),
        "survivors": [
            {
                "file": each.path,
                "line": each.line,
                "said": each.said,
                "was": each.was,
                "becomes": each.becomes,
                "replay": f"python -m tests.mutate --only {each.name}",
            }
            for each in survivors
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
