"""The probes of `chaos escape`, each once: nothing in there reaches anything out here."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.escape import attack
from chaos.escape_probes import PROBES
from chaos.escape_scene import Scene


@contextmanager
def scene(tmp_path: Path):
    tmp_path.chmod(0o755)
    with Scene(tmp_path) as built:
        yield built


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_it_gets_nothing(able, tmp_path, probe):
    with scene(tmp_path) as built:
        got, ended = await attack(probe, built, able, unsafe=False)
    assert got == ""
    assert ended.isolation.level == "sandbox"


@pytest.mark.parametrize(
    "name",
    [
        "read the key",
        "state among the tools",
        "lift the mask",
        "env leak",
        "signal the worker",
        "network UDP",
    ],
)
async def test_without_a_room_it_would_have(able, tmp_path, name):
    (probe,) = (probe for probe in PROBES if probe.name == name)
    with scene(tmp_path) as built:
        got, _ = await attack(probe, built, able, unsafe=True)
    assert got != ""
