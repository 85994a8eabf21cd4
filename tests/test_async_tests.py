"""The harness itself: async tests run, in a loop of their own, and come to an end."""

import asyncio
import subprocess
import sys

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


def test_a_failing_async_test_fails(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_pyfunc_call\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\nfrom hypothesis import given, strategies as st\n"
        "async def test_plain(): assert False\n"
        "@given(st.none())\nasync def test_given(_): assert False\n"
        "class TestIt:\n    async def test_method(self): raise ValueError\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir"]
    command += [str(tmp_path), "-c", "/dev/null", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "3 failed" in result.stdout, result.stdout + result.stderr
