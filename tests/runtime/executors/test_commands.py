"""Commands as jobs: what goes in, what comes out, and how an end is named."""

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path

import pytest

from antiphon.core.families.jobs import completion_proof
from antiphon.core.proof import statement
from antiphon.errors import Misconfigured
from antiphon.runtime.caller import submission
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sandbox import SandboxSupport
from antiphon.sdk.command_job import sandbox_status
from antiphon.sdk.worker import command_terms
from tests.core.published_schemas import fits, published
from tests.patience import PATIENCE_S
from tests.runtime.sandboxed import (
    KIND,
    a_mesh_with_commands,
    ran,
    require_sandbox,
    shell,
    stored,
    texts,
)

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _sandbox(monkeypatch, tmp_path):
    require_sandbox()
    runs = tmp_path / "runs"
    runs.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(runs))
    yield
    assert list(runs.iterdir()) == [], "a run left something behind"


async def predicate_of(mesh, ended):
    view = await mesh.connection.session.read_lane(ended.job.kind, ended.job.id)
    op = view.opened_at(ended.job.ended_seq).op
    envelope = completion_proof.envelope_of(op.mesh, op.author, op.body)
    return statement.open_envelope(envelope).predicate, envelope


@pytest.mark.req("P7")
async def test_what_a_command_prints_and_the_files_it_names_are_its_outputs():
    async with a_mesh_with_commands() as mesh:
        ended = await shell(
            mesh,
            "echo out; echo err >&2; mkdir d; echo kept > d/a.txt; echo not > b",
            outputs=["d/*"],
        )
    assert ended.job.outcome == "succeeded"
    assert texts(ended) == {"stdout": "out\n", "stderr": "err\n", "d/a.txt": "kept\n"}


async def test_nothing_of_a_run_is_left_while_its_worker_goes_on(tmp_path):
    (tmp_path / "data").write_text("x")
    async with a_mesh_with_commands() as mesh:
        given = await stored(mesh, tmp_path / "data", "data")
        for script in ("cat data", "exit 1", "sleep 9"):
            await shell(mesh, script, inputs=[given], timeout=1)
        assert [path for path in (tmp_path / "runs").rglob("*") if path.is_file()] == []


async def test_what_is_not_small_text_is_stored_and_comes_back_whole(tmp_path):
    async with a_mesh_with_commands() as mesh:
        ended = await shell(
            mesh, "head -c 100000 /dev/zero > z; printf '\\377' > b", outputs=["z", "b"]
        )
        by_name = {output.name: output for output in ended.outputs}
        assert by_name["z"].text is by_name["b"].text is None
        await mesh.artifacts.fetch(by_name["z"], tmp_path / "z")
    assert (tmp_path / "z").read_bytes() == bytes(100_000)


async def test_inputs_lie_in_the_work_directory_under_their_names(tmp_path):
    (tmp_path / "data").write_text("41\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\nread n < in/data; echo $((n+1))\n")
    async with a_mesh_with_commands() as mesh:
        inputs = [
            await stored(mesh, tmp_path / "data", "in/data"),
            await stored(mesh, tmp_path / "run.sh", "run.sh"),
        ]
        ended = await ran(mesh, "./run.sh", inputs=inputs)
        said, _ = await predicate_of(mesh, ended)
    assert texts(ended)["stdout"] == "42\n", ended.error
    assert [one.name for one in said.inputs] == ["in/data", "run.sh"]
    assert said.runner.name == "./run.sh"
    assert (
        said.runner.digest.sha256 == hashlib.sha256((tmp_path / "run.sh").read_bytes()).hexdigest()
    )


async def test_an_input_that_is_nowhere_is_named():
    nothing = {"kind": "blobptr", "algo": "blake3", "hash": "0" * 64, "name": "data.csv"}
    async with a_mesh_with_commands() as mesh:
        ended = await ran(mesh, "true", inputs=[nothing])
    assert ended.error.name == "input"
    assert "data.csv" in ended.error.message


@pytest.mark.req("P8")
async def test_the_proof_says_what_ran_and_what_held():
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "exit 0", env={"GREETING": "hello"})
        said, envelope = await predicate_of(mesh, ended)
    program = Path("/bin/sh").resolve()
    assert fits(statement.to_json(envelope), published("proof"))
    assert said.job == ended.job.id
    assert said.exit == 0
    assert said.runner.name == str(program)
    assert said.runner.digest.sha256 == hashlib.sha256(program.read_bytes()).hexdigest()
    assert said.isolation.level == "sandbox"
    assert "network:none" in said.isolation.held
    assert said.environment is not None
    assert said.usage.max_rss_kb is None or said.usage.max_rss_kb > 0


@pytest.mark.parametrize(
    "script, name, words",
    [
        ("echo first >&2; echo last >&2; exit 7", "exit:7", "first\nlast"),
        ("kill -SEGV $$", "signal:11", "Segmentation fault"),
        ("no-such-program", "exit:127", "not found"),
    ],
)
async def test_a_failure_has_a_name_to_match_and_ends_with_the_last_words(script, name, words):
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, script)
    assert ended.job.outcome == "failed"
    assert ended.error.name == name
    assert ended.error.message.endswith(words)


async def test_a_command_that_takes_too_long_is_ended_with_everything_it_started():
    mark = f"40.{os.getpid()}7"
    async with a_mesh_with_commands() as mesh:
        for timeout in (1, 30):  # a slow machine may need more than one to begin
            ended = await shell(mesh, f"echo begun; sleep {mark} & sleep {mark}", timeout=timeout)
            assert ended.error.name == "timeout"
            assert not _alive(mark)
            if said := texts(ended).get("stdout"):
                break
    assert said == "begun\n"


async def test_a_cancelled_command_leaves_no_process():
    mark = f"40.{os.getpid()}8"
    async with a_mesh_with_commands() as mesh:
        waiting = asyncio.ensure_future(shell(mesh, f"sleep {mark}"))
        while not _alive(mark):
            await asyncio.sleep(0.02)
        async with mesh.replica() as replica:
            (job,) = replica.ask(ReplicaJobs).jobs(limit=1)
        await submission.cancel(mesh.connection.session, job.kind, job.id, reason="enough")
        ended = await waiting
        assert ended.job.outcome == "cancelled"
        async with asyncio.timeout(PATIENCE_S):
            while _alive(mark):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "script, outputs, words",
    [
        ("true", ["out.txt"], "not write the file 'out.txt'"),
        ("ln -s /etc/passwd a", ["*"], "'a' was not kept: a symbolic link"),
        ("echo x > stdout", ["*"], "an output file cannot be called 'stdout'"),
    ],
)
async def test_either_every_output_is_kept_or_the_job_says_which_is_not(script, outputs, words):
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, script, outputs=outputs)
    assert (ended.job.outcome, ended.error.name) == ("failed", "outputs")
    assert words in ended.error.message


async def test_more_files_than_a_record_can_name_are_a_failure_and_many_are_not():
    loop = "i=0; while [ $i -lt {} ]; do i=$((i+1)); echo $i > f$i; done"
    async with a_mesh_with_commands() as mesh:
        many = await shell(mesh, loop.format(300), outputs=["f*"])
        too_many = await shell(mesh, loop.format(900), outputs=["f*"])
    assert many.job.outcome == "succeeded", many.error
    assert len(many.outputs) == 302
    assert (too_many.error.name, len(too_many.outputs)) == ("outputs", 2)
    assert "900 files" in too_many.error.message


async def test_text_that_would_burst_its_record_is_stored_instead():
    script = "for i in 1 2 3 4 5 6 7 8; do head -c 16000 /dev/zero | tr '\\0' '\\001' > f$i; done"
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, script, outputs=["f*"])
    assert ended.job.outcome == "succeeded", ended.error
    assert {output.text is None for output in ended.outputs if output.size} == {True, False}


async def test_a_command_that_climbs_out_is_refused_for_good():
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "true", cwd="../up", options=None)
    assert (ended.error.name, ended.job.attempts) == ("command", 0)


# --- the network ------------------------------------------------------------------------------


async def test_the_network_is_refused_once_and_for_all_with_who_said_no():
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "true", network=True, options=None)
    assert (ended.error.name, ended.job.attempts) == ("network", 0)
    assert "this node was not started with --network" in ended.error.message


async def test_the_network_is_refused_where_model_calls_are_audited():
    async with a_mesh_with_commands(network=True) as mesh:
        await mesh.authority.set_rules({"audit_inference": True})
        ended = await shell(mesh, "true", network=True)
        assert (ended.error.name, ended.job.attempts) == ("network", 0)
        assert "audited" in ended.error.message
        assert (await shell(mesh, "true")).job.outcome == "succeeded"


async def test_the_network_is_given_where_node_and_mesh_agree_and_the_proof_says_so():
    async with a_mesh_with_commands(network=True) as mesh:
        ended = await shell(mesh, "true", network=True)
        said, _ = await predicate_of(mesh, ended)
        unasked = await shell(mesh, "true")
        unasked_said, _ = await predicate_of(mesh, unasked)
    assert "network:host" in said.isolation.held
    assert "network:none" in unasked_said.isolation.held


# --- secrets ----------------------------------------------------------------------------------


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    path = folder / "token"
    path.write_text("hush")
    path.chmod(0o600)
    monkeypatch.setenv("ANTIPHON_SECRETS", str(folder))
    return folder


async def test_a_secret_is_a_file_and_no_variable(secrets):
    script = "cmp -s /run/secrets/token $ANTIPHON_SECRETS/token && wc -c < /run/secrets/token; env"
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, script, secrets=["token"])
    assert ended.error is None, ended.error
    assert texts(ended)["stdout"].startswith("4\n")
    assert "hush" not in texts(ended)["stdout"]


async def test_a_secret_that_is_not_there_is_named(secrets):
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "true", secrets=["other"])
    assert (ended.error.name, "'other'" in ended.error.message) == ("secret", True)


async def test_a_secret_that_others_can_read_is_not_used(secrets):
    (secrets / "token").chmod(0o644)
    async with a_mesh_with_commands() as mesh:
        ended = await shell(mesh, "true", secrets=["token"])
    assert ended.error.name == "secret"
    assert "other users of the worker's machine" in ended.error.message
    assert str(secrets) not in ended.error.message


async def test_a_directory_of_secrets_that_others_can_enter_stops_the_worker(secrets):
    secrets.chmod(0o755)
    with pytest.raises(Misconfigured, match="other users of this machine"):
        async with a_mesh_with_commands():
            pass


# --- what is the worker's own -----------------------------------------------------------------


async def test_the_workers_own_folders_are_hidden_and_the_proof_says_so():
    async with a_mesh_with_commands() as mesh:
        said, _ = await predicate_of(mesh, await shell(mesh, "true"))
    assert "files:hidden" in said.isolation.held


async def test_where_the_secrets_cannot_be_hidden_commands_are_not_offered(monkeypatch):
    monkeypatch.setenv("ANTIPHON_SECRETS", "/usr/share/antiphon-secrets-that-are-not-there")
    with pytest.raises(Misconfigured, match="cannot be hidden from commands: it does not exist"):
        async with a_mesh_with_commands():
            pass


def test_doctor_says_where_state_cannot_be_hidden():
    able, why, remedy = sandbox_status(StateDirectory(Path("/usr")))
    assert not able
    assert why == "/usr cannot be hidden from commands: /usr is inside it"
    assert "ANTIPHON_HOME" in remedy


def test_the_state_directory_and_secrets_kept_elsewhere_are_hidden(tmp_path, monkeypatch):
    home = StateDirectory(tmp_path / ".antiphon")
    assert command_terms([KIND], home).hidden == (home.path,)
    monkeypatch.setenv("ANTIPHON_SECRETS", str(tmp_path / "elsewhere"))
    assert command_terms([KIND], home).hidden == (home.path, tmp_path / "elsewhere")


# --- without a sandbox ------------------------------------------------------------------------


async def test_without_a_sandbox_commands_are_not_offered(monkeypatch):
    from antiphon.assembly import command_executor

    monkeypatch.setattr(
        command_executor, "probe", lambda **_: SandboxSupport(problems=("no bwrap",))
    )
    with pytest.raises(Misconfigured, match="no bwrap") as refused:
        async with a_mesh_with_commands():
            pass
    assert "--unsafe-no-sandbox" in refused.value.hint


async def test_without_a_sandbox_on_purpose_the_proof_says_so():
    async with a_mesh_with_commands(unsafe_no_sandbox=True) as mesh:
        ended = await shell(mesh, "mkdir -m 0 locked; echo x > out", outputs=["out"])
        said, _ = await predicate_of(mesh, ended)
    assert ended.job.outcome == "succeeded"
    assert said.isolation.level == "process"
    assert said.environment is None


def _alive(mark: str) -> bool:
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "cmdline").read_text():
                return True
        except OSError:
            continue
    return False


# --- budgets ---------------------------------------------------------------------------------


@pytest.mark.req("B21")
async def test_a_command_that_uses_too_much_in_a_beat_is_killed_and_says_so():
    async with a_mesh_with_commands() as mesh:
        spin = "while :; do :; done"
        options = {"budget": {"per_bu": {"cpu_sec": 0.2}, "charge_to": "team-a"}}
        ended = await shell(mesh, spin, options=options)
        said, envelope = await predicate_of(mesh, ended)
    assert (ended.job.outcome, ended.job.attempts) == ("failed", 0)
    assert ended.error.name == "OverBudget"
    assert "and may use 0.2 in each (per_bu.cpu_sec)" in ended.error.message
    assert ended.job.account == "team-a"
    assert said.usage.cpu_ms > 200
    assert said.usage.net_egress_bytes == 0
    assert fits(statement.to_json(envelope), published("proof"))


@pytest.mark.req("B21")
async def test_memory_counts_for_as_long_as_it_is_in_use():
    async with a_mesh_with_commands() as mesh:
        hold = "head -c 50000000 /dev/zero >big; sleep 600"
        ended = await shell(mesh, hold, options={"budget": {"per_bu": {"mem_gbs": "0.02"}}})
    assert "(per_bu.mem_gbs)" in ended.error.message
