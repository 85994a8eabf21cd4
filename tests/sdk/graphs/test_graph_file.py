"""Graphs of commands in a file: what they mean, and what is refused where."""

import pytest

from antiphon import Malformed, Misconfigured
from antiphon.sdk.graphs.graph_file import read_graph

FILE = """\
kind: ci
steps:
  release:
    command: [sh, -c, "cat app.txt report.txt > release.txt"]
    inputs:
      app.txt: {step: build}
      report.txt: {step: test, output: stdout}
    needs: [lint]
  build:
    command: [make]
    args: [all]
    kind: ci.build
    outputs: [app.txt]
    timeout: PT5M
    attempts: 3
  test:
    command: [./test.sh]
    inputs: {app.txt: {step: build}, cases.txt: cases.txt}
  lint:
    command: [lint]
    any_outcome: true
    concurrency: licence
"""


def read(tmp_path, text=FILE, name="graph.yaml"):
    for one in ("cases.txt", "test.sh"):
        (tmp_path / one).write_text("1")
    (tmp_path / name).write_text(text)
    return read_graph(tmp_path / name)


@pytest.mark.req("M19")
def test_each_step_comes_after_those_that_it_waits_for(tmp_path):
    steps = {step.name: step for step in read(tmp_path)}
    assert list(steps) == ["lint", "build", "test", "release"]
    assert steps["release"].before == ("lint", "build", "test")
    assert steps["release"].files["report.txt"] == ("test", "stdout")
    assert steps["build"].kind == "ci.build"
    assert steps["test"].kind == "ci"
    assert steps["test"].files["cases.txt"] == tmp_path / "cases.txt"
    assert steps["test"].files["test.sh"] == tmp_path / "test.sh"
    assert steps["build"].options == {"attempts": 3}
    assert steps["lint"].options == {"concurrency": "licence", "any_outcome": True}


WRONG = [
    ("app.txt: {step: build}\n", "app.txt: {step: biuld}\n", "line 6, column 16: there is no step"),
    ("needs: [lint]", "needs: [lnt]", "line 8, column 13: there is no step 'lnt'"),
    ("needs: [lint]", "needs: lint", "line 8, column 12: 'needs' is a list"),
    ("any_outcome", "any_outcom", "line 21, column 5: there is no field 'any_outcom'"),
    ("any_outcome: true", "any_outcome: 1", "line 21, column 18: 'any_outcome' is not"),
    ("concurrency: licence", "concurrency: A B", "line 22, column 18: 'A B' is not a label"),
    ("command: [lint]", "command: lint", "line 20, column 14: 'command' is one text"),
    ("kind: ci\n", "kind: C I\n", "line 1, column 7: 'C I' is not a kind"),
    ("attempts: 3", "attempts: 0", "line 15, column 15: these retry options"),
    ("attempts: 3", "needs: [release]", "line 3, column 3: steps wait in a circle: 'release'"),
    ("timeout: PT5M", "timeout: soon", "line 14, column 14: 'soon' is not a duration"),
    ("outputs: [app.txt]", "cwd: src", "step 'build' keeps no files"),
    ("[./test.sh]", "[./gone.sh]", "line 17, column 15: there is no file"),
    ("[./test.sh]", "[./test.sh, graph.yaml]", "line 17, column 14: graph.yaml is a file here"),
    ("steps:", "stepz:", "line 2, column 1: there is no field 'stepz'"),
    ("{step: test, output: stdout}", "3", "line 7, column 19: the number 3 is neither"),
    ("{step: test, output: stdout}", "{output: a}", "an input from a step names the step"),
    ("  lint:\n", "  build:\n", "'build' is written twice"),
]


@pytest.mark.req("M19")
@pytest.mark.parametrize("old, new, words", WRONG, ids=[new for _, new, _ in WRONG])
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, words):
    assert old in FILE
    with pytest.raises(Malformed, match=words) as refused:
        read(tmp_path, FILE.replace(old, new, 1))
    assert str(refused.value).startswith(str(tmp_path / "graph.yaml"))
    assert refused.value.hint


def test_a_file_that_is_missing_is_told_before_anything_is_sent(tmp_path):
    with pytest.raises(Misconfigured, match=r"there is no file .*nothing\.txt"):
        read(tmp_path, FILE.replace("cases.txt: cases.txt", "cases.txt: nothing.txt"))


def test_the_same_graph_can_be_json(tmp_path):
    text = '{"steps": {"a": {"command": ["true"]}, "b": {"command": ["true"], "needs": ["a"]}}}'
    steps = read(tmp_path, text, "graph.json")
    assert [(step.name, step.kind, step.before) for step in steps] == [
        ("a", "command", ()),
        ("b", "command", ("a",)),
    ]


def test_a_graph_without_steps_is_refused(tmp_path):
    for text in ("kind: ci\n", "steps: {}\n", "steps: [a]\n", "hello\n", "steps: {a: 3}\n"):
        with pytest.raises(Malformed):
            read(tmp_path, text)
