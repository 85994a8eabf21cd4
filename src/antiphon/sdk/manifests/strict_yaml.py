"""A strict subset of YAML: mappings, lists and plain values, and the place of each.

It accepts what JSON could express. Anchors, aliases, tags, directives, second documents and
duplicate keys are refused, and so is everything that two YAML readers may read differently. Words
mean what YAML 1.2 says: `yes` and `2026-01-01` are text. Size, depth and number of values are
bounded, and the parser is stopped at the first event past a bound, so no input can exhaust memory.

The parser is libyaml, through PyYAML, and no other: a file must not mean one job here and another
there. PyYAML is imported when YAML is read, not before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from antiphon.core.record.codec import MAX_INTEGER
from antiphon.errors import Malformed, Misconfigured
from antiphon.sdk.manifests.yaml_errors import Place, not_yaml, objection

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 8
"""A manifest needs three."""
MAX_VALUES: Final = 12_288
"""As many inputs as a manifest may have, with every field, and a thousand other values."""
MAX_KEY: Final = 256

Path = tuple[str | int, ...]


class Document(NamedTuple):
    """What was read, and the places of its parts, by path."""

    value: Any
    values: dict[Path, Place]
    keys: dict[Path, Place]


def read_yaml(text: str) -> Document:
    """The one document in `text`, or `Malformed` with the place and what to write instead."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise objection(
            None,
            f"this is more than {MAX_BYTES // 1024} KiB of YAML",
            hint="put large data into an input, by its digest",
        )
    _refuse_characters(text)
    yaml = _libyaml()
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    try:
        return _Reader(events, yaml).document()
    except yaml.MarkedYAMLError as problem:
        raise not_yaml(problem, text) from problem
    except yaml.YAMLError as problem:
        raise objection(None, f"this is not YAML: {problem}", hint="write it as JSON") from problem
    finally:
        events.close()


def _libyaml() -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        yaml = None
    if yaml is None or not yaml.__with_libyaml__:
        raise Misconfigured(
            "YAML cannot be read here: PyYAML with libyaml is missing",
            hint="write the manifest as JSON, or: pip install --force-reinstall PyYAML",
        )
    return yaml


# --- before parsing ---------------------------------------------------------------------------

# What YAML forbids, and what YAML 1.1 reads as a line break while JSON and YAML 1.2 do not.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
# The parser's time for directives grows with their square, so it never sees any.
_DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)


def _refuse_characters(text: str) -> None:
    found = _FORBIDDEN.search(text)
    if found is not None:
        code = ord(found[0])
        escape = f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - a byte
        raise objection(
            _place_of(text, found.start()),
            f"the character U+{code:04X} must be escaped in YAML",
            hint=f'write it in double quotes as "{escape}"',
        )
    found = _DIRECTIVE.search(text)
    if found is not None:
        raise objection(
            _place_of(text, found.start()),
            "directives (%) are not supported",
            hint="remove the line, or indent it if it is text",
        )


def _place_of(text: str, at: int) -> Place:
    before = re.split(r"\r\n|\r|\n", text[:at])
    return Place(len(before), len(before[-1]) + 1)


# --- events to values -------------------------------------------------------------------------


class _Reader:
    """Builds a document from the parser's events, and refuses what is not allowed."""

    def __init__(self, events: Iterator[Any], yaml: Any) -> None:
        self._events = events
        self._yaml = yaml
        self._count = 0
        self._values: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}

    def document(self) -> Document:
        next(self._events)  # the stream begins
        event = next(self._events)
        if isinstance(event, self._yaml.StreamEndEvent):
            raise objection(None, "it is empty", hint="command: [echo, hello]")
        value = self._node(next(self._events), ())
        next(self._events)  # the document ends
        event = next(self._events)
        if not isinstance(event, self._yaml.StreamEndEvent):
            raise objection(
                _start(event),
                "a second document begins here",
                hint="one file is one manifest: remove the '---' between them",
            )
        return Document(value, self._values, self._keys)

    def _node(self, event: Any, path: Path) -> Any:
        place = self._values[path] = _start(event)
        self._admit(event, place)
        if isinstance(event, self._yaml.ScalarEvent):
            return _value(event, place)
        if len(path) >= MAX_DEPTH:
            raise objection(
                place, f"nested deeper than {MAX_DEPTH}", hint="a manifest needs three levels"
            )
        if isinstance(event, self._yaml.MappingStartEvent):
            return self._mapping(path)
        return self._sequence(path)

    def _admit(self, event: Any, place: Place) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise objection(
                place,
                f"more than {MAX_VALUES:,} values",
                hint="put large data into an input, by its digest",
            )
        if isinstance(event, self._yaml.AliasEvent):
            raise objection(
                place,
                f"*{event.anchor} refers to another part of the file: aliases are not supported",
                hint=f"write it out, or put it in quotes if it is text: '*{event.anchor}'",
            )
        if event.anchor is not None:
            raise objection(
                place,
                f"&{event.anchor} names a part of the file: anchors are not supported",
                hint=f"remove it, or put it in quotes if it is text: '&{event.anchor}'",
            )
        if event.tag is not None:
            raise objection(
                place,
                "a word that begins with ! is a tag, and tags are not supported",
                hint="remove it, or put the text in quotes",
            )

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while True:
            event = next(self._events)
            if isinstance(event, self._yaml.SequenceEndEvent):
                return items
            items.append(self._node(event, (*path, len(items))))

    def _mapping(self, path: Path) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while True:
            event = next(self._events)
            if isinstance(event, self._yaml.MappingEndEvent):
                return fields
            key = self._key(event)
            inside = (*path, key)
            place = _start(event)
            if key in fields:
                raise objection(
                    place,
                    f"'{key}' is written twice; first on line {self._keys[inside].line}",
                    hint="keep one of the two",
                )
            self._keys[inside] = place
            fields[key] = self._node(next(self._events), inside)

    def _key(self, event: Any) -> str:
        place = _start(event)
        self._admit(event, place)
        if not isinstance(event, self._yaml.ScalarEvent):
            raise objection(
                place,
                "a name is text, and this is a list or a mapping",
                hint="if it is text with braces or brackets, put it in quotes",
            )
        if len(event.value) > MAX_KEY:
            raise objection(
                place,
                f"a name has {len(event.value):,} characters; the limit is {MAX_KEY}",
                hint="is a ': ' missing before it?",
            )
        key = _value(event, place)
        if key == "<<" and not event.style:
            raise objection(
                place, "merging with << is not supported", hint="write the fields themselves"
            )
        if not isinstance(key, str):
            shown = event.value or "nothing"
            raise objection(
                place,
                f"a name is text, and {shown} is read as {_what(key)}",
                hint=f"put it in quotes: '{event.value}'",
            )
        return key


def _start(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


# --- words to values --------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
# What YAML 1.2 reads as a number although JSON cannot write it, and fractions.
_OTHER_NUMBER: Final = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_LONGEST_NUMBER: Final = 40
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _value(event: Any, place: Place) -> Any:
    """What a scalar means: quoted it is text, bare it may be a number, true, false or nothing."""
    text: str = event.value
    if event.style:
        return text
    if event.start_mark.line != event.end_mark.line:
        raise objection(
            place,
            "this text continues over several lines without quotes",
            hint="put it in quotes, or begin a new '- ' or 'name: ' if it is not one text",
        )
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if len(text) > _LONGEST_NUMBER:
        if re.fullmatch(r"[-+]?[0-9]+", text):
            raise _too_large(place)
        return text
    if _INTEGER.fullmatch(text):
        number = int(text)
        if abs(number) > MAX_INTEGER:
            raise _too_large(place)
        return number
    if _OTHER_NUMBER.fullmatch(text):
        has_fraction = re.fullmatch(r"[-+]?[0-9]+|0[xo][0-9a-fA-F]+", text) is None
        raise objection(
            place,
            f"{text} is not a whole number"
            if has_fraction
            else f"{text} is a number in a form that YAML readers do not agree on",
            hint=f"write a whole number such as 30, or put it in quotes if it is text: '{text}'",
        )
    return text


def _too_large(place: Place) -> Malformed:
    return objection(
        place,
        "this number does not fit into 53 bits",
        hint="put it in quotes if it is text",
    )


def _what(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case None:
            return "no value"
        case _:
            return "a number"
