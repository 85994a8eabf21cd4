"""Commands in real rooms."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from antiphon.errors import Misconfigured, Rejected
from antiphon.sandbox import Command, SandboxSupport, run
from tests.runtime.meshes import eventually
from tests.sandbox.shell import alive, shell, timed_out

# --- what it says ----------------------------------------------------------------------------


async def test_a_command_runs_and_says_how_it_ended(able, tmp_path):
    said = await shell("echo out; echo err >&2; exit 3", able, tmp_path)
    assert (said.out, said.err) == ("out\n", "err\n")
    assert (said.ended.exit, said.ended.reason) == (3, "exited")
    assert said.ended.isolation.level == "sandbox"


async def test_a_signal_is_told_as_a_negative_number(able, tmp_path):
    said = await shell("kill -SEGV $$", able, tmp_path)
    assert (said.ended.exit, said.ended.reason) == (-signal.SIGSEGV, "exited")


async def test_a_program_that_is_not_there_is_the_commands_own_failure(able, tmp_path):
    command = Command(argv=("no-such-program",))
    ended = await run(command, work=tmp_path, on_output=lambda *_: None, abilities=able)
    assert ended.exit == 127


async def test_arguments_arrive_as_they_are(able, tmp_path):
    heard = []
    command = Command(argv=("printf", "%s|", "a b", "$HOME", "-n", "--", "ä'\"\n", "x=y"))
    await run(command, work=tmp_path, on_output=lambda _, b: heard.append(b), abilities=able)
    assert b"".join(heard).decode() == "a b|$HOME|-n|--|ä'\"\n|x=y|"


async def test_time_and_memory_are_measured(able, tmp_path):
    script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    ended = (await shell(script, able, tmp_path)).ended
    assert ended.used.cpu_ms > 30
    assert ended.used.max_rss_kb is not None
    assert 200 < ended.used.max_rss_kb < 200_000


@pytest.mark.req("B21")
async def test_memory_over_time_and_disks_are_measured_and_nothing_was_sent(able, tmp_path):
    script = "head -c 60000000 /dev/zero >big; sleep 0.5"
    command = Command(argv=("sh", "-c", script))
    ended = await run(command, work=tmp_path, on_output=lambda *_: None, abilities=able)
    used = ended.used
    assert used.net_egress_bytes == 0, "its network has a loopback and nothing else"
    assert used.disk_io_bytes is not None
    if able.cgroup is not None:
        assert used.mem_kbs > 0.4 * 60_000, "its work directory is memory, too"


@pytest.mark.req("B21")
async def test_what_shares_the_machines_network_is_not_measured_there(able, tmp_path):
    command = Command(argv=("true",), network=True)
    ended = await run(command, work=tmp_path, on_output=lambda *_: None, abilities=able)
    assert ended.used.net_egress_bytes is None


@pytest.mark.req("B21")
async def test_what_is_used_is_told_while_it_runs(able, tmp_path):
    told = []
    command = Command(argv=("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"))
    ended = await run(
        command, work=tmp_path, on_output=lambda *_: None, abilities=able, on_usage=told.append
    )
    times = [used.cpu_ms for used in told]
    assert times == sorted(times)
    assert times[-1] <= ended.used.cpu_ms


@pytest.mark.req("B21")
async def test_a_plain_process_is_measured_by_what_the_kernel_says_at_its_end(tmp_path):
    command = Command(argv=("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"))
    ended = await run(command, work=tmp_path, on_output=lambda *_: None, unsafe=True)
    assert ended.used.cpu_ms > 30
    assert ended.used.disk_io_bytes is not None
    assert ended.used.net_egress_bytes is None


# --- what it sees ----------------------------------------------------------------------------


async def test_the_environment_is_its_own(able, tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", "leaked")
    said = await shell(
        "env; tr '\\0' '\\n' </proc/1/environ", able, tmp_path, env={"MINE": "a=b c"}
    )
    seen = {line.partition("=")[0] for line in said.out.splitlines()}
    assert seen == {"PATH", "HOME", "TMPDIR", "LANG", "PWD", "MINE"}
    assert "MINE=a=b c" in said.out
    assert "leaked" not in said.out


async def test_it_has_its_three_streams_open_and_nothing_else(able, tmp_path):
    said = await shell("for n in /proc/$$/fd/*; do readlink $n; done", able, tmp_path)
    null, out, err = sorted(said.out.split())
    assert null == "/dev/null"
    assert out.startswith("pipe:")
    assert err.startswith("pipe:")


async def test_inputs_are_there_and_cannot_be_changed(able, tmp_path):
    source = tmp_path / "source"
    source.write_text("content")
    source.chmod(0o644)
    said = await shell(
        "cat data/in.txt; echo more >> data/in.txt || rm -f data/in.txt || mv data/in.txt x",
        able,
        tmp_path,
        inputs=(("data/in.txt", source),),
    )
    assert said.out == "content"
    assert said.ended.exit != 0
    assert source.read_text() == "content"


async def test_an_input_that_the_jobs_uid_cannot_read_is_said_so(able, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only a root worker's jobs have another uid")
    source = tmp_path / "source"
    source.write_text("content")
    source.chmod(0o600)
    with pytest.raises(Misconfigured, match="owner only"):
        await shell("true", able, tmp_path, inputs=(("in", source),))


async def test_an_input_that_is_no_file_is_refused(able, tmp_path):
    with pytest.raises(Rejected):
        await shell("true", able, tmp_path, inputs=(("in", tmp_path / "absent"),))


async def test_secrets_are_files_and_nothing_else(able, tmp_path):
    token = tmp_path / "token"
    token.write_text("canary-31")
    token.chmod(0o600)
    script = """
        cat "$ANTIPHON_SECRETS/token"; echo
        env; cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n'
        echo changed > /run/secrets/token; rm -f /run/secrets/token
        find /job /tmp -type f"""
    said = await shell(script, able, tmp_path, secrets=(("token", token),))
    assert said.out.count("canary-31") == 1
    assert said.out.startswith("canary-31\n")
    assert "Read-only" in said.err
    assert token.read_text() == "canary-31"


async def test_the_secret_is_not_on_any_command_line_outside(able, tmp_path):
    token = tmp_path / "token"
    token.write_text("canary-32")
    running = asyncio.ensure_future(shell("sleep 0.3", able, tmp_path, secrets=(("token", token),)))
    await asyncio.sleep(0.15)
    assert alive("canary-32") == []
    await running


async def test_it_starts_where_it_is_told_to(able, tmp_path):
    assert (await shell("pwd; : > x", able, tmp_path, cwd="a/b")).out == "/job/a/b\n"
    assert (await shell("pwd", able, tmp_path)).out == "/job\n"


async def test_folders_can_be_shown_to_it(able, tmp_path):
    shown = tmp_path / "shown"
    shown.mkdir(mode=0o755)
    (shown / "tool").write_text("here")
    (shown / "tool").chmod(0o644)
    script = f"cat {shown}/tool; ls {tmp_path}; echo x > {shown}/new"
    said = await shell(script, able, tmp_path, visible=(shown,))
    assert said.out == "hereshown\n"
    assert "Read-only" in said.err


async def test_it_has_a_name_and_a_machine_of_its_own(able, tmp_path):
    said = await shell("id -un; hostname; getent hosts localhost; getent passwd", able, tmp_path)
    assert said.out.split()[:2] == ["job", "job"]
    assert "localhost" in said.out
    assert [line.partition(":")[0] for line in said.out.splitlines()[3:]] == ["root", "job"]


async def test_there_is_no_network_but_its_own(able, tmp_path):
    said = await shell("cat /proc/net/dev | tail -n +3 | cut -d: -f1", able, tmp_path)
    assert said.out.split() == ["lo"]
    assert "network:none" in said.ended.isolation.held


async def test_a_granted_network_is_the_machines(able, tmp_path):
    ours = str(Path("/proc/self/ns/net").readlink())
    said = await shell("readlink /proc/self/ns/net", able, tmp_path, network=True)
    assert said.out.strip() == ours
    assert "network:host" in said.ended.isolation.held
    assert "network:none" not in said.ended.isolation.held


# --- what it leaves --------------------------------------------------------------------------


async def test_outputs_are_copied_out(able, tmp_path):
    script = "mkdir -p a; echo one > a/x.txt; echo two > y.txt; ln -s /etc/passwd z.txt; : > n.log"
    ended = (await shell(script, able, tmp_path, outputs=("**/*.txt",))).ended
    assert [(o.name, o.path.read_text()) for o in ended.outputs] == [
        ("a/x.txt", "one\n"),
        ("y.txt", "two\n"),
    ]
    assert [left.name for left in ended.left_out] == ["z.txt"]
    assert {o.path.stat().st_uid for o in ended.outputs} == {os.getuid()}


async def test_an_input_is_not_handed_back_as_an_output(able, tmp_path):
    source = tmp_path / "source"
    source.write_text("content")
    source.chmod(0o644)
    ended = (
        await shell("cp in out", able, tmp_path, inputs=(("in", source),), outputs=("*",))
    ).ended
    assert [o.name for o in ended.outputs] == ["out"]


async def test_outputs_of_a_failed_run_are_kept_too(able, tmp_path):
    ended = (await shell("echo partly > x; exit 1", able, tmp_path, outputs=("x",))).ended
    assert (ended.exit, len(ended.outputs)) == (1, 1)


# --- refusing, and running unsafe ------------------------------------------------------------


async def test_without_a_sandbox_it_refuses_and_says_what_to_do(tmp_path):
    unable = SandboxSupport(problems=("bubblewrap (bwrap) is not installed",))
    with pytest.raises(Misconfigured, match="not installed") as refused:
        await shell("echo x > /dev/null", unable, tmp_path)
    assert "bubblewrap" in refused.value.hint


async def test_unsafe_runs_a_plain_process_and_says_so(tmp_path):
    source = tmp_path / "source"
    source.write_text("content")
    said = await shell(
        "cat in; cat $ANTIPHON_SECRETS/s; echo x > out; env | cut -d= -f1 | sort | tr '\\n' ' '",
        None,
        tmp_path,
        inputs=(("in", source),),
        secrets=(("s", source),),
        outputs=("*",),
        unsafe=True,
    )
    assert said.out == "contentcontentANTIPHON_SECRETS HOME LANG PATH PWD TMPDIR "
    assert said.ended.isolation.level == "process"
    assert "rlimits" in said.ended.isolation.held
    assert not any(word.startswith("network") for word in said.ended.isolation.held)
    assert [o.name for o in said.ended.outputs] == ["out"]


async def test_unsafe_has_a_timeout_and_its_group_is_ended(tmp_path, nap):
    script = f"(trap '' TERM; sleep {nap}) & trap '' TERM; echo ready; sleep {nap}; sleep {nap}"
    ended = (await timed_out(script, None, tmp_path, unsafe=True)).ended
    assert ended.exit == -signal.SIGKILL
    await eventually(lambda: alive(nap) == [])


async def test_many_run_at_once(able, tmp_path):
    async def one(number):
        work = tmp_path / str(number)
        work.mkdir()
        script = f"echo {number} > x; sleep 0.1; cat x; id -u"
        said = await shell(script, able, work, outputs=("x",))
        told, uid = said.out.split()
        assert (told, said.ended.outputs[0].path.read_text()) == (str(number), f"{number}\n")
        return uid

    uids = await asyncio.gather(*map(one, range(8)))
    if os.geteuid() == 0:
        assert len(set(uids)) == 8, "jobs that run at once share a uid"
        assert "0" not in uids
