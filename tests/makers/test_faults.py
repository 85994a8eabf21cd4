"""A fault between making something and telling of it: nobody is told of it but its maker."""

from functools import partial

import pytest
from structlog.testing import capture_logs

from antiphon.core import bundle as core_bundle
from antiphon.core.authority.rules import Rules
from antiphon.core.bar_tokens import bar_token
from antiphon.core.bus.signed_message import MessageType
from antiphon.core.families.jobs.ops import JobYield
from antiphon.core.families.jobs.state import job_key
from antiphon.core.inference import snapshot
from antiphon.core.inference.call_reader import MAX_WORD, snapshot_of
from antiphon.errors import Rejected, Unreadable
from antiphon.interfaces.git import commit_notes
from antiphon.interfaces.git.commit_notes import NotesTree
from antiphon.interfaces.git.objects import Objects, Signature
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.gate import tickets
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.sdk.archive.archives import Archive
from antiphon.sdk.http.bar_tokens import BarTokens
from antiphon.sdk.http.job_links import make_link
from antiphon.sdk.mesh import Mesh
from antiphon.sdk.proofs import bundles
from tests.core.inference.test_call_reader import SOURCE
from tests.runtime.archive.archived_meshes import an_archived_mesh
from tests.runtime.archive.test_archive_eraser import opened
from tests.runtime.gate.test_tickets import TICKET
from tests.runtime.inference.exchanges import calls_a_model, exchange
from tests.runtime.meshes import KIND, a_mesh, call
from tests.runtime.worker.runs.test_model_calls import AUDITED, ONCE, records_of

OWNER = SeedKeyring(bytes(32))


def flipped(data, at=-3):
    """The bytes, or the text, with another one in them."""
    if isinstance(data, str):
        return data[:at] + ("A" if data[at] != "A" else "B") + data[at + 1 :]
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def spoil(monkeypatch, where, name):
    """What is made comes out with another byte."""
    made = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given, **named: flipped(made(*given, **named)))


# --- bundles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["bytes", "limit"])
async def test_a_bundle_is_neither_exported_nor_mirrored(tmp_path, monkeypatch, fault):
    async with an_archived_mesh(tmp_path) as archived:
        (job,) = await archived.work(1)
        await archived.archive()
        key, replica = job_key(KIND, job), archived.node.replica
        archive = Archive(await opened(tmp_path))
        assert await archive.export(key)
        if fault == "bytes":
            spoil(monkeypatch, core_bundle, "write")
        else:
            monkeypatch.setattr(core_bundle, "MAX_BUNDLE_BYTES", 100)
        with pytest.raises(Unreadable, match=f"the bundle of {KIND} {job[:8]}"):
            await bundles.bundle_bytes(replica, key)
        with pytest.raises(Unreadable):
            await archive.export(key)


# --- texts for people -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["bytes", "limit"])
def test_a_ticket_is_not_given_to_anybody(monkeypatch, fault):
    if fault == "bytes":
        spoil(monkeypatch, tickets, "_quoted")
    else:
        monkeypatch.setattr(tickets, "MAX_TICKET_CHARS", 100)
    with pytest.raises(Unreadable, match="the ticket"):
        tickets.write_ticket(TICKET)


@pytest.mark.parametrize("fault", ["signature", "limit"])
async def test_a_token_is_not_sent(monkeypatch, fault):
    async with Mesh.open(engine="memory") as mesh:
        break_tokens(monkeypatch, mesh, fault)
        with pytest.raises(Unreadable, match="the token"):
            BarTokens(mesh).token()


@pytest.mark.parametrize("fault", ["signature", "limit"])
async def test_a_link_is_not_given_to_anybody(monkeypatch, fault):
    async with Mesh.open(engine="memory") as mesh:

        @mesh.task("shop.double")
        def double(number: int) -> int:
            return 2 * number

        handle = await double.submit(1)
        job = (await mesh.jobs())[0]
        assert job.id == handle.id
        break_tokens(monkeypatch, mesh, fault)
        with pytest.raises(Unreadable, match="the link"):
            make_link(mesh, job, lasts="2h")


def break_tokens(monkeypatch, mesh, fault):
    """Sign wrongly, or have readers take shorter texts."""
    if fault == "limit":
        monkeypatch.setattr(bar_token, "MAX_TEXT", 10)
        return
    broken = SeedKeyring(b"1" * 32)
    broken.did = mesh.connection.keyring.did
    monkeypatch.setattr(type(mesh.connection), "keyring", broken)


# --- signed messages and ops ----------------------------------------------------------------------


def test_a_message_that_receivers_would_refuse_is_not_signed():
    signed = []

    def sign(payload_type, payload):
        signed.append(payload)
        return OWNER.sign(payload_type, payload)

    token = bar_token.BarToken(project="render", role="read", downbeat_ms=1)
    send = partial(bar_token.TOKENS.sign, mesh="m", subject="http")
    assert send(token, (OWNER.did, sign))
    for wrong in ({"bars": 3}, {"role": "king"}, {"project": 7}, {"delegation": ("x" * 81,)}):
        with pytest.raises(Unreadable, match="about http would be refused by its readers"):
            send(bar_token.BarToken(**{**as_fields(token), **wrong}), (OWNER.did, sign))
    assert len(signed) == 1
    with pytest.raises(Unreadable):
        send(token, ("a name that is longer than any key" * 3, sign))


def test_a_message_that_is_another_one_when_it_is_read_is_not_signed():
    class Forgetful(MessageType):
        def __init__(self):
            super().__init__("bar-token", bar_token.BarToken, max_bytes=1000)
            self._decode_body = lambda raw: bar_token.BarToken(
                project="other", role="read", downbeat_ms=2
            )

    token = bar_token.BarToken(project="render", role="read", downbeat_ms=1)
    with pytest.raises(Unreadable, match="something else than was meant"):
        Forgetful().sign(token, (OWNER.did, OWNER.sign), mesh="m", subject="http")


def as_fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_a_mesh_that_no_reader_would_know_is_not_created():
    class Wall:
        def now_ms(self):
            return 1_700_000_000_000

    create = partial(genesis.sign, OWNER, Wall(), recovery=OWNER.did, rules=Rules())
    assert create(name="shop").mesh
    with pytest.raises(Unreadable, match="the first record"):
        create(name="x" * 129)


# --- snapshots of model calls ---------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_run_whose_model_call_cannot_be_read_says_so(monkeypatch):
    async def work() -> int:
        calls_a_model("one")
        return 1

    stored = []
    monkeypatch.setattr(Artifacts, "keep_bytes", lambda *given, **_: stored.append(given))
    spoil(monkeypatch, snapshot, "encode")
    async with a_mesh("memory", AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        job = await call(session, retry=ONCE)
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.job.outcome == "exhausted"
        yields = await records_of(session, ended.job, JobYield)
        assert "the snapshot of model call" in yields[-1][0].error.message
        assert not stored


def test_whatever_a_model_s_server_says_can_be_read_afterwards():
    long = {"content-type": "application/json", "x-request-id": "r" * 5_000}
    usage = {"prompt_tokens": 2**60, "completion_tokens": -1}
    called = {"id": "1", "function": {"name": "weather", "arguments": "{}"}}
    message = {"role": "assistant", "tool_calls": [called], "else": 1}
    answered = {"model": "m", "choices": [{"message": message}], "usage": usage}
    one = exchange(answered=answered, response_headers=long, request_headers=long)
    made = snapshot_of(one, SOURCE)
    assert snapshot.decode(snapshot.encode(made)) == made
    assert made.tokens.input is None
    assert made.telemetry.headers["x-request-id"] == "r" * MAX_WORD


# --- notes in Git ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["bytes", "limit"])
def test_a_note_that_readers_would_pass_over_is_not_written(monkeypatch, fault):
    said = {("ci.app", "0" * 64): "Outcome: succeeded\nKind: ci.app\nJob-Id: blake3:" + "0" * 64}
    tree = NotesTree("", {"a" * 40: "b" * 40}, {})
    if fault == "limit":
        monkeypatch.setattr(commit_notes, "MAX_NOTE_BYTES", 10)
    else:
        spoil(monkeypatch, commit_notes, "_joined")
    with capture_logs() as logged:
        assert not tree.say("c" * 40, said)
    assert "would be refused" in logged[0]["reason"] or "something else" in logged[0]["reason"]
    made = Objects("sha1")
    assert tree.write(Signature("m", "m", 0), made) == "", "nothing changed"
    monkeypatch.undo()
    assert tree.say("c" * 40, said)
    assert tree.write(Signature("m", "m", 0), made)


def test_a_refusal_keeps_its_reason_and_what_to_type():
    from antiphon.read_back import read_back

    def refuses(_):
        raise Rejected("no", reason="role", hint="antiphon who")

    with pytest.raises(Unreadable, match="it would be refused by its readers: no") as refused:
        read_back("it", None, refuses, b"")
    assert (refused.value.reason, refused.value.hint) == ("role", "antiphon who")
