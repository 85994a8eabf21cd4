"""The harness itself: async tests run, pure ones stay pure, what tests start can be stopped."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import in_its_own_loop

loops_seen: list[asyncio.AbstractEventLoop] = []


@pytest.fixture
def seven():
    return 7


async def test_an_async_test_may_await_and_ask_for_fixtures(seven):
    await asyncio.sleep(0)
    assert seven == 7


class TestInClasses:
    @pytest.mark.parametrize("n", [1, 2])
    async def test_each_async_test_has_a_loop_of_its_own(self, n):
        loop = asyncio.get_running_loop()
        assert loop not in loops_seen
        loops_seen.append(loop)


@given(st.integers())
@settings(max_examples=5)
async def test_async_tests_run_under_hypothesis(n):
    await asyncio.sleep(0)
    assert isinstance(n, int)


def test_a_test_that_never_ends_is_ended():
    with pytest.raises(TimeoutError):
        in_its_own_loop(asyncio.Event().wait, 0.01)()


def run_pytest(folder: Path, conftest: str, tests: str, shell: tuple[str, ...] = ()) -> str:
    """What pytest says of these tests, in a process of its own."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(tests)
    command = [*shell, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]
    command += [str(folder), "-c", "/dev/null", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    return result.stdout + result.stderr


@pytest.mark.processes
def test_a_failing_async_test_fails(tmp_path):
    told = run_pytest(
        tmp_path,
        "from tests.conftest import pytest_pyfunc_call\n",
        "import pytest\nfrom hypothesis import given, strategies as st\n"
        "async def test_plain(): assert False\n"
        "@given(st.none())\nasync def test_given(_): assert False\n"
        "class TestIt:\n    async def test_method(self): raise ValueError\n",
    )
    assert "3 failed" in told, told


@pytest.mark.processes
@pytest.mark.parametrize(
    "conftest, outcome", [("", "1 failed"), ("import tests.conftest", "1 passed")]
)
def test_what_a_test_starts_can_be_interrupted_though_a_shell_runs_the_tests_behind(
    tmp_path, conftest, outcome
):
    told = run_pytest(
        tmp_path,
        conftest,
        "import signal, subprocess, sys\n"
        "ASK = 'import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)'\n"
        "def test_it():\n"
        "    told = subprocess.check_output([sys.executable, '-c', ASK], text=True)\n"
        "    assert told == 'False\\n'\n",
        shell=("sh", "-c", "trap '' INT; exec \"$@\"", "sh"),
    )
    assert outcome in told, told


@pytest.mark.virtual_time
async def test_in_virtual_time_sleeping_takes_none():
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(24 * 3600)
    assert asyncio.get_running_loop().time() - began_s == 24 * 3600


@pytest.mark.processes
def test_a_test_that_starts_a_process_must_say_so(tmp_path):
    told = run_pytest(
        tmp_path,
        "from tests.conftest import pytest_runtest_protocol\n",
        "import pytest, socket, subprocess, sys\n"
        "START = [sys.executable, '-c', 'pass']\n"
        "def test_process(): subprocess.run(START, check=True)\n"
        "def test_socket(): socket.create_server(('127.0.0.1', 0)).close()\n"
        "@pytest.mark.processes\ndef test_marked(): subprocess.run(START, check=True)\n",
    )
    assert "2 failed, 1 passed" in told, told
    assert "add @pytest.mark.processes" in told
