"""The tutorial's program on a machine that reaches only a node's HTTP: one line of it differs."""

import json
import re
import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell
from tests.acceptance.typed_page import page_named
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats


def files_of(page: str) -> dict[str, str]:
    """The first version of each file that a page shows."""
    found: dict[str, str] = {}
    for block in re.findall(r"```python\n(.*?)```", page_named(page).read_text(), re.DOTALL):
        name = re.match(r"# ([\w.]+\.py)\n", block)
        if name is not None:
            found.setdefault(name[1], block)
    return found


def test_the_tutorials_program_runs_with_one_line_changed(tmp_path):
    host, away = Shell(tmp_path / "host"), tmp_path / "away"
    host.directory.mkdir()
    away.mkdir()
    shown = files_of("tutorial")
    (host.directory / "shop.py").write_text(shown["shop.py"])
    replica = {"ANTIPHON_REPLICA": str(tmp_path / "replica.db")}

    def buy() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "buy.py"],
            cwd=away,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    with (
        host.init("--name", "shop") as founded,
        host.start("node", "--http", "127.0.0.1:0", "--json", **replica) as node,
        host.start("worker", "shop", "--json") as worker,
    ):
        worker.line("ready")
        url = f"http://{json.loads(node.line('ready'))['http']}"
        line = f'mesh = Mesh.connect("{url}", mesh="{founded["mesh"]}")'
        assert shown["shop.py"].count("mesh = Mesh.open()\n") == 1
        (away / "shop.py").write_text(shown["shop.py"].replace("mesh = Mesh.open()", line))
        (away / "buy.py").write_text(shown["buy.py"])

        refused = buy()
        assert refused.returncode != 0
        command = re.search(r"antiphon delegate (\S+)", refused.stderr)
        rights = ("--can", "schedule", "--can", "read", "--kind", "shop.*", "--alias", "away")
        assert host.run("delegate", command[1], *rights).code == 0
        bought = buy()
        assert (bought.returncode, bought.stdout) == (0, "12 5\n"), bought.stderr
        assert worker.stop() == 0
        assert node.stop() == 0
