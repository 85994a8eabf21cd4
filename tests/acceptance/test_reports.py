"""`antiphon report`, as typed: bars are reported while a node runs."""

import asyncio

import pytest

from antiphon import Mesh
from tests.acceptance.shell import Shell, until

pytestmark = pytest.mark.nats

POLICY = {"initial_bpm": 240, "bar_len_beats": 4, "limits": {"min_bpm": 60, "max_bpm": 240}}
"""A bar is one second."""


async def set_tempo(home):
    async with Mesh.open(home=home, key="owner") as mesh:
        await mesh.tempo.set(POLICY)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    typed = Shell(tmp_path_factory.mktemp("project"))
    with typed.dev():
        asyncio.run(set_tempo(typed.home))
        yield typed


def tempi(shell):
    return [one["tempo_bpm"] for one in shell.run("report", "--json").json["reports"]]


@pytest.mark.req("B4", "B22", "B23")
def test_bars_are_reported_and_shown_with_their_figures(shell):
    until(lambda: tempi(shell)[-1:] == [240])
    job = shell.run("submit", "example.add", "2", "3", "--json").json["job"]
    assert set(shell.run("report", "--json").json["kpis"]) == {
        "tnt",
        "bpd",
        "wr",
        "eta",
        "pmr",
        "cpd",
        "ttfu",
    }
    shown = shell.run("report", "--last", "2")
    assert shown.code == 0
    assert "240 bpm" in shown.out
    assert "beats per result" in shown.out
    assert shell.run("report", ";beats=~~100000", "--json").json["reports"] == []
    until(lambda: shell.run("report", job, "--json").json["reports"])
    old = shell.run("report", ";bar=12#beat=3", "--json")
    assert "deprecated" in old.err
    assert len(old.json["reports"]) >= 1
    future = shell.run("report", ";beats=^^4")
    assert future.code != 0
    assert "in the future" in future.err
