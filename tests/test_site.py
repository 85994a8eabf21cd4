"""scripts/site: what it checks besides the links, which the generator checks in strict mode."""

import re
import shutil
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import antiphon
from antiphon.core.families.jobs.state import TERMINAL, State
from antiphon.sdk.connection.namespace import Namespace

ROOT = Path(__file__).resolve().parent.parent


def script(name="site"):
    loader = SourceFileLoader(f"{name}_script", str(ROOT / "scripts" / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # where its types are looked up by name
    loader.exec_module(module)
    return module


def test_the_menu_has_every_page_and_one_that_it_lacks_is_seen(tmp_path):
    site = script()
    assert site.left_out(ROOT) == []
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/new.md").touch()
    assert site.left_out(tmp_path) == ["docs/new.md"]


def test_the_reference_has_every_public_name_once():
    site = script()
    pages = site.python_pages()
    own = [text for topic, text in pages.items() if topic not in {"namespaces", "testing"}]
    named = re.findall(r"^::: .*\.(\w+)$", "\n".join(own), re.MULTILINE)
    assert sorted(named) == sorted(antiphon.__all__)
    errors = re.findall(r"^::: .*\.(\w+)$", pages["errors"], re.MULTILINE)
    assert [name for name in errors if not issubclass(getattr(antiphon, name), BaseException)] == []
    attributes = vars(antiphon.Mesh).items()
    assert set(site.NAMESPACES) == {name for name, one in attributes if isinstance(one, Namespace)}


def test_programs_find_every_page_as_markdown_with_a_sentence(tmp_path):
    listed = script().for_programs(source_of_site(tmp_path / "source"), tmp_path / "site")
    pages = re.findall(r"^- \[[^]]+\]\(([^)]+)\): (.*)$", listed, re.MULTILINE)
    assert {"docs/learn/tutorial.md", "docs/reference/settings.md"} <= {page for page, _ in pages}
    assert [page for page, words in pages if len(words) < 15] == []
    copied = [page for page, _ in pages if page.endswith(".md")]
    assert [page for page in copied if not (tmp_path / "site" / page).is_file()] == []
    assert {"docs/reference/python/mesh.html"} <= {page for page, _ in pages}


def source_of_site(folder):
    """The pages as they are laid out, without the one that is made from the code."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name in script().BESIDE:
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "README.md", folder / "index.md")
    (folder / "docs/reference/python").mkdir()
    for topic, text in script().python_pages().items():
        (folder / f"docs/reference/python/{topic}.md").write_text(text)
    return folder


def test_a_question_is_one_click_from_the_first_page_and_its_long_answer_two():
    page = ROOT / "docs/learn/common-questions.md"
    answers = page.read_text()
    first = script().landing((ROOT / "README.md").read_text(), answers)
    linked = re.findall(r"\(docs/learn/common-questions\.md#([a-z0-9-]+)\)", first)
    sections = re.split(r"^## ", answers, flags=re.MULTILINE)[1:]
    assert len(set(linked)) == len(linked) == len(sections) >= 10
    for section, anchor in zip(sections, linked, strict=True):
        question, _, answer = section.partition("\n")
        assert anchor == re.sub(r"[^a-z0-9]+", "-", question.lower()).strip("-")
        long = re.findall(r"\]\(([^)#]+)", answer)
        assert long, question
        assert [one for one in long if not (page.parent / one).is_file()] == []


def test_the_first_page_says_all_that_the_readme_says():
    readme = (ROOT / "README.md").read_text()
    first = script().landing(readme, "").replace("** ", "**: ").replace("{ .in-light }", "")
    assert set(readme.split()) <= set(first.split())


def test_a_page_that_loads_from_another_host_is_seen(tmp_path):
    site = script()
    page = tmp_path / "a.html"
    page.write_text(
        '<a href="https://a.example">x</a><script src="../b.js"></script>'
        '<link rel="stylesheet" href="c.css"><link rel=canonical href="https://a.example/">'
    )
    assert site.fetched(tmp_path) == []
    for more in (
        '<script defer src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/f.css">',
        '<link href="https://fonts.example" rel="preconnect">',
        "<img src=https://a.example/i.png>",
    ):
        page.write_text(more)
        assert len(site.fetched(tmp_path)) == 1, more


def test_the_page_of_the_command_line_is_what_the_commands_say():
    reference = script("cli-reference")
    assert reference.PAGE.read_text() == reference.page(), "scripts/cli-reference --write"


def test_the_charts_are_what_the_figures_say():
    figures = script("figures")
    for chart in figures.charts():
        path = figures.PICTURES / f"{chart.name}.svg"
        assert path.read_text() == figures.drawn(chart), "scripts/figures --write"


def test_the_diagrams_are_what_their_texts_say():
    diagrams = script("diagrams")
    for text in diagrams.TEXTS.glob("*.txt"):
        path = diagrams.PICTURES / f"diagram-{text.stem}.svg"
        assert path.read_text() == diagrams.drawn(text.read_text()), "scripts/diagrams --write"


def test_the_diagram_of_a_jobs_life_has_its_states_and_ops():
    text = (script("diagrams").TEXTS / "job-life.txt").read_text()
    drawn = dict(re.findall(r"^(\w+) at .*?( ends)?$", text, re.MULTILINE))
    assert set(drawn) == {state.value for state in State}
    assert {name for name, ends in drawn.items() if ends} == {state.value for state in TERMINAL}
    ops = set(re.findall(r"[a-z]+", " ".join(re.findall(r"> \w+: (.*)", text))))
    assert {"offer", "claim", "start", "complete", "yield", "expire", "cancel", "resolve"} <= ops
