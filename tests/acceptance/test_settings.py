"""Settings through the real command line: what they change, and what a person is told."""

import pytest

from tests.acceptance.shell import Shell

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """A development mesh whose process has a name, and whose replica lies elsewhere."""
    directory = tmp_path_factory.mktemp("named")
    shell = Shell(directory, ANTIPHON_REPLICA=str(directory / "elsewhere" / "jobs.db"))
    with shell.dev(ANTIPHON_NODE="box") as ready:
        shell.mesh = ready["mesh"]
        yield shell


@pytest.mark.req("S17")
def test_a_named_process_is_known_by_its_name(shell):
    told = shell.run("nodes", "--wait", "20", "--json").json["nodes"]
    assert sorted(node["alias"] for node in told) == ["box-node", "box-worker"]
    keys = {path.stem for path in shell.home.glob("keys/*.key")}
    assert {"box", "box-node", "box-worker"} <= keys
    answer = shell.run("nodes", ANTIPHON_NODE="box")
    assert answer.code == 6
    assert "ANTIPHON_NODE" in answer.err


@pytest.mark.req("S17")
def test_the_replica_lies_where_it_was_put(shell):
    assert shell.run("submit", "example.add", "2", "3", "--json").code == 0
    assert len(shell.run("jobs", "--json").out.splitlines()) == 1
    assert (shell.directory / "elsewhere" / "jobs.db").is_file()
    assert not (shell.home / "replica.db").exists()


@pytest.mark.req("S17")
@pytest.mark.parametrize(
    "words",
    ["submit example.add 1 2", "jobs", "who", "dev", "init", "join antiphon:x"],
)
def test_where_the_mesh_is_in_memory_commands_say_so_and_found_nothing(shell, words, tmp_path):
    home = ("--home", str(tmp_path / "new")) if words.split()[0] in {"dev", "init", "join"} else ()
    answer = shell.run(*words.split(), *home, ANTIPHON_ENGINE="memory")
    assert answer.code == 3
    assert "✗ ANTIPHON_ENGINE=memory: such a mesh exists inside one program only" in answer.err
    assert "unset ANTIPHON_ENGINE" in answer.err
    assert not (tmp_path / "new").exists()


@pytest.mark.req("S17")
def test_a_machine_that_is_for_another_mesh_does_not_open_this_one(shell):
    answer = shell.run("jobs", ANTIPHON_ONLY_MESH="a" * 16)
    assert answer.code == 3
    assert shell.mesh in answer.err


@pytest.mark.req("M17")
def test_the_doctor_says_who_coordinates_and_that_it_answers(shell):
    told = shell.run("doctor", "--json").json
    (found,) = [check for check in told["checks"] if check["check"] == "coordinator"]
    assert told["ok"]
    assert (found["level"], found["hint"]) == ("ok", "")
    assert "coordinates and is online" in found["sentence"]
