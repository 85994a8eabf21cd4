"""Why a manifest was refused, in words for the person who wrote it.

The core alone decides what a manifest is (`core.manifest.author`). This module runs after the core
has refused one. It looks for the mistakes that people make, and says what to write instead. It
refuses nothing itself, so it cannot disagree with the core.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from antiphon.core.manifest import MAX_INPUTS, MAX_TIMEOUT_S, MAX_WORDS, Manifest, seconds
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.errors import Malformed

Path = tuple[str | int, ...]


class Mistake(NamedTuple):
    """What is wrong, where, and what to write instead."""

    path: Path
    sentence: str
    hint: str
    at_name: bool = False
    """It is about the name of the field, not about its value."""


FIELDS: Final = Manifest.__struct_fields__
CLOSE: Final = 0.7
"""How similar two names must be for one to be a misspelling of the other."""

# What people look for in a manifest, and where it is given instead.
_ELSEWHERE: Final = {
    "kind": "give the kind when you submit it: --kind render.video",
    "priority": "give the priority when you submit it: --priority high",
    "attempts": "give the attempts when you submit it: --attempts 3",
    "retry": "give the attempts when you submit it: --attempts 3",
    "lease": "give the lease when you submit it: --lease 60",
    "nonce": "--again makes the same manifest a new job",
    "alias": "a name for people is a 'ulid'; --alias makes one",
    "id": "a job's id follows from its manifest and is not written into it",
    "shell": "a shell is a command like any other: command: [sh, -c, 'echo hello']",
    "script": "a shell is a command like any other: command: [sh, -c, 'echo hello']",
    "run": "a shell is a command like any other: command: [sh, -c, 'echo hello']",
}
_MISSING: Final = {
    "command": ("there is no 'command'", "command: [echo, hello]"),
    "timeout": ("there is no 'timeout'", "timeout: 30 (whole seconds; 0 is no limit)"),
}
# Forms that the core checks by pattern or bound: what each is, and an example.
_FORMS: Final = {
    "cwd": ("a path of 1 to 4096 characters", "cwd: src"),
    "outputs": ("a list of globs, each of 1 to 1024 characters", "outputs: ['*.txt']"),
    "secrets": (
        "a list of names in letters, digits, '_', '.' and '-'",
        "secrets: [registry-token]",
    ),
    "network": ("true or false", "network: true"),
    "policy_root": ("'sha256:' and 64 hex digits in lower case", "policy_root: 'sha256:9f86…'"),
    "ulid": (
        "a ULID: 26 digits and capital letters",
        "ulid: 01ARZ3NDEKTSV4RRFFQ69G5FAV, or leave it out and use --alias",
    ),
    "kind": ("'blobptr' or 'nonce'", "kind: blobptr"),
    "algo": ("'blake3'", "algo: blake3"),
    "hash": ("a BLAKE3 digest: 64 hex digits", "hash: 'blake3:af13…'"),
    "size": ("a whole number of bytes", "size: 1024"),
    "name": ("a file name of 1 to 255 characters", "name: data.csv"),
    "nonce": ("16 to 64 hex digits in lower case", "nonce: '0123456789abcdef'"),
    "origin": ("'key' or 'random'", "origin: key"),
}
_INPUT_FIELDS: Final = {
    "blobptr": (("algo", "hash"), ("kind", "algo", "hash", "size", "name")),
    "nonce": (("nonce",), ("kind", "nonce", "origin")),
}


def explain(fields: dict[str, Any], problem: Malformed) -> Mistake:
    """The first mistake in what was written, because of which the core refused it."""
    for mistake in _mistakes(fields):
        return mistake
    return _in_the_cores_words(problem)


def said(path: Path) -> str:
    """A path as a person would write it: inputs[0].hash."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


# --- the manifest -----------------------------------------------------------------------------


def _mistakes(fields: dict[str, Any]) -> Iterator[Mistake]:
    for name in fields:
        if name not in FIELDS:
            yield _unknown((name,), FIELDS, _ELSEWHERE.get(name))
    for name, (sentence, hint) in _MISSING.items():
        if name not in fields:
            yield Mistake((), sentence, hint)
    for name, value in fields.items():
        path: Path = (name,)
        match name:
            case "command" | "args" | "outputs" | "secrets":
                yield from _in_words(path, value)
            case "timeout":
                yield from _in_timeout(path, value)
            case "env":
                yield from _in_env(path, value)
            case "inputs":
                yield from _in_inputs(path, value)
            case "network":
                if not isinstance(value, bool):
                    yield _unfit(path)
            case _:
                yield from _in_text(path, value)


def _unknown(path: Path, known: tuple[str, ...], instead: str | None = None) -> Mistake:
    name = str(path[-1])
    if instead is None and re.match(r"\w+:\S", name):
        instead = "put a space after the ':'"
    if instead is None:
        close = get_close_matches(name.lower(), known, n=1, cutoff=CLOSE)
        instead = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(known)}"
    return Mistake(path, f"there is no field '{_short(name)}'", instead, at_name=True)


def _in_words(path: Path, value: Any) -> Iterator[Mistake]:
    name = said(path)
    if isinstance(value, str):
        yield Mistake(
            path,
            f"'{name}' is one text; it takes a list, a word each",
            f"{name}: {json.dumps(_split(value), ensure_ascii=False)}",
        )
    elif not isinstance(value, list):
        yield Mistake(
            path, f"'{name}' is {described(value)}; it takes a list of words", f"{name}: [a, b]"
        )
    elif not value and name == "command":
        yield Mistake(path, "'command' is empty", "command: [echo, hello]")
    elif len(value) > MAX_WORDS:
        yield Mistake(
            path,
            f"'{name}' has {len(value):,} words; the limit is {MAX_WORDS:,}",
            "put many arguments into an input file",
        )
    else:
        for at, item in enumerate(value):
            if not isinstance(item, str):
                yield _not_text((*path, at), item)


def _in_timeout(path: Path, value: Any) -> Iterator[Mistake]:
    usual = "whole seconds (timeout: 30), or ISO-8601: PT30S, PT5M, PT1H30M, P1D"
    given = value
    if isinstance(value, str):
        try:
            given = seconds(value)
        except Malformed:
            number = re.match(r"\s*(\d{1,9})\s*([a-z]*)", value.lower())
            hint = usual
            if number is not None and (guess := _guessed(int(number[1]), number[2])) is not None:
                hint = f"timeout: {guess}, or {usual.partition('or ')[2]}"
            yield Mistake(path, f"{_short(value)!r} is not a duration", hint)
            return
    if not isinstance(given, int) or isinstance(given, bool):
        yield Mistake(path, f"'timeout' is {described(value)}; it takes whole seconds", usual)
    elif given < 0:
        yield Mistake(path, "'timeout' is negative", "timeout: 0 means no limit")
    elif given > MAX_TIMEOUT_S:
        yield Mistake(
            path,
            f"a timeout of {_short(str(value))} is longer than a year",
            f"up to {MAX_TIMEOUT_S} seconds; 0 means no limit",
        )


def _guessed(number: int, unit: str) -> int | None:
    """What '30 seconds' or '5min' may have meant."""
    for begins, length_s in (("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)):
        if unit.startswith(begins) and not unit.startswith(("ms", "mil", "mo")):
            return number * length_s
    return None


def _in_env(path: Path, value: Any) -> Iterator[Mistake]:
    if not isinstance(value, dict):
        yield Mistake(
            path,
            f"'env' is {described(value)}; it takes names and values",
            "env: {GREETING: hello}",
        )
        return
    for name, item in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,255}", name, re.ASCII):
            yield Mistake(
                (*path, name),
                f"'{_short(name)}' is not a valid name for an environment variable",
                "use letters, digits and _ only, not beginning with a digit",
                at_name=True,
            )
        if not isinstance(item, str):
            yield _not_text((*path, name), item)


def _in_inputs(path: Path, value: Any) -> Iterator[Mistake]:
    example = "inputs: [{kind: blobptr, algo: blake3, hash: 'blake3:af13…'}]"
    if not isinstance(value, list):
        yield Mistake(path, f"'inputs' is {described(value)}; it takes a list", example)
        return
    if len(value) > MAX_INPUTS:
        yield Mistake(path, f"{len(value):,} inputs; at most {MAX_INPUTS:,}", "pack them into one")
    for at, item in enumerate(value):
        where = (*path, at)
        if not isinstance(item, dict):
            yield Mistake(where, f"an input is a mapping, not {described(item)}", example)
        elif item.get("kind") not in _INPUT_FIELDS:
            inner = (*where, "kind") if "kind" in item else where
            yield Mistake(inner, "an input's 'kind' is 'blobptr' or 'nonce'", example)
        else:
            yield from _in_input(where, item)


def _in_input(path: Path, item: dict[str, Any]) -> Iterator[Mistake]:
    required, known = _INPUT_FIELDS[item["kind"]]
    for name in item:
        if name not in known:
            yield _unknown((*path, name), known)
    for name in required:
        if name not in item:
            yield Mistake(path, f"this input has no '{name}'", _FORMS[name][1])
    for name, value in item.items():
        if name == "size":
            if not isinstance(value, int) or isinstance(value, bool):
                yield _unfit((*path, name))
        else:
            yield from _in_text((*path, name), value)


def _in_text(path: Path, value: Any) -> Iterator[Mistake]:
    if not isinstance(value, str):
        yield _not_text(path, value)


# --- values -----------------------------------------------------------------------------------


def _not_text(path: Path, value: Any) -> Mistake:
    sentence = f"'{said(path)}' is {described(value)}; it takes text"
    match value:
        case None:
            return Mistake(path, sentence, "an empty text is '', and ~ or null as text is '~'")
        case bool() | int() | float():
            return Mistake(path, sentence, f'put it in quotes: "{json.dumps(value)}"')
        case _:
            return Mistake(path, sentence, "put it in quotes if it is text")


def described(value: Any) -> str:
    """What was written, by its type."""
    match value:
        case None:
            return "left empty"
        case bool():
            return json.dumps(value)
        case int() if abs(value) > MAX_INTEGER:
            return "a number that does not fit into 53 bits"
        case int():
            return f"the number {value}"
        case float():
            return f"the fraction {value}"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text[:200])
    except ValueError:
        return text[:200].split()


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - a line of a terminal


# --- other errors ---------------------------------------------------------------------------------

_AT: Final = re.compile(r" - at `(?:key` in `)?\$(?P<path>[^`]*)`")
_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]")


def _in_the_cores_words(problem: Malformed) -> Mistake:
    """A refusal that names a path gets its form in words; any other stays as it is."""
    found = _AT.search(problem.message)
    path: Path = ()
    if found is not None:
        path = tuple(step["name"] or int(step["index"]) for step in _STEP.finditer(found["path"]))
    if path and path[-1] in _FORMS:
        return _unfit(path)
    return Mistake(path, problem.message, problem.hint or "antiphon submit --help shows one")


def _unfit(path: Path) -> Mistake:
    what, example = _FORMS[str(path[-1])]
    return Mistake(path, f"'{said(path)}' is not valid: it must be {what}", example)
