"""Manifests that people write: YAML or JSON in, the closed manifest out (spec §7.1).

The same content is the same job, however it is written: order, quotes, comments and line ends do
not matter. What could be read in two ways is refused instead, with its place and what to write.
The core decides what a manifest is; this module only reads it and explains the refusals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from antiphon.core.manifest import (
    Manifest,
    author,
    core_bytes,
    job_id,
    stored_arguments,
    with_nonce,
)
from antiphon.core.record import codec
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.sdk.defaults import MANIFEST_SUFFIXES
from antiphon.sdk.manifests.manifest_errors import described, explain
from antiphon.sdk.manifests.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Document, read_yaml
from antiphon.sdk.manifests.yaml_errors import Place, objection

if TYPE_CHECKING:
    from antiphon.sdk.manifests.strict_yaml import Path as FieldPath

MAX_CORE_BYTES: Final = codec.MAX_OP_BYTES - 32 * 1024
"""A manifest travels inside an op, which needs room for other fields."""


def read_manifest(source: str | bytes | Path) -> Manifest:
    """The manifest in a text or, given a `Path`, in a file; `Malformed` says what is wrong where.

    A text that is JSON is read as JSON, whatever its file is called; anything else is YAML,
    unless the name ends in `.json`.
    """
    name = str(source) if isinstance(source, Path) else ""
    try:
        return _manifest_of(read_document(source))
    except Malformed as problem:
        if not name:
            raise
        joint = ", " if problem.message.startswith("line ") else ": "
        message = f"{name}{joint}{problem.message}"
        raise Malformed(message, reason=problem.reason, hint=problem.hint) from problem


def read_document(source: str | bytes | Path) -> Document:
    """What is written in a text or a file, and where; by the same rules as a manifest."""
    text = _text_of(source)
    is_json = isinstance(source, Path) and source.name.lower().endswith(".json")
    return _read_json(text) if is_json else _read_either(text)


def again(manifest: Manifest, nonce: str = "") -> Manifest:
    """The same content as a new job: a nonce (16 to 64 hex digits) is hashed with it.

    The new job does not get the alias, which names the first one.
    """
    nonce = nonce or SystemEntropy().token(16).hex()
    return with_nonce(msgspec.structs.replace(manifest, ulid=msgspec.UNSET), nonce, "random")


def with_alias(manifest: Manifest) -> Manifest:
    """The same job with a new ULID, unless it has one: an alias for people, never hashed."""
    if not isinstance(manifest.ulid, msgspec.UnsetType):
        return manifest
    from ulid import ULID

    return msgspec.structs.replace(manifest, ulid=str(ULID()))


def alias_of(manifest: Manifest) -> str | None:
    """The ULID in a manifest."""
    return None if isinstance(manifest.ulid, msgspec.UnsetType) else manifest.ulid


def require_handler_call(manifest: Manifest) -> None:
    """`Malformed` for a manifest that names a handler with arguments that no handler takes.

    A handler's arguments are one JSON text with sorted keys and no spaces, in which floats keep
    their point (spec §7.1); another spelling of the same arguments would be another job. Where
    they are stored, the input named `arguments` is that text.
    """
    from antiphon.runtime.executors.handler_call import call_of, call_text

    if manifest.handler is None:
        return
    if len(manifest.command) > 1:
        raise Malformed(
            f"after {manifest.command[0]} the command has more words, which a handler ignores",
            reason="manifest",
            hint="a handler's arguments go into 'args'",
        )
    stored = stored_arguments(manifest)
    if stored is not None:
        if isinstance(stored.size, msgspec.UnsetType):
            raise Malformed(
                "the input named arguments does not say its size, so no worker reads it",
                reason="manifest",
                hint="give the input its 'size' in bytes",
            )
        return
    try:
        args, kwargs = call_of(manifest)
        right = call_text(tuple(args), kwargs)
        sentence = "a handler's argument is JSON with sorted keys and no spaces, and this is not"
    except Malformed:
        right = call_text(tuple(map(_json_or_text, manifest.args)), {})
        sentence = "a handler takes its arguments as one JSON text"
    if manifest.args != (right,):
        quoted = right.replace("'", "''")
        raise Malformed(sentence, reason="manifest", hint=f"args: ['{quoted}']")


def _json_or_text(word: str) -> Any:
    try:
        return codec.parse_json(word)
    except Malformed:
        return word


# --- bytes to text ----------------------------------------------------------------------------


def _text_of(source: str | bytes | Path) -> str:
    raw = _load(source) if isinstance(source, Path) else source
    if isinstance(raw, str):
        raw = raw.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_BYTES:
        raise objection(
            None,
            f"this is more than {MAX_BYTES // 1024} KiB",
            hint="put large data into an input, by its digest",
            reason="size",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise objection(
            None,
            f"this is not UTF-8 text; the first invalid byte is on line {line}",
            hint="save it as UTF-8",
            reason="text",
        ) from problem


def _load(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Misconfigured(
            f"there is no file {path}",
            hint=f"a manifest's file ends in {', '.join(MANIFEST_SUFFIXES)}",
        ) from None
    except OSError as problem:
        raise Misconfigured(
            f"{path} cannot be read: {problem.strerror}", hint="give a file that you can read"
        ) from problem


# --- text to fields ---------------------------------------------------------------------------


def _read_either(text: str) -> Document:
    if text.lstrip()[:1] == "{":
        try:
            return _read_json(text)
        except _NotJson:
            pass  # a mapping in YAML's flow style begins the same way
    return read_yaml(text)


class _NotJson(Malformed):
    """The text breaks JSON's syntax, so it may still be YAML."""


def _read_json(text: str) -> Document:
    """By the project's own parser; then the standard one checks for what that does not report.

    Neither is enough alone: the first keeps the last of two equal keys silently and turns large
    numbers into fractions, the second accepts what is not JSON.
    """
    try:
        value = codec.parse_json(text)
    except Malformed as problem:
        _inspect(text)  # knows the line
        problem.hint = "half of a surrogate pair is not a character: write both, or the character"
        raise
    _bound(value)
    _inspect(text)
    return Document(value, {}, {})


def _inspect(text: str) -> None:
    try:
        json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as problem:
        place = Place(problem.lineno, problem.colno)
        raise _NotJson(
            f"{place}: this is not JSON: {problem.msg}",
            reason="json",
            hint="JSON needs double quotes, no comments, and no comma at the end of a list",
        ) from problem
    except RecursionError as problem:
        raise _NotJson(
            f"nested deeper than {MAX_DEPTH}", reason="json", hint="a manifest needs three levels"
        ) from problem


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise Malformed(
                f"'{name[:60]}' is written twice", reason="json", hint="keep one of the two"
            )
        fields[name] = value
    return fields


def _integer(digits: str) -> int:
    if len(digits) > len(str(-codec.MAX_INTEGER)):
        _too_large()
    number = int(digits)
    if abs(number) > codec.MAX_INTEGER:
        _too_large()
    return number


def _too_large() -> NoReturn:
    raise Malformed(
        "a number does not fit into 53 bits", reason="json", hint="put it in quotes if it is text"
    )


def _no_constant(name: str) -> Any:
    raise Malformed(
        f"{name} is not JSON", reason="json", hint=f'put it in quotes if it is text: "{name}"'
    )


def _bound(value: Any) -> None:
    """The bounds of YAML apply to JSON too: one manifest, one set of limits."""
    level, count = [value], 1
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for part in level
            if isinstance(part, (dict, list))
            for item in (part.values() if isinstance(part, dict) else part)
        ]
        count += len(level)
        if count > MAX_VALUES:
            raise Malformed(
                f"more than {MAX_VALUES:,} values",
                reason="json",
                hint="put large data into an input, by its digest",
            )
    if level:
        raise Malformed(
            f"nested deeper than {MAX_DEPTH}", reason="json", hint="a manifest needs three levels"
        )


# --- fields to a manifest ---------------------------------------------------------------------


def _manifest_of(written: Document) -> Manifest:
    fields = written.value
    if not isinstance(fields, dict):
        hint = "command: [echo, hello]"
        if isinstance(fields, str) and re.match(r"\w+:\S", fields):
            hint = "put a space after the ':'"
        raise objection(
            written.values.get(()),
            f"a manifest is made of 'name: value' fields, and this is {described(fields)}",
            hint=hint,
            reason="manifest",
        )
    try:
        manifest = author(fields)
    except Malformed as problem:
        mistake = explain(fields, problem)
        place = place_of(written, mistake.path, at_name=mistake.at_name)
        raise objection(place, mistake.sentence, hint=mistake.hint, reason="manifest") from problem
    size = len(core_bytes(manifest))
    if size > MAX_CORE_BYTES:
        raise objection(
            None,
            f"the manifest has {size:,} bytes as JSON; the limit is {MAX_CORE_BYTES:,}",
            hint="put large data into an input, by its digest",
            reason="size",
        )
    return manifest


def place_of(written: Document, path: FieldPath, *, at_name: bool) -> Place | None:
    """Where a field is, or the nearest thing around it; None for JSON, which has no places."""
    if at_name and path in written.keys:
        return written.keys[path]
    while path and path not in written.values:
        path = path[:-1]
    return written.values.get(path)


__all__ = [
    "MAX_BYTES",
    "Manifest",
    "again",
    "alias_of",
    "job_id",
    "place_of",
    "read_document",
    "read_manifest",
    "require_handler_call",
    "with_alias",
]
