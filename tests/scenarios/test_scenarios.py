"""Who may do what, told as stories: each `.txt` file here, on both engines, by every reader alike.

`script` says how to read one, and how to write one.
"""

from pathlib import Path

import pytest

from tests.scenarios.script import read
from tests.scenarios.telling import tell

HERE = Path(__file__).parent

on_both_engines = pytest.mark.parametrize(
    "engine", ["memory", pytest.param("nats", marks=pytest.mark.nats)]
)


@pytest.mark.exact_times
@on_both_engines
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("contractor", marks=pytest.mark.req("M13", "M14")),
        "revocation",
        "forged",
        "widened",
        "expired",
        "thursday",
        "other-kinds",
        "replayed",
        pytest.param("recovery", marks=pytest.mark.req("M2", "M3")),
        pytest.param("quarantine", marks=pytest.mark.req("M11")),
        "lease-after-readmission",
        "lease-after-recovery",
        pytest.param("thief", marks=pytest.mark.req("M3")),
        "revoked-caller",
        "delayed",
        pytest.param("owner", marks=pytest.mark.req("M2", "M14")),
        pytest.param("coordinator", marks=pytest.mark.req("M2", "M3", "M15", "M16")),
    ],
)
async def test_the_story_goes_as_it_is_told(engine, name):
    await tell(read(HERE / f"{name}.txt"), engine)


def test_every_story_is_told():
    told = {
        getattr(name, "values", [name])[0]
        for mark in test_the_story_goes_as_it_is_told.pytestmark
        if mark.args[:1] == ("name",)
        for name in mark.args[1]
    }
    assert told == {path.stem for path in HERE.glob("*.txt")}
