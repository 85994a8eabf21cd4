"""Files that are made to exhaust a reader, and every manifest there could be, written as YAML."""

import json
import re
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.manifest import MAX_INPUTS, author, core_bytes, job_id
from antiphon.errors import Malformed
from antiphon.sdk.manifests import strict_yaml
from antiphon.sdk.manifests.authored_manifest import MAX_BYTES, read_manifest
from tests.core.strategies import THOROUGH, manifests
from tests.cpu_cost import times_the_cost

SIZE = MAX_BYTES - 64


def lines(pattern, count):
    return "".join(pattern.format(at, at - 1) for at in range(1, count))


BOMBS = {
    "lists in lists": "[" * SIZE,
    "mappings in mappings": "{a: " * (SIZE // 4),
    "lists in lists, line by line": "[\n" * (SIZE // 2),
    "block lists": "- " * (SIZE // 2),
    "block keys": "? " * (SIZE // 2),
    "steps": "".join(" " * at + "a:\n" for at in range(500)),
    "JSON in JSON": '{"a":' * (SIZE // 5),
    "a billion laughs": "a0: &a0 [x]\n" + lines("a{0}: &a{0} [*a{1}, *a{1}]\n", 64),
    "anchors": lines("- &a{0} x\n", SIZE // 14),
    "aliases": "[" + "*a," * (SIZE // 3) + "]",
    "merges": "<<: [" + "*a," * (SIZE // 3) + "]",
    "tag directives": lines("%TAG !e{0}! x\n", SIZE // 20),
    "directives after the end": "a: b\n...\n" + lines("%TAG !e{0}! x\n", SIZE // 20),
    "directives": "%X y\n" * (SIZE // 5),
    "documents": "---\n" * (SIZE // 4),
    "one long word": "a: " + "x" * (SIZE - 3),
    "one long quoted text": 'a: "' + "\\x41" * (SIZE // 4 - 2) + '"',
    "one long block": "a: |\n" + " x\n" * (SIZE // 3 - 2),
    "one long name": "x" * (SIZE - 3) + ": 1",
    "one long number": "timeout: " + "9" * (SIZE - 9),
    "one long number in JSON": '{"timeout":' + "9" * (SIZE - 12) + "}",
    "many names": lines("k{0}: 1\n", SIZE // 12),
    "many names in env": "command: [a]\ntimeout: 1\nenv:\n" + lines(" K{0}: a\n", SIZE // 14),
    "many names in JSON": "{" + lines('"k{0}":1,', SIZE // 14) + '"k":1}',
    "one name, often": "{" + '"a":1,' * (SIZE // 6 - 2) + '"a":1}',
    "many values": "[" + "a," * (SIZE // 2 - 2) + "]",
    "many values in JSON": '{"args":[' + "1," * (SIZE // 2 - 10) + "1]}",
    "many pairs": "[" + "a: b," * (SIZE // 5 - 2) + "]",
    "nothing but dashes": "-\n" * (SIZE // 2),
    "nothing but colons": ": " * (SIZE // 2),
    "nothing but spaces": " " * SIZE,
    "nothing but lines": "\n" * SIZE,
    "nothing but comments": "#\n" * (SIZE // 2),
    "a command of quotes": 'timeout: 1\ncommand: "' + '\\" ' * (SIZE // 4) + '"',
    "too large": "# " + "x" * MAX_BYTES,
    "too large as JSON": json.dumps({"command": ["x" * (MAX_BYTES - 40)], "timeout": 1}),
}


def largest_manifest(inputs=MAX_INPUTS):
    full = {"kind": "blobptr", "algo": "blake3", "hash": "0" * 64, "size": 1, "name": "a"}
    return {"command": ["a"] * 100, "timeout": 1, "inputs": [full] * inputs}


def as_yaml(written):
    return "# YAML\n" + written.replace('"', "'").replace(":", ": ")


LARGEST = json.dumps(largest_manifest()).replace(" ", "")


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_costs_little_more_than_the_largest_manifest(bomb):
    text = BOMBS[bomb]
    assert bomb.startswith("too large") or len(text) <= MAX_BYTES
    with pytest.raises(Malformed) as refusal:
        read_manifest(text)
    assert len(refusal.value.message) < 300
    assert len(refusal.value.hint) < 1000

    def refuse():
        with suppress(Malformed):
            read_manifest(text)

    part = as_yaml(json.dumps(largest_manifest(inputs=MAX_INPUTS // 8)).replace(" ", ""))
    cost = times_the_cost(refuse, of=lambda: read_manifest(part), rounds=2)
    assert cost < 8 * 4, refusal.value.message


def test_the_bounds_leave_room_for_every_manifest():
    assert len(LARGEST) < MAX_BYTES
    named = job_id(author(largest_manifest()))
    assert job_id(read_manifest(LARGEST)) == named
    assert job_id(read_manifest(as_yaml(LARGEST))) == named


@pytest.mark.parametrize("depth", [strict_yaml.MAX_DEPTH, strict_yaml.MAX_DEPTH + 1])
@pytest.mark.parametrize("comment", ["", "# YAML\n"])
def test_json_and_yaml_are_bounded_alike(depth, comment):
    text = comment + '{"args":' + "[" * (depth - 1) + "1" + "]" * (depth - 1) + "}"
    with pytest.raises(Malformed) as refusal:
        read_manifest(text)
    assert ("deeper" in refusal.value.message) == (depth > strict_yaml.MAX_DEPTH)


# --- every manifest, written in every way ------------------------------------------------------

BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
RESERVED = {"true", "false", "null"}
QUOTABLE = re.compile("[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]*")


def escaped(text):
    """In double quotes, with an escape for all that is not plain."""
    return '"' + "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\'
        else f"\\U{ord(char):08X}"
        for char in text
    ) + '"'  # fmt: skip


@st.composite
def spellings(draw, value, indent=0):
    """A value as somebody might have written it in YAML."""
    match value:
        case int():
            return str(value)
        case str():
            ways = [escaped(value)]
            if QUOTABLE.fullmatch(value):
                ways.append("'" + value.replace("'", "''") + "'")
            if BARE.fullmatch(value) and value.lower() not in RESERVED:
                ways.append(value)
            return draw(st.sampled_from(ways))
        case list():
            parts = [draw(spellings(item, indent + 2)) for item in value]
            mark, brackets = "- ", "[]"
        case dict():
            names = draw(st.permutations(list(value)))
            parts = [
                f"{draw(spellings(name))}: {draw(spellings(value[name], indent + 2))}"
                for name in names
            ]
            mark, brackets = "", "{}"
    in_block = parts and not any("\n" in part for part in parts) and draw(st.booleans())
    if in_block and (isinstance(value, list) or indent):
        comment = draw(st.sampled_from(["", "  # a comment"]))
        return "".join(f"\n{' ' * indent}{mark}{part}{comment}" for part in parts)
    if any("\n" in part for part in parts):
        return "".join(f"\n{' ' * indent}{mark}{part}" for part in parts)
    return f"{brackets[0]}{', '.join(parts)}{brackets[1]}"


@st.composite
def documents(draw, fields):
    names = draw(st.permutations(list(fields)))
    text = "".join(f"{name}: {draw(spellings(fields[name], 2))}\n" for name in names)
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@pytest.mark.req("P3")
@THOROUGH
@given(st.data(), manifests)
def test_every_manifest_reads_back_as_itself(data, plain):
    fields = json.loads(msgspec.json.encode(plain))
    text = data.draw(documents(fields))
    assert read_manifest(text) == plain, text
    assert core_bytes(read_manifest(text)) == core_bytes(plain)
    ascii_only = data.draw(st.booleans())
    as_json = json.dumps(
        fields, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 2]))
    )
    assert read_manifest(as_json) == plain
