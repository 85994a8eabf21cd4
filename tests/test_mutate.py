"""`python -m tests.mutate`: what is drawn, what is not, and that a mutant is noticed."""

import ast
import textwrap

import pytest

from tests.mutate.__main__ import figures
from tests.mutate.changes import changed, changes, probed
from tests.mutate.mutants import ROOT, Mutant, Tree, draw, equivalents, named
from tests.mutate.nearest import IMPORTS, MENTIONS, SAME_NAME, Nearness
from tests.mutate.survey import survey
from tests.mutate.trial import Trial, Trials


def all_changes(source):
    """What each change would make of a piece of source."""
    keys = [change.key for change in changes(ast.parse(textwrap.dedent(source)))]
    return [ast.unparse(changed(textwrap.dedent(source), key)) for key in keys]


@pytest.mark.parametrize(
    "before, after",
    [
        ("a < b", "a <= b"),
        ("a is None", "a is not None"),
        ("a and b", "a or b"),
        ("not a", "a"),
        ("a[1:]", "a[:]"),
        ("a + b", "a - b"),
        ("f(3)", "f(2)"),
        ("f(3)", "f(4)"),
        ("f(on=True)", "f(on=False)"),
        ("a if b else c", "a if not b else c"),
        ("close()", "pass"),
        ("if a == b:\n    raise E", "if False:\n    raise E"),
        ("raise E", "pass"),
        ("def f(n=1):\n    return n", "def f(n=2):\n    return n"),
        ("def f(n=1):\n    return n", "def f(n=1):\n    return None"),
        ("def f(n) -> bool:\n    return n", "def f(n) -> bool:\n    return not n"),
        ("while a:\n    continue", "while a:\n    break"),
    ],
)
def test_what_is_drawn(before, after):
    assert ast.unparse(ast.parse(after)) in all_changes(before)


@pytest.mark.parametrize(
    "source",
    [
        '"""About 3 things."""',
        "x: Annotated[int, 3]",
        "if TYPE_CHECKING:\n    import a",
        "assert a < 3",
        "_log.info('seen', times=3)",
        "MAX_BYTES = 2 * 1024",
        "MAX_BYTES: Final = 2 * 1024",
        "LIMITS: Final = Limits(room='all', heard=64)",
        "within_ms: int = 500",
        "@dataclass(frozen=True)\nclass A(Struct, frozen=True):\n    pass",
        "def __repr__(self):\n    return self.a + 1",
        "x = Option(show=False, hint='a' if b else 'c')",
        "def f(timeout=3):\n    pass",
    ],
)
def test_what_is_not_drawn(source):
    assert all_changes(source) == []


def test_seconds_are_not_drawn_and_what_is_raised_is_not():
    assert all_changes("x = wait(timeout=3)") == []
    assert all_changes("raise E(f'at most {n + 1}', left=3)") == ["pass"]


def test_a_probe_stands_in_front_of_each_statement_and_changes_nothing():
    source = 'def f(n):\n    """Says."""\n    if n > 1:\n        return n + 1\n    return 0\n'
    keys = [change.key for change in changes(ast.parse(source))]
    calls = {key: f"seen.append({key!r})" for key in keys}
    seen: list[str] = []
    known = {"seen": seen}
    exec(compile(probed(source, calls), "f.py", "exec"), known)
    assert (known["f"](1), known["f"].__doc__) == (0, "Says.")
    assert {key.split(":")[0] for key in seen} == {"3", "5"}
    assert known["f"](2) == 3
    assert set(seen) == set(keys)


def mutant(**others):
    said = {"path": "src/a.py", "key": "3:4:compare", "function": "f", "is_probed": True}
    return Mutant(**{**said, "said": "a < b", "was": "a < b", "becomes": "a <= b", **others})


def test_the_closing_line_names_each_survivor_and_how_to_replay_it():
    lost, caught = mutant(), mutant(key="9:4:compare")
    said = figures([lost, caught, mutant()], [Trial(lost, ""), Trial(caught, "tests/a.py::t")])
    assert [said[key] for key in ("mutants", "equivalent", "noticed")] == [3, 1, 1]
    (survivor,) = said["survivors"]
    assert (survivor["file"], survivor["line"]) == ("src/a.py", 3)
    assert survivor["replay"] == "python -m tests.mutate --only src/a.py:3:4:compare"


def test_every_change_that_was_judged_equivalent_is_still_there():
    for each in equivalents():
        source = (ROOT / each.file).read_text(encoding="utf-8")
        lines = [line.strip() for line in source.splitlines()]
        assert each.line in lines, each
        assert each.why
        keys = [change.key for change in changes(ast.parse(source))]
        there = [key for key in keys if lines[int(key.partition(":")[0]) - 1] == each.line]
        assert any(each.is_of(named(Tree(ROOT), f"{each.file}:{key}")) for key in there), each


# --- a small package --------------------------------------------------------------------------

SHOP = '''
"""Prices."""

FREE_FROM = 100


def total(price: int, count: int = 1) -> int:
    if count < 0:
        raise ValueError(f"not {count}")
    return price * count


def fee(price: int) -> int:
    return 0 if price >= FREE_FROM else 5
'''
CHECKS = """
import pytest
from shop.prices import total

def test_a_total():
    assert total(3, 2) == 6
    assert total(3) == 3
    with pytest.raises(ValueError):
        total(3, -1)
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "checks").mkdir()
    (tmp_path / "src" / "shop" / "__init__.py").write_text("")
    (tmp_path / "src" / "shop" / "prices.py").write_text(SHOP.lstrip())
    (tmp_path / "checks" / "test_prices.py").write_text(CHECKS)
    (tmp_path / "checks" / "test_total.py").write_text("def test_it():\n    total = 3\n")
    (tmp_path / "checks" / "test_shop.py").write_text("import shop.prices\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = src\nmarkers =\n    nats\n    processes\n    slow\n"
    )
    return Tree(tmp_path, "src/shop", "checks")


def test_the_same_seed_draws_the_same_and_few_are_the_first_of_many(shop):
    assert draw(shop, 4, 7) == draw(shop, 4, 7)
    assert draw(shop, 9, 7)[:4] == draw(shop, 4, 7)
    assert draw(shop, 4, 8) != draw(shop, 4, 7)
    assert len({(one.path, one.line) for one in draw(shop, 99, 7)}) == len(draw(shop, 99, 7))
    with pytest.raises(LookupError, match="nothing can be changed there"):
        named(shop, "src/shop/prices.py:1:0:compare")


def test_files_of_the_same_name_are_nearest_then_those_that_import_it(shop):
    near = Nearness(shop).of("src/shop/prices.py")
    assert near == {
        "checks/test_prices.py": SAME_NAME,
        "checks/test_shop.py": IMPORTS,
    } | {"checks/test_total.py": near["checks/test_total.py"]}
    assert near["checks/test_total.py"] <= MENTIONS


@pytest.mark.processes
async def test_a_mutant_is_noticed_if_a_test_asks_for_it_and_survives_otherwise(shop):
    keys = ("9:4:value", "13:40:number")
    drawn = [named(shop, f"src/shop/prices.py:{key}") for key in keys]
    noticed, survivor = await Trials(shop, 1).run(drawn, is_quick=True)
    assert noticed.noticed_by == "checks/test_prices.py::test_a_total"
    assert (survivor.mutant.function, survivor.noticed_by) == ("fee", "")
    assert (shop.root / "src/shop/prices.py").read_text() == SHOP.lstrip(), "nothing is written"


@pytest.mark.processes
async def test_a_run_without_mutants_says_which_tests_reach_what(shop):
    total, fee = (named(shop, f"src/shop/prices.py:{key}") for key in ("9:4:value", "13:4:value"))
    found = await survey(shop, [total, fee], ["checks"], {}, 1)
    assert found.seconds.keys() == {
        "checks/test_prices.py::test_a_total",
        "checks/test_total.py::test_it",
    }
    assert found.reached == {total.name: {"checks/test_prices.py::test_a_total"}}
