"""Changes modules while they are imported; no file is written.

A process of tests gets one mutant, or probes that say which test reaches which place. What it
starts gets the same by its environment (`process/sitecustomize.py`).
"""

from __future__ import annotations

import ast
import builtins
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.import_hook import install
from tests.mutate.changes import changed, probed

MUTANT = "ANTIPHON_MUTANT"
"""A module's name, its file and the key of a change, as JSON."""
PROBES = "ANTIPHON_MUTANT_PROBES"
"""A file: module -> its file and, by key of a change, the number of a place."""
REACHED = "ANTIPHON_MUTANT_REACHED"
"""A folder: a file for each process, a line for each place and test."""


def install_from_environment() -> None:
    """What the environment asks for: a mutant, probes, or nothing."""
    if os.environ.get(MUTANT):
        module, file, key = json.loads(os.environ[MUTANT])
        install({module: _compiled(file, lambda source: changed(source, key))})
    elif os.environ.get(PROBES):
        setattr(builtins, "mutate_reached", _note())  # noqa: B010 - a name that nobody else has
        places = json.loads(Path(os.environ[PROBES]).read_text(encoding="utf-8"))
        install({name: _compiled(file, _probing(keys)) for name, (file, keys) in places.items()})


def _probing(keys: dict[str, int]) -> Callable[[str], ast.Module]:
    calls = {key: f"mutate_reached({number})" for key, number in keys.items()}
    return lambda source: probed(source, calls)


def _compiled(file: str, change: Callable[[str], ast.Module]) -> Callable[[Any], None]:
    """Makes a loader give changed code, whatever was compiled before."""

    def apply(loader: Any) -> None:
        def get_code(_name: str) -> Any:
            return compile(change(Path(file).read_text(encoding="utf-8")), file, "exec")

        loader.get_code = get_code

    return apply


def _note() -> Callable[[int], None]:
    """Writes each place once for each test; a process that is killed has written what it saw."""
    folder = Path(os.environ[REACHED])
    seen: set[tuple[int, str]] = set()

    def note(number: int) -> None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if test and (number, test) not in seen:
            seen.add((number, test))
            with (folder / str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(json.dumps([number, test]) + "\n")

    return note
