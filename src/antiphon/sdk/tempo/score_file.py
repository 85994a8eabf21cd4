"""Score files: the YAML that `antiphon submit --score FILE` takes (docs/scores.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.tempo.score import read_score
from antiphon.errors import Malformed, Misconfigured
from antiphon.sdk.manifests.strict_yaml import MAX_BYTES, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.core.tempo.score import Score


def read_score_file(path: Path) -> Score:
    """The score in a file; `Misconfigured` says what is wrong with it."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        value = read_yaml(raw.decode()).value
    except OSError as problem:
        raise Misconfigured(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise Misconfigured(f"{path} is not UTF-8") from problem
    except Malformed as problem:
        raise Misconfigured(f"{path}: {problem.message}", hint=problem.hint) from problem
    if not isinstance(value, dict):
        raise Misconfigured(f"{path} has no score", hint="docs/scores.md shows one")
    try:
        return read_score(value)
    except Malformed as problem:
        raise Misconfigured(f"{path}: {problem.message}", hint=problem.hint) from problem
