"""A program's own tokens: one for each bar."""

from types import SimpleNamespace

import pytest

from antiphon import Mesh
from antiphon.core.bar_tokens.bar_count import BarCount
from antiphon.core.bar_tokens.bar_token import Bearer, Refusal, check
from antiphon.core.tempo.meter import Meter
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.http.bar_tokens import BarTokens
from tests.sdk.authority.test_delegation import as_

STRANGER = SeedKeyring(bytes([9]) * 32)


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


def used(mesh: Mesh, token: str, meter: Meter, now_ms: int) -> Bearer | Refusal:
    bars = BarCount.of(meter)
    return check(token, control=mesh.connection.session.control, bars=bars, now_ms=now_ms)


@pytest.mark.req("B20")
async def test_a_token_is_renewed_on_every_downbeat_and_the_last_one_ends():
    meter = Meter()
    async with Mesh.open(engine="memory") as mesh:
        now = meter.downbeat_after(mesh.connection.session.wall.now_ms())
        clock = Clock(now)
        tokens = BarTokens(mesh, project="build", meter=lambda: meter, wall=clock)
        first = tokens.token()
        clock.now = now + meter.bar_ms - 1
        assert tokens.token() == first, "the same for the whole bar"
        clock.now = now + meter.bar_ms
        second = tokens.token()
        assert second != first
        assert isinstance(used(mesh, first, meter, clock.now), Bearer), "both are good for a bar"
        clock.now = now + 2 * meter.bar_ms
        assert used(mesh, first, meter, clock.now) is Refusal.LATE
        assert isinstance(used(mesh, second, meter, clock.now), Bearer)
        assert isinstance(used(mesh, tokens.token(), meter, clock.now), Bearer)


@pytest.mark.req("B20")
async def test_when_the_tempo_changes_the_next_token_comes_with_the_new_downbeat():
    slow = Meter()
    async with Mesh.open(engine="memory") as mesh:
        now = slow.downbeat_after(mesh.connection.session.wall.now_ms())
        clock, meters = Clock(now), [slow]
        tokens = BarTokens(mesh, meter=lambda: meters[-1], wall=clock)
        first = tokens.token()
        meters.append(Meter(bpm=24, anchor_ms=now + slow.bar_ms))
        clock.now = now + slow.bar_ms
        second = tokens.token()
        clock.now += meters[-1].bar_ms
        third = tokens.token()
        assert len({first, second, third}) == 3


@pytest.mark.req("B20")
async def test_a_process_that_hears_no_beats_makes_one_for_each_moment():
    """By its own count a bar could begin long before the mesh's: such a token would be late."""
    fast = Meter(bpm=24)
    async with Mesh.open(engine="memory") as mesh:
        clock = Clock(fast.downbeat_after(mesh.connection.session.wall.now_ms()) + fast.bar_ms - 1)
        tokens = BarTokens(mesh, wall=clock)
        token = tokens.token()
        clock.now += fast.bar_ms
        assert isinstance(used(mesh, token, fast, clock.now), Bearer), "it lasts for a bar"
        assert tokens.token() != token
        clock.now += fast.bar_ms
        assert used(mesh, token, fast, clock.now) is Refusal.LATE


async def test_clients_take_it_as_their_auth():
    async with Mesh.open(engine="memory") as mesh:
        tokens = BarTokens(mesh)
        request = SimpleNamespace(headers={"Accept": "text/plain"})
        assert tokens(request) is request
        assert set(request.headers) == {"Accept", "Authorization"}
        assert request.headers["Authorization"].startswith("Bearer ")
        assert tokens.token() not in repr(tokens)


async def test_a_key_without_delegations_gets_none_and_learns_what_to_do():
    async with Mesh.open(engine="memory") as mesh, as_(mesh, STRANGER) as other:
        with pytest.raises(Rejected, match="no permission to 'read' in project 'build'") as refused:
            BarTokens(other, project="build").token()
        assert refused.value.reason == "no_chain"
        assert "antiphon who" in refused.value.hint


def test_roles_and_projects_are_checked_before_anything_is_asked():
    with pytest.raises(Malformed, match="'root' is not a role"):
        BarTokens(None, role="root")
    with pytest.raises(Malformed, match=r"'build\.\*' is not a project"):
        BarTokens(None, project="build.*")
