"""Flame graphs of `bench flames`: shares are right, and no machine shows."""

from xml.etree import ElementTree as ET

from bench.flames.flame_graph import frame_name, svg, tree

STACKS = [
    "main (/o/lib/python3.11/asyncio/runners.py:5);turn (/o/src/antiphon/runtime/a.py:7) 30",
    "main (/o/lib/python3.11/asyncio/runners.py:9);turn (/o/src/antiphon/runtime/a.py:8) 50",
    "main (/o/lib/python3.11/asyncio/runners.py:5);sign <C> (nacl/bindings/crypto_sign.py:1) 20",
]


def test_frames_begin_at_their_package():
    assert frame_name("f (/a/b/site-packages/nacl/x.py:3)") == "f (nacl/x.py)"
    assert frame_name("g (antiphon/core/y.py:12)") == "g (antiphon/core/y.py)"
    assert frame_name("h (/somewhere/else/z.py:1)") == "h (z.py)"


def test_samples_of_a_function_are_added_up_whatever_its_line():
    root = tree(STACKS)
    assert root.samples == 100
    (main,) = root.calls.values()
    shares = {name: called.samples for name, called in main.calls.items()}
    assert shares == {
        "turn (antiphon/runtime/a.py)": 80,
        "sign <C> (nacl/bindings/crypto_sign.py)": 20,
    }


def test_the_picture_is_well_formed_and_names_no_place():
    picture = svg(tree(STACKS), "Title & all")
    ET.fromstring(picture)
    assert "80.0%" in picture
    assert "sign &lt;C&gt;" in picture
    assert "/o/" not in picture
