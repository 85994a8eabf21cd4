"""The lines that benchmarks draw."""

from itertools import pairwise
from xml.etree import ElementTree as ET

from bench.measurement.line_chart import Line, Panel, svg


def drawn(*panels):
    return ET.fromstring(svg("Jobs & time", panels, "jobs", "how"))


def points(line):
    return [tuple(map(float, one.split(","))) for one in line.get("points").split()]


def test_each_panel_has_a_scale_of_its_own_and_zero_is_at_its_foot():
    picture = drawn(
        Panel("rates", [Line("ours", [0, 10], [0.0, 1_000.0])]),
        Panel("memory", [Line("worker", [0, 10], [0.0, 5.0])]),
    )
    first, second = (points(one) for one in picture.findall("{*}polyline"))
    assert first[0][1] - first[1][1] == second[0][1] - second[1][1] > 0


def test_names_of_lines_that_end_at_one_place_do_not_cover_each_other():
    picture = drawn(Panel("all", [Line(name, [0, 1], [1.0, 1.0]) for name in "abc"]))
    heights = sorted(
        float(one.get("y")) for one in picture.findall("{*}text") if one.text in {"a", "b", "c"}
    )
    assert all(later - earlier >= 12 for earlier, later in pairwise(heights))


def test_lines_of_zeros_are_drawn_too():
    assert len(drawn(Panel("none", [Line("refused", [0], [0.0])])).findall("{*}polyline")) == 1
