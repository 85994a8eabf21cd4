"""Pages of the documentation, typed as they stand."""

import pytest

from tests.acceptance.typed_page import ROOT, Reader

pytestmark = pytest.mark.nats


@pytest.fixture
def reader(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    with Reader(directory) as person:
        yield person


@pytest.mark.slow
def test_the_tutorial_works_as_typed(reader):
    reader.follow((ROOT / "docs/tutorial.md").read_text())


PAGE = """
```console
$ echo 'job 0123abcd ran in 3 s' && echo 5
job 11112222 ran in 0.2 s
5
$ echo 11112222
…
```
"""


def test_a_page_may_differ_in_ids_and_times_and_an_id_stands_for_the_one_that_came(reader):
    reader.follow(PAGE)
    assert reader.ids == {"11112222": "0123abcd"}


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ("job 11112222 ran", "job 11112222 runs"),
        ("\n5\n", "\n6\n"),
        ("\n5\n", "\n"),
        ("\n5\n", "\n5\nand more\n"),
        ("$ echo 'job", "$ false; false 'job"),
        ("in 3 s'", "in 3 s' 11113333"),
    ],
)
def test_a_page_that_says_something_else_is_seen(ours, theirs, reader):
    with pytest.raises(AssertionError):
        reader.follow(PAGE.replace(ours, theirs, 1))


def test_what_is_marked_as_not_run_is_not_run(reader):
    reader.follow(PAGE.replace("```console", "<!-- not run: why -->\n```console"))
    assert reader.ids == {}
