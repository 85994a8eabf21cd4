"""`examples/other_language` as its page has it: a key, a delegation, a job, a proof offline."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.shell import Shell
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "other_language"
NODE = shutil.which("node")
pytestmark = [pytest.mark.nats, pytest.mark.skipif(NODE is None, reason="there is no node")]


def test_a_worker_in_another_language_joins_by_one_delegation(tmp_path):
    host, box = Shell(tmp_path / "host"), tmp_path / "box"
    shutil.copytree(EXAMPLE, box)
    host.directory.mkdir()

    def worker(*words):
        command = [str(NODE), "worker.mjs", *words]
        return subprocess.run(
            command, cwd=box, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    replica = {"ANTIPHON_REPLICA": str(tmp_path / "replica.db")}
    with host.init("--name", "farm") as founded:
        with host.start("node", "--http", "127.0.0.1:0", "--json", **replica) as node:
            url = f"http://{json.loads(node.line('ready'))['http']}"
            did = worker().stdout.strip()
            refused = worker(url, founded["mesh"], "text.count", "1")
            assert refused.returncode == 1
            assert "no_chain" in refused.stderr
            terms = ("--can", "claim", "--kind", "text.*", "--alias", "box")
            assert host.run("delegate", did, *terms).code == 0
            answer = host.run("submit", "text.count", "how many words", "--detach", "--json")
            job = answer.json["job"]
            done = worker(url, founded["mesh"], "text.count", "1")
            assert (done.returncode, done.stdout.split()) == (0, ["claimed", job, "completed", job])
            assert host.ended(job)["result"] == {"words": 3, "letters": 14}
            assert node.stop() == 0
        assert host.export(job, "-o", "job.json").code == 0
    proved = host.run("verify", "job.json")
    assert proved.code == 0, proved.err
    assert did in proved.out
    altered = (host.directory / "job.json").read_text().replace("worker.mjs", "other.mjs ")
    (host.directory / "job.json").write_text(altered)
    assert host.run("verify", "job.json").code != 0
