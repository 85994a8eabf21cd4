"""scripts/layers: the drawing of the layers follows from the import contracts."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def script():
    loader = SourceFileLoader("layers_script", str(ROOT / "scripts/layers"))
    module = module_from_spec(spec_from_loader("layers_script", loader))
    loader.exec_module(module)
    return module


def test_the_page_has_the_drawing_of_todays_contracts():
    layers = script()
    page = (ROOT / layers.PAGE).read_text()
    assert layers.page_with(page, layers.drawing(ROOT)) == page, "run scripts/layers --write"


def test_a_layer_that_moves_or_says_something_else_changes_the_drawing(tmp_path):
    layers = script()
    contract = '[[tool.importlinter.contracts]]\ntype = "layers"\ncontainers = ["antiphon"]\n'
    (tmp_path / "pyproject.toml").write_text(contract + 'layers = ["(upper)", "left | right"]\n')
    package = tmp_path / "src/antiphon"
    package.mkdir(parents=True)
    for name in ("upper", "left", "right"):
        (package / f"{name}.py").write_text(f'"""The {name} one. And more."""\n')
    drawn = layers.drawing(tmp_path).splitlines()
    assert [line.count("│") for line in drawn] == [0, 2, 0, 3, 3, 0]
    assert "The upper one" in drawn[1]
    assert drawn[2].count("┬") == drawn[5].count("┴") == 1
    assert {len(line) for line in drawn} == {layers.WIDE + 2}
    (package / "left.py").write_text('"""Something else."""\n')
    assert layers.drawing(tmp_path).splitlines() != drawn


def test_a_page_is_checked_and_brought_up_to_date(tmp_path, monkeypatch, capsys):
    layers = script()
    page = tmp_path / layers.PAGE
    page.parent.mkdir()
    page.write_text(f"before\n{layers.BEGIN}\n{layers.END}\nafter\n")
    monkeypatch.setattr(layers, "ROOT", tmp_path)
    monkeypatch.setattr(layers, "drawing", lambda _root: "drawn")
    assert layers.main(["--check"]) == 1
    assert "scripts/layers --write" in capsys.readouterr().err
    assert layers.main(["--write"]) == layers.main(["--check"]) == 0
    assert page.read_text().count("drawn") == 1
