"""Recovery: the new recovery key is in somebody's hands before the old one stops counting."""

from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from antiphon.assembly import recovery
from antiphon.core.families.mesh.ops import MeshCoordinator, MeshRoute, MeshRules
from antiphon.errors import OutcomeUnknown, Rejected
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh

pytestmark = pytest.mark.nats


class Place:
    """A hosted mesh, and what its recoveries have shown."""

    def __init__(self, home: StateDirectory, seed: bytes, owner: Mesh) -> None:
        self.home, self.seed, self.owner = home, seed, owner
        self.shown: list[bytes] = []

    async def control(self):
        return await self.owner.connection.session.sync_control()

    async def recover(self, seed: bytes | None = None, show=None) -> hosted_mesh.Recovered:
        return await hosted_mesh.recover(
            self.home, seed or self.seed, show=show or self.shown.append
        )

    def kept(self) -> set[str]:
        return {path.name for path in (self.home.path / "keys").glob("*-next.key")}


@asynccontextmanager
async def a_place(tmp_path):
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(tmp_path / "owner", name="lost", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=tmp_path / "owner"))
        yield Place(StateDirectory(tmp_path / "owner"), hosted.hosted.recovery_seed, owner)


@pytest.mark.parametrize("given", ["the old key", "the new key"])
async def test_a_recovery_whose_answer_is_lost_goes_on_when_run_again(tmp_path, monkeypatch, given):
    write = recovery.write_one

    async def unheard(*what):
        await write(*what)
        raise OutcomeUnknown("no answer came")

    async with a_place(tmp_path) as at:
        old = (await at.control()).owner
        monkeypatch.setattr(recovery, "write_one", unheard)
        with pytest.raises(OutcomeUnknown) as caught:
            await at.recover()
        assert "antiphon recover" in caught.value.hint
        assert at.kept() == {"owner-next.key", "recovery-next.key"}
        monkeypatch.setattr(recovery, "write_one", write)
        done = await at.recover(at.seed if given == "the old key" else at.shown[0])
        control = await at.control()
        assert at.shown == [done.recovery_seed] * 2
        assert (done.owner, done.replaced) == (control.owner, old)
        assert control.recovery == SeedKeyring(done.recovery_seed).did
        assert at.home.signer("owner").did == control.owner
        assert at.kept() == set()
        again = await at.recover(done.recovery_seed)
        assert again.replaced == done.owner
        assert (await at.control()).owner == again.owner


async def test_a_recovery_that_ended_before_its_commit_begins_again_with_the_same_keys(tmp_path):
    async with a_place(tmp_path) as at:
        before = await at.control()

        def ends(seed):
            at.shown.append(seed)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await at.recover(show=ends)
        assert (await at.control()).owner == before.owner
        done = await at.recover()
        assert at.shown == [done.recovery_seed] * 2


async def test_the_new_key_is_shown_while_the_old_one_still_counts(tmp_path):
    async with a_place(tmp_path) as at:
        seqs = []

        def show(seed):
            assert "recovery-next.key" in at.kept()
            assert at.owner.connection.session.control.recovery != SeedKeyring(seed).did
            seqs.append(at.owner.connection.session.history.applied)

        await at.control()
        await at.recover(show=show)
        assert at.owner.connection.session.history.applied == seqs[0]
        assert (await at.control()).since > seqs[0]


async def test_a_wrong_key_makes_nothing(tmp_path):
    async with a_place(tmp_path) as at:
        with pytest.raises(Rejected, match="not the recovery key"):
            await at.recover(bytes(32))
        assert at.shown == []
        assert at.kept() == set()


async def test_what_the_old_key_left_in_force_is_listed(tmp_path):
    thief = SeedKeyring(b"\x07" * 32).did
    async with a_place(tmp_path) as at:
        old = (await at.control()).owner
        async with with_authority(at.home.path) as mesh:
            await mesh.authority.set_coordinator(thief)
            await mesh.authority.set_route("render.video", thief)
            await mesh.authority.set_route("render.still", thief)
            await mesh.authority.set_route("render.still", None)
            await mesh.authority.set_rules({"attempts": 7})
            await mesh.authority.set_rules({"attempts": 8, "yields_max": 4})
            await mesh.authority.set_rules({"yields_max": 32})
        review = (await at.recover()).review
        control = await at.control()
        assert (review.coordinator.before, review.coordinator.by) == (thief, old)
        assert review.coordinator.now == control.coordinator
        (route,) = review.routes
        assert (route.name, route.now, route.by) == ("render.video", thief, old)
        (rule,) = review.rules
        assert (rule.name, rule.before, rule.now, rule.by) == ("attempts", 3, 8, old)
        kinds = [MeshCoordinator, MeshRoute, MeshRules]
        for one, kind in zip((review.coordinator, route, rule), kinds, strict=True):
            opened = await at.owner.connection.session.fetch_opened(one.seq)
            assert isinstance(opened.op, kind)
            assert one.commit_ms == opened.commit_ms
