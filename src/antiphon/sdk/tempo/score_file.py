"""Score files: the YAML that `antiphon submit --score FILE` takes (docs/do/scores.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.tempo.score import read_score
from antiphon.errors import Malformed, Misconfigured
from antiphon.sdk.manifests.strict_yaml import MAX_BYTES, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.core.tempo.score import Score


InBeats = Callable[[str], int | None]
"""How many beats a duration is; None if the text is not one."""
_IN_BEATS: Final = ("phases", "wait_budget")


def read_score_file(path: Path, *, in_beats: InBeats = lambda _: None) -> Score:
    """The score in a file; `Misconfigured` says what is wrong with it.

    `in_beats` reads durations such as `30s` where the file has them instead of beats.
    """
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
        raise Misconfigured(
            f"{path} has no score",
            hint="phases: {plan: 1, work: 4, review: 1} is one, in beats; or in seconds: work: 30s",
        )
    try:
        return read_score(_with_beats(value, in_beats))
    except Malformed as problem:
        raise Misconfigured(f"{path}: {problem.message}", hint=problem.hint) from problem


def _with_beats(given: Mapping[str, Any], in_beats: InBeats) -> Mapping[str, Any]:
    """The same with its durations as beats; what is no duration is refused later."""
    if isinstance(inner := given.get("score"), Mapping):
        return {**given, "score": _with_beats(inner, in_beats)}
    counted = {
        part: {
            name: in_beats(one) or one if isinstance(one, str) else one
            for name, one in given[part].items()
        }
        for part in _IN_BEATS
        if isinstance(given.get(part), Mapping)
    }
    return {**given, **counted}
