"""Git over ssh, with OpenSSH's own server on loopback."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.acceptance.shell import until
from tests.interfaces.git.signed_commits import make_key


def require_ssh_server() -> str:
    """Where the server's program is; skips where there is none."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None or shutil.which("ssh") is None:
        pytest.skip("OpenSSH's server is not installed: apt-get install openssh-server")
    return found


@contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[str, str]]:
    """A server for one key; the address before a path, and git's command for it."""
    program, me = require_ssh_server(), pwd.getpwuid(os.getuid()).pw_name
    folder.mkdir(mode=0o700)
    host, client = make_key(folder, "host"), make_key(folder, "client")
    shutil.copy(client.with_suffix(".pub"), folder / "authorized_keys")
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {host}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (folder / "log").open("w") as log:
        words = [program, "-D", "-e", "-f", folder / "config"]
        server = subprocess.Popen(words, stdout=log, stderr=log)
    try:

        def listens() -> bool:
            assert server.poll() is None, (folder / "log").read_text()
            with closing(socket.socket()) as tried:
                return tried.connect_ex(("127.0.0.1", port)) == 0

        until(listens)
        options = f"-F /dev/null -i {client} -o StrictHostKeyChecking=no"
        command = f"ssh {options} -o UserKnownHostsFile={folder / 'known'} -o LogLevel=ERROR"
        yield f"ssh://{me}@127.0.0.1:{port}", command
    finally:
        server.terminate()
        server.wait()
