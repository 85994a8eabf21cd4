"""Bundles: what they show offline, and that nobody can change one unnoticed (spec §9)."""

import asyncio
import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from antiphon.core import bundle as core_bundle
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.opened_record import open_record
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import signing
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, Malformed, Rejected, Unavailable
from antiphon.interfaces.cli.checks.log import seals_finding
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.proofs import bundles
from antiphon.sdk.proofs.bundles import open_bundle
from antiphon.sdk.proofs.sentences import not_proved, proved
from chaos.tamper.changes import (
    all_changes,
    decode_bundle,
    encode_bundle,
    insert_others,
    leave_out,
)
from chaos.tamper.command import check_bundle
from chaos.tamper.sealed_jobs import ExportSource, make_sealed_jobs
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND, a_mesh, call, eventually, on_both_engines

_sealed = []


def _shown(data):
    bundle = core_bundle.read(data)
    return [
        open_record(PROTOCOL, bundle.mesh, one.seq, one.commit_ms, one.subject, payload)
        for one in bundle.records
        if one.record is not None
        for payload in [one.payload()]
    ]


@pytest.fixture
def jobs():
    """One story for all: two jobs under one seal."""
    if not _sealed:
        _sealed.append(asyncio.run(make_sealed_jobs()))
    return _sealed[0]


def test_a_good_bundle_shows_who_did_what(jobs):
    report = open_bundle(jobs.bundle, owner=jobs.owner)
    assert report.owner == report.coordinator == jobs.owner
    assert report.job.outcome == "succeeded"
    assert report.completion.author == report.job.claimer
    verdicts = [verdict for _, verdict in report.lane]
    assert verdicts.count(Verdict.OK) == len(verdicts) - 1, "the revoked worker's op is refused"
    shown = {record["seq"] for record in decode_bundle(jobs.bundle)["records"]}
    assert {jobs.revocation, jobs.expiry} <= shown


def test_what_is_shown_and_what_is_not_is_said_in_words(jobs):
    report = open_bundle(jobs.bundle)
    sentences = "\n".join(proved(report, is_owner_given=False))
    assert "may be the wrong owner" in sentences
    assert "may be the wrong owner" not in "\n".join(proved(report, is_owner_given=True))
    assert report.completion.author in sentences
    rest = "\n".join(not_proved(report))
    assert "told the truth" in rest
    assert f"after record {report.seal.upto:,}" in rest
    assert "open to all" not in rest


def test_a_mesh_that_somebody_else_founded_is_refused(jobs):
    stranger = open_bundle(jobs.other).completion.author
    with pytest.raises(Rejected, match="not by the owner that you trust"):
        open_bundle(jobs.bundle, owner=stranger)


def test_leaving_out_the_revocation_or_the_expiry_shows(jobs):
    tried = {what: data for what, data in leave_out(jobs) if "the " in what}
    assert set(tried) == {"left out the revocation", "left out the expiry"}
    for data in tried.values():
        with pytest.raises(Rejected, match="something is missing"):
            open_bundle(data, owner=jobs.owner)


def test_another_jobs_records_have_no_place_in_it(jobs):
    tried = [data for what, data in insert_others(jobs) if what.startswith("inserted")]
    assert len(tried) > 2
    for data in tried:
        with pytest.raises(Rejected, match="is not needed for"):
            open_bundle(data, owner=jobs.owner)


def test_a_bundle_that_names_another_mesh_is_refused(jobs):
    with pytest.raises(Rejected, match="created another mesh"):
        open_bundle(encode_bundle({**decode_bundle(jobs.bundle), "mesh": "a" * 16}))


async def test_only_the_coordinators_word_counts_and_only_as_far_as_it_goes():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        await mesh.worker(lambda number: number)
        called = await call(node.session, 1)
        await submission.wait_for_end(node.session, KIND, called.id)
        await node.reached((await node.session.log.last()).seq)
        await _seal_soon(node)
        bundle = decode_bundle(await bundles.export(ExportSource(node), KIND, called.id, wait_s=0))
        sealed = open_bundle(encode_bundle(bundle)).seal
        stranger = (await mesh.connection()).session

        def under(by, **words) -> bytes:
            draft = by.draft(MeshSeal, replace(sealed, **words), prev=0)
            return encode_bundle({**bundle, "seal": {"text": draft.payload.decode()}})

        assert open_bundle(under(node.session)).seal == sealed
        with pytest.raises(Rejected, match="only the coordinator"):
            open_bundle(under(stranger))
        with pytest.raises(Rejected, match="newer than what the seal covers"):
            open_bundle(under(node.session, upto=sealed.upto - 1))
        with pytest.raises(Rejected, match="is not what was sealed"):
            open_bundle(under(node.session, size=sealed.size + 1, upto=sealed.upto + 1))


def test_a_verdict_cannot_be_changed(jobs):
    bundle = decode_bundle(jobs.bundle)
    refused = next(record for record in bundle["records"] if record["verdict"] != "ok")
    for other in ("stale", "ok"):
        refused["verdict"] = other
        with pytest.raises(Rejected, match="is not what was sealed"):
            open_bundle(encode_bundle(bundle), owner=jobs.owner)


def test_a_rejected_record_is_shown_by_its_digest_and_only_where_another_names_it(jobs):
    bundle = decode_bundle(jobs.bundle)
    refused = next(record for record in bundle["records"] if record["verdict"] != "ok")
    assert "record" not in refused
    refused["record"] = {"text": "and some words that nobody signed"}
    with pytest.raises(Rejected, match="either the bytes or the digest"):
        open_bundle(encode_bundle(bundle), owner=jobs.owner)


async def _proved_with_junk(count: int) -> bytes:
    """The bundle of a job on whose lane somebody wrote before it was claimed, and after its end."""
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        called = await call(node.session, 1)
        subject = PROTOCOL.subjects_of(mesh.mesh, job_key(KIND, called.id))[-1]

        async def litter() -> None:
            (newest,) = await node.session.log.newest([subject]) or [None]
            last = newest.seq if newest is not None else 0
            for at in range(count):
                last = await node.session.log.append(
                    subject, b"junk \xff" * 9, message_id=f"{last}-{at}", expected_last=last
                )

        await litter()

        async def work(number: int) -> int:  # virtual time has no threads
            return number

        await mesh.worker(work)
        await submission.wait_for_end(node.session, KIND, called.id)
        await litter()
        await node.reached((await node.session.log.last()).seq)
        await _seal_soon(node)
        return await bundles.export(ExportSource(node), KIND, called.id, wait_s=0)


@pytest.mark.virtual_time
async def test_junk_on_its_lane_cannot_make_a_job_unprovable():
    """Else 65,536 records of anybody would do it, or 64 MB."""
    few, many = await _proved_with_junk(2), await _proved_with_junk(60)
    assert open_bundle(few).job.outcome == open_bundle(many).job.outcome == "succeeded"
    shown = [decode_bundle(data)["records"] for data in (few, many)]
    assert len(shown[0]) == len(shown[1]), "it does not grow with what others write"
    (rejected,) = (one for one in shown[1] if one["verdict"] != "ok")
    assert "record" not in rejected
    unneeded = {**rejected, "seq": rejected["seq"] - 1, "leaf": rejected["leaf"] - 1}
    records = sorted([*shown[1], unneeded], key=lambda one: one["seq"])
    with pytest.raises(Rejected):
        open_bundle(encode_bundle({**decode_bundle(many), "records": records}))


def test_whatever_is_changed_is_refused_with_a_sentence(jobs):
    tried = [one for one in all_changes(jobs, count=300, seed=1) if one[1] != jobs.bundle]
    ended = {what: check_bundle(data, jobs.owner) for what, data in tried}
    assert len(tried) > 400
    assert {what: end for what, end in ended.items() if end != "refused"} == {}


def test_bundles_of_one_mesh_share_the_verification_of_control_and_seal(jobs, monkeypatch):
    report = open_bundle(jobs.bundle, owner=jobs.owner)
    is_valid, verified = signing.is_block_valid, []

    def counted(author, mesh, op_bytes, block):
        verified.append(op_bytes)
        return is_valid(author, mesh, op_bytes, block)

    monkeypatch.setattr(signing, "is_block_valid", counted)
    again = open_bundle(jobs.bundle, owner=jobs.owner)
    assert again == report
    assert len(verified) == sum(not one.is_control for one in _shown(jobs.bundle))


def test_a_control_record_that_is_known_is_not_taken_for_a_changed_one(jobs):
    open_bundle(jobs.bundle, owner=jobs.owner)
    bundle = decode_bundle(jobs.bundle)
    control = next(one for one in bundle["records"] if one["seq"] == jobs.revocation)
    signature = control["record"]["text"].index('"sig":"') + len('"sig":"')
    text = control["record"]["text"]
    other = "0" if text[signature] != "0" else "1"
    control["record"]["text"] = text[:signature] + other + text[signature + 1 :]
    with pytest.raises(Rejected, match="is not what was sealed"):
        open_bundle(encode_bundle(bundle), owner=jobs.owner)


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b"\xff", b"null", b'{"format":"x"}\n'])
def test_what_is_no_bundle_is_told_so(junk):
    with pytest.raises(Malformed, match="not a bundle"):
        open_bundle(junk)


def test_one_bundle_has_one_spelling(jobs):
    pretty = json.dumps(json.loads(jobs.bundle), indent=1).encode()
    with pytest.raises(Malformed, match="not in canonical form"):
        open_bundle(pretty)
    assert core_bundle.write(core_bundle.read(jobs.bundle)) == jobs.bundle


def test_records_that_are_no_text_travel_too():
    for payload in (b"\xff\x00junk", b"text", b""):
        assert core_bundle.Content.of(payload).payload() == payload
    for content in (
        core_bundle.Content(base64="dGV4dA=="),
        core_bundle.Content(base64="/w"),
        core_bundle.Content(),
    ):
        with pytest.raises(AntiphonError):
            content.payload()


@on_both_engines
async def test_exporting_waits_for_a_seal_and_says_what_to_do(engine):
    async with a_mesh(engine) as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        called = await call(node.session, 1)
        await node.reached(called.seq)
        face = ExportSource(node)
        with pytest.raises(Rejected, match="has not ended"):
            await bundles.export(face, KIND, called.id)
        await mesh.worker(lambda number: number)
        await eventually(lambda: node.replica.ask(ReplicaJobs).job(KIND, called.id).is_terminal)
        waited: list[float] = []
        with pytest.raises(Unavailable, match="no seal covers") as caught:
            await bundles.export(face, KIND, called.id, wait_s=0.05, waiting=waited.append)
        assert waited
        assert "antiphon coordinator" in caught.value.hint
        standing = await bundles.seal_status(face)
        assert (standing.seq, standing.refused_seq) == (0, 0)
        sealing = asyncio.create_task(_seal_soon(node))
        data = await bundles.export(face, KIND, called.id, wait_s=PATIENCE_S)
        assert open_bundle(data, owner=mesh.owner.did).job.id == called.id
        await sealing
        assert (await bundles.seal_status(face)).upto == node.seals.upto > 0


@pytest.mark.virtual_time
async def test_the_bundle_of_a_quorum_shows_the_replicas_that_agree():
    async with a_mesh("memory") as mesh:
        node = await mesh.node(connection=await mesh.connection(mesh.owner), bar_s=1.0)
        gate, began = asyncio.Event(), []

        async def work(number: int) -> int:
            began.append(number)
            await gate.wait()
            return number

        for _ in range(2):
            await mesh.worker(work, slots=1)
        called = await call(node.session, 1, replicas=2, quorum=2)
        await eventually(lambda: len(began) == 2)
        gate.set()
        await submission.wait_for_end(node.session, KIND, called.id)
        await node.reached((await node.session.log.last()).seq)
        data = await bundles.export(ExportSource(node), KIND, called.id)
        report = open_bundle(data)
        assert report.job.outcome == "succeeded"
        assert len({done.author for done in report.quorum}) == 2
        assert "2 replicas of it agree" in "\n".join(proved(report, is_owner_given=True))
        assert "arrange that with each other" in "\n".join(not_proved(report))
        bundle = decode_bundle(data)
        ends = [e.seq for e in report.beside if e.op in report.quorum]
        for seq in ends:
            kept = [one for one in bundle["records"] if one["seq"] != seq]
            with pytest.raises(Rejected, match="something is missing"):
                open_bundle(encode_bundle({**bundle, "records": kept}))
        child = report.quorum[0].body.job
        alone = open_bundle(await bundles.export(ExportSource(node), KIND, child))
        assert alone.job.replica_of == called.id
        order = await forget(node.session, KIND, child)
        await node.reached(order.seq)
        node.replica.flush()
        with pytest.raises(Rejected, match="were erased by did:key:"):  # its lane is in the bundle
            await bundles.bundle_bytes(node.replica, job_key(KIND, called.id))


async def _seal_soon(node) -> None:
    from antiphon.runtime.node.sealer import Sealer

    await asyncio.sleep(0.1)
    assert await Sealer(node, bar_s=1).seal()


@pytest.mark.parametrize(
    "standing, level, word",
    [
        ({}, "ok", "no seal yet"),
        ({"seq": 9, "upto": 8, "commit_ms": 1}, "ok", "up to record 8"),
        ({"seq": 9, "upto": 8, "commit_ms": 1, "refused_seq": 12}, "wrong", "seal 12"),
        ({"seq": 9, "upto": 8, "commit_ms": 1, "refused_seq": 5}, "warning", "seal 5"),
        ({"refused_seq": 3}, "wrong", "seal 3"),
    ],
)
def test_the_doctor_tells_of_seals_that_do_not_match(standing, level, word):
    found = seals_finding(bundles.SealStatus(**standing))
    assert found.level == level
    assert word in found.sentence
    assert bool(found.hint) is (level == "wrong")


def typed(*arguments: str, where) -> subprocess.CompletedProcess[str]:
    """The command line in an empty place: no state directory, no server."""
    program = "import sys; from antiphon.interfaces.cli.application import run; sys.exit(run())"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=where,
        timeout=240,
        check=False,
    )


@pytest.mark.processes
def test_the_command_checks_without_a_home_and_without_a_server(jobs, tmp_path):
    (tmp_path / "bundle.json").write_bytes(jobs.bundle)
    good = typed("verify", "bundle.json", "--owner", jobs.owner, where=tmp_path)
    assert good.returncode == 0, good.stderr
    assert "not shown" in good.stdout
    facts = json.loads(typed("verify", "bundle.json", "--json", where=tmp_path).stdout)
    assert (facts["owner"], facts["outcome"]) == (jobs.owner, "succeeded")
    (tmp_path / "bundle.json").write_bytes(jobs.bundle.replace(b'"ok"', b'"stale"', 1))
    bad = typed("verify", "bundle.json", where=tmp_path)
    assert bad.returncode != 0
    assert "is not what was sealed" in bad.stderr
    assert "Traceback" not in bad.stderr
    assert typed("verify", "nothing.json", where=tmp_path).returncode != 0
