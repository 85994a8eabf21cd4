"""The probes of `chaos escape`, each once: nothing inside the sandbox reaches anything outside."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.escape.attack import attack
from chaos.escape.probes import PROBES
from chaos.escape.targets import Targets


@contextmanager
def targets(tmp_path: Path):
    tmp_path.chmod(0o755)
    with Targets(tmp_path) as built:
        yield built


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_it_gets_nothing(able, tmp_path, probe):
    with targets(tmp_path) as built:
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
async def test_without_a_sandbox_it_would(able, tmp_path, name):
    (probe,) = (probe for probe in PROBES if probe.name == name)
    with targets(tmp_path) as built:
        got, _ = await attack(probe, built, able, unsafe=True)
    assert got != ""
