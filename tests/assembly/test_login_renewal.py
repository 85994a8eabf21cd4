"""A login is renewed in time by the wall clock, whatever happens to that clock meanwhile."""

import asyncio
import time
from types import SimpleNamespace

from antiphon.assembly import logins
from antiphon.core.authority.scope import Scope
from antiphon.runtime.identity.state_directory import Access, StateDirectory
from tests.runtime.meshes import eventually

HOUR_S = 3_600


async def test_a_clock_that_went_on_while_the_machine_slept_brings_the_renewal_forward(
    tmp_path, monkeypatch
):
    now_s, asked = time.time(), []

    async def log_in(_home, access, kinds):
        asked.append(tuple(kinds))
        return access

    home = StateDirectory(tmp_path)
    access = Access(
        user="U", refresh_jwt="x", refresh_seed="y", scope=Scope(until_s=int(now_s) + HOUR_S)
    )
    home.write_access(access)
    monkeypatch.setattr(logins, "AGAIN_S", 0.01)
    monkeypatch.setattr(logins, "LOOK_S", 0.01)
    monkeypatch.setattr(logins, "log_in", log_in)
    monkeypatch.setattr(logins, "time", SimpleNamespace(time=lambda: now_s))
    async with logins.keep_fresh(home, access, ["render"]):
        await asyncio.sleep(0.1)
        assert asked == []
        now_s += HOUR_S
        await eventually(lambda: asked)
    assert asked[0] == ("render",)
