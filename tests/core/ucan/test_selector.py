"""Where a statement looks."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.ucan.budget import Budget
from antiphon.core.ucan.selector import UNRESOLVED, Selector
from antiphon.errors import Malformed
from tests.core.ucan.principals import BRISK

MAIL = {
    "from": "alice@example.com",
    "to": ["bob@example.com", "carol@not.example.com", "dan@example.com"],
    "cc": ["fraud@example.com"],
    "raw": bytes.fromhex("d6a9c18cf8c4"),
    "nothing": None,
    "a.b": {"$_*": 1, "1": 2, "": 3, 'q"]': 4, "é\n": 5},
    "deep": {"bb": 2, "a": 1, "c": [{"d": 7}]},
}


def select(text, value=MAIL):
    return Selector(text).select(value, Budget())


@pytest.mark.parametrize(
    "text, found",
    [
        (".", MAIL),
        (".?", MAIL),
        (".from", MAIL["from"]),
        (".cc", ["fraud@example.com"]),
        (".to[1]", "carol@not.example.com"),
        (".to[-1]", "dan@example.com"),
        (".to[-3]", "bob@example.com"),
        (".to[99]?", None),
        (".to[99]???", None),
        (".raw[3]", 140),
        (".raw[-1]", 0xC4),
        (".raw[1:3]", bytes.fromhex("a9c1")),
        (".to[1:]", MAIL["to"][1:]),
        (".to[:1]", MAIL["to"][:1]),
        (".to[0:-2]", MAIL["to"][:1]),
        (".to[2:1]", []),
        (".to[5:9]", []),
        (".to[-99:99]", MAIL["to"]),
        (".from[0:5]", "alice"),
        ('.["a.b"]["$_*"]', 1),
        ('.["a.b"]["1"]', 2),
        ('.["a.b"][""]', 3),
        (r'.["a.b"]["q\"]"]', 4),
        (r'.["a.b"]["\u00e9\n"]', 5),
        (".deep.c[0].d", 7),
        (".to[]", MAIL["to"]),
        (".deep[]", [1, [{"d": 7}], 2]),  # a, c, bb: DAG-CBOR's order
        (".deep[][0]", 1),
        (".missing", None),
        (".missing?", None),
        (".nothing", None),
        (".from.x?", None),
        (".missing.x?", None),
        (".missing?.x?", None),
        (".from[]?", None),
        (".nothing[0]?", None),
    ],
)
def test_selectors_find(text, found):
    assert select(text) == found
    assert type(select(text)) is type(found)


@pytest.mark.parametrize(
    "text",
    [
        ".to[99]",
        ".to[-4]",
        ".to.length",
        ".from[0]",
        ".from.x",
        ".from[]",
        ".raw[]",
        ".raw[6]",
        ".deep[0]",
        ".deep[0:1]",
        ".missing.x",
        ".missing?.x",
        ".missing.x.y?",
        ".nothing[]",
        ".to[99].x?",
    ],
)
def test_selectors_do_not_find(text):
    assert select(text) is UNRESOLVED


def test_the_bytes_example_of_the_specification():
    assert select(".[3]", bytes.fromhex("d6a9c18cf8c4")) == 140
    assert select(".[0]", [7]) == 7
    assert select(".x", [7]) is UNRESOLVED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "[0]",
        "..",
        "..foo",
        ".foo..bar",
        ".foo.",
        ".foo.[0]",
        ".foo bar",
        ".foo*bar",
        ".1a",
        ".-a",
        ".[",
        ".[]]",
        ".[:]",
        ".[1:2:3]",
        ".[--1]",
        ".[1.5]",
        ".[٣]",
        ".['a']",
        '.["a]',
        '.["a"',
        r'.["\x"]',
        r'.["\ud800"]',
        '.["a\nb"]',
        "?.a",
        ".a?b",
        ". ",
        ".[" + "9" * 16 + "]",
        "." + "a" * 256,
        ".a" * 33,
    ],
)
def test_other_text_is_no_selector(text):
    with pytest.raises(Malformed):
        Selector(text)


@BRISK
@given(st.text('.[]"\\?:-0123aé*$_ ', max_size=20), st.text(max_size=3))
def test_noise_is_a_selector_or_malformed(text, tail):
    for each in (text, "." + text, "." + text + tail):
        with suppress(Malformed):
            select(each)
