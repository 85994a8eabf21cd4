"""The namespaces of a mesh: what each is called, what it costs to have it, and where it is told."""

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from antiphon import BlockingMesh, Mesh
from antiphon.sdk.connection.namespace import Namespace

ROOT = Path(__file__).resolve().parents[3]
MOST_NAMES = 40
"""A person can read as many in a list. What belongs together goes into a namespace."""
NAMESPACES = {name: one for name, one in vars(Mesh).items() if isinstance(one, Namespace)}


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def test_a_mesh_is_one_class_with_few_names():
    assert Mesh.__bases__ == (object,)
    assert len(public(Mesh)) <= MOST_NAMES, "put it into a namespace, or into a new one"
    assert len(NAMESPACES) >= 8


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_says_what_it_is_and_has_a_page(name):
    kind = NAMESPACES[name].load()
    assert kind.__doc__
    told = sys.modules[kind.__module__].__doc__
    assert told.startswith(f"`mesh.{name}`: ")
    (page,) = re.findall(r"\(docs/([\w/-]+\.md)\)", told.partition("\n")[0])
    assert f"mesh.{name}" in (ROOT / "docs" / page).read_text()


async def test_a_namespace_is_made_once_and_outlives_the_connection():
    mesh = Mesh.open(engine="memory")
    before = mesh.locks
    for _ in range(2):
        async with mesh:
            assert mesh.locks is before
            assert await before.list() == []


@pytest.mark.processes
def test_a_program_loads_only_the_namespaces_that_it_uses():
    program = (
        "import sys; from antiphon import Mesh; mesh = Mesh.open(engine='memory'); mesh.memory;"
        "print(*sorted(name for name in sys.modules if name.endswith('.namespace')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [
        "antiphon.sdk.connection.namespace",
        "antiphon.sdk.memory.namespace",
    ]


def test_a_blocking_mesh_has_the_same_namespaces():
    assert set(NAMESPACES) <= set(vars(BlockingMesh))


@pytest.mark.processes
def test_the_types_of_the_blocking_namespaces_are_those_of_the_async_ones():
    loader = SourceFileLoader("blocking_types", str(ROOT / "scripts/blocking-types"))
    spec = spec_from_loader(loader.name, loader)
    script = module_from_spec(spec)
    loader.exec_module(script)
    assert script.stub() == script.STUB.read_text(), "run scripts/blocking-types --write"
