"""A member that fills the log is named: in a full node's log, and by doctor."""

import pytest
from structlog.testing import capture_logs

from antiphon.core.authority import write_volume
from antiphon.core.authority.grant_terms import Terms
from antiphon.interfaces.cli.checks.log import writes_findings
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node import write_volume_watch
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.write_volume import written_lately
from tests.runtime.meshes import KIND, a_mesh, call, eventually

FEW = Terms(can=("schedule",), kinds=("junk.x",), alias="contractor")


@pytest.mark.nats
async def test_a_member_that_writes_junk_on_its_own_kind_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(write_volume, "REFUSED_BYTES", 1_000_000)
    monkeypatch.setattr(write_volume_watch, "LOOK_EVERY_MS", 0)
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with (
        hosted_mesh.found_and_host(tmp_path / "owner", name="v", listen=listen) as hosted,
        Mesh.open(home=tmp_path / "owner") as owner,
        owner.node() as node,
        hosted.gate(node),
    ):
        assert writes_findings(await written_lately(owner))[0].level == "ok"
        home = StateDirectory(tmp_path / "member")
        ticket = hosted_mesh.invite(StateDirectory(tmp_path / "owner"), FEW)
        await hosted_mesh.redeem(home, ticket, alias="contractor")
        member = home.signer("machine").did[-8:]
        with capture_logs() as logs:
            async with Mesh.open(home=home.path) as mesh:
                for number in range(5):
                    subject = f"ap.{mesh.id}.jobs.1.junk.x.{number:064x}".encode()
                    header = b"NATS/1.0\r\n\r\n"
                    junk = b"j" * 300_000
                    await mesh.connection.session.log.requester.write(
                        subject, junk, header, timeout_s=10
                    )
            await eventually(lambda: any(one["event"] == "write_volume_high" for one in logs))
        (said,) = (one for one in logs if one["event"] == "write_volume_high")
        assert (said["kind"], said["refused_mib"]) == ("junk", 1)
        assert f"contractor {member}" in said["by"]
        assert "antiphon revoke" in said["hint"]
        (found,) = writes_findings(await written_lately(owner))
        assert found.level == "warning"
        assert "1.5 MB on kinds of 'junk'" in found.sentence
        assert f"contractor {member}" in found.sentence
        assert "antiphon revoke" in found.hint


async def test_a_replica_counts_as_a_node_does_that_was_there(monkeypatch):
    monkeypatch.setattr(write_volume, "AUTHOR_BYTES", 50_000)
    async with a_mesh("memory") as mesh:
        node = await mesh.node()
        watch = write_volume_watch.VolumeWatch(node)
        node.watchers.append(watch.applied)
        caller = (await mesh.connection()).session
        for number in range(3):
            called = await call(caller, "j" * 30_000, number)
        junk = f"ap.{mesh.mesh}.jobs.1.{KIND}.x"
        seq = await caller.log.append(junk, b"junk", message_id="junk", expected_last=0)
        await node.reached(max(seq, called.seq))
        now_ms = mesh.wall.now_ms()
        lately = write_volume_watch.lately(node.replica, now_ms).within(now_ms)
        lately.pop(("author", mesh.owner.did))  # the genesis was there before the watch
        there = watch.volumes.within(now_ms)
        assert lately["author", caller.author.did] == there["author", caller.author.did]
        top = KIND.partition(".")[0]
        assert lately["kind", top] == there["kind", top]
        assert there["kind", top].records == 4
        assert there["kind", top].refused_bytes == len(b"junk")
        excesses = write_volume_watch.lately(node.replica, now_ms).excesses(now_ms)
        assert [(one.what, one.name) for one in excesses] == [("author", caller.author.did)]
