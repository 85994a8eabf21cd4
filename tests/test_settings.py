"""Settings: what the variables mean, what they refuse, and that the page about them is true."""

import re
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import Misconfigured
from antiphon.sdk.environment import read_environment
from antiphon.settings import PREFIX, Settings, load, read_address

FIELDS = {field.name: field.default for field in msgspec.structs.fields(Settings)}

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/settings.md"
SECRET = "hush-hush-hush-hush"


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    for name in FIELDS:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def as_written(default: object) -> str:
    """A default as the page writes it."""
    if default is None or default == "":
        return "unset"
    if isinstance(default, bool):
        return "`on`" if default else "`off`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


@pytest.mark.req("S17")
def test_the_page_lists_every_setting_with_its_default():
    rows = re.findall(
        r"^\| `(ANTIPHON_\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert {name: default for name, default, _, _ in rows} == {
        PREFIX + name.upper(): as_written(default) for name, default in FIELDS.items()
    }
    assert len(rows) == len(FIELDS), "each once"


NINE = (
    *("NODE", "HTTP_ADDRESS", "ONLY_MESH", "ENGINE", "ENGINE_TOKEN", "REPLICA"),
    *("BREAKER_FAILURES", "HTTP_TOKEN"),
)
"""What was asked for by name: the node, the addresses, the tokens, the breaker; and the switch,
which is an engine `memory`."""
FOR_SERVICES = {"HTTP_ADDRESS", "HTTP_TOKEN"}
"""Read by commands that go on alone: they load every setting."""


@pytest.mark.req("S17")
@pytest.mark.parametrize("name", NINE)
def test_each_of_the_nine_is_read_by_something(name):
    (row,) = re.findall(rf"^\| `{PREFIX}{name}` \| .+ \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert (row == "`antiphon node`, `worker`, `up`") == (name in FOR_SERVICES)


GIVEN_TO_JOBS = {"ANTIPHON_SECRETS"}
"""What a job's own environment holds: written by the sandbox, read by nobody here."""


def test_the_source_reads_no_variable_that_is_not_a_setting():
    known = {PREFIX + name.upper() for name in FIELDS}
    for path in (ROOT / "src").rglob("*.py"):
        named = set(re.findall(r"(?<![A-Z_])ANTIPHON_[A-Z_]+[A-Z]", path.read_text()))
        assert named - GIVEN_TO_JOBS <= known, path


SET = [
    ("NODE", "gpu-box.2", "node", "gpu-box.2"),
    ("ONLY_MESH", "abcdefghijklmn23", "only_mesh", "abcdefghijklmn23"),
    ("ENGINE", "nats://a:4222,tls://b", "engine", "nats://a:4222,tls://b"),
    ("ENGINE", "memory", "engine", "memory"),
    ("REPLICA", "/tmp/elsewhere.db", "replica", Path("/tmp/elsewhere.db")),
    ("BREAKER", "off", "breaker", False),
    ("BREAKER_FAILURES", "2", "breaker_failures", 2),
    ("BREAKER_RESET_S", "0.5", "breaker_reset_s", 0.5),
    ("HTTP_ADDRESS", "[::1]:80", "http_address", "[::1]:80"),
    ("HTTP_ADDRESS", "localhost:65535", "http_address", "localhost:65535"),
    ("BLOBS", "s3://my-bucket/some/where", "blobs", "s3://my-bucket/some/where"),
    ("S3_ENDPOINT", "https://s3.example:9000", "s3_endpoint", "https://s3.example:9000"),
    ("S3_ENDPOINT", "http://[::1]:9000", "s3_endpoint", "http://[::1]:9000"),
    ("S3_REGION", "eu-central-1", "s3_region", "eu-central-1"),
    ("HOME", "", "home", None),
]


@pytest.mark.req("S17")
@pytest.mark.parametrize("name, text, field, value", SET)
def test_a_variable_sets_its_field(monkeypatch, name, text, field, value):
    monkeypatch.setenv(PREFIX + name, text)
    assert getattr(load(), field) == value


REFUSED = [
    ("BREAKER", "perhaps"),
    ("NODE", "../owner"),
    ("NODE", ".hidden"),
    ("NODE", "a/b"),
    ("NODE", "x" * 65),
    ("NODE", "owner"),
    ("NODE", "recovery"),
    ("NODE", "machine"),
    ("ONLY_MESH", "mesh"),
    ("ONLY_MESH", "ABCDEFGHIJKLMN23"),
    ("ENGINE", "localhost:4222"),
    ("ENGINE", "http://localhost:4222"),
    ("ENGINE", f"nats://user:{SECRET}@localhost:4222"),
    ("ENGINE", "nats://a,b"),
    ("ENGINE", "memory,nats://a"),
    ("REPLICA", "/"),
    ("BREAKER_FAILURES", "0"),
    ("BREAKER_RESET_S", "0"),
    ("BREAKER_RESET_S", "inf"),
    ("HTTP_ADDRESS", "7464"),
    ("HTTP_ADDRESS", "localhost:"),
    ("HTTP_ADDRESS", "127.0.0.1:65536"),
    ("HTTP_ADDRESS", "::1:7464"),
    ("HTTP_TOKEN", "short"),
    ("HTTP_TOKEN", f"{SECRET} with a space"),
    ("HTTP_TOKEN", SECRET + "ü"),
    ("BLOBS", "my-bucket"),
    ("BLOBS", "s3://"),
    ("BLOBS", "s3://my-bucket/../other"),
    ("BLOBS", "s3://my-bucket//other"),
    ("BLOBS", "s3://my-bucket?x=1"),
    ("BLOBS", f"s3://key:{SECRET}@my-bucket"),
    ("S3_ENDPOINT", "s3.example"),
    ("S3_ENDPOINT", "http://s3.example:9000"),
    ("S3_ENDPOINT", f"https://key:{SECRET}@s3.example"),
    ("S3_ENDPOINT", "https://s3.example/bucket"),
    ("S3_REGION", "eu central"),
    ("SLOTS", "many"),
]


@pytest.mark.parametrize("name, text", REFUSED)
def test_a_variable_that_cannot_be_used_is_named_and_not_quoted(monkeypatch, name, text):
    monkeypatch.setenv(PREFIX + name, text)
    with pytest.raises(Misconfigured) as refused:
        load()
    assert f"ANTIPHON_{name} " in refused.value.message
    assert f"ANTIPHON_{name}" in refused.value.hint
    assert SECRET not in refused.value.message
    assert refused.value.__cause__ is None, "the words of others quote what was set"
    assert refused.value.__context__ is None


@pytest.mark.parametrize(
    "text, host, is_loopback",
    [
        ("127.0.0.1:7464", "127.0.0.1", True),
        ("127.8.9.1:7464", "127.8.9.1", True),
        ("[::1]:7464", "::1", True),
        ("localhost:7464", "localhost", True),
        ("0.0.0.0:7464", "0.0.0.0", False),
        ("[::]:7464", "::", False),
        ("mesh.example:7464", "mesh.example", False),
        ("127.0.0.1.example:7464", "127.0.0.1.example", False),
    ],
)
def test_an_address_knows_whether_other_machines_reach_it(text, host, is_loopback):
    address = read_address(text)
    assert (address.host, address.port, address.is_loopback) == (host, 7464, is_loopback)
    assert str(address) == text


def test_secrets_show_in_no_repr_and_no_error(monkeypatch):
    monkeypatch.setenv("ANTIPHON_HTTP_TOKEN", SECRET)
    monkeypatch.setenv("ANTIPHON_ENGINE_TOKEN", SECRET)
    assert SECRET not in f"{load()!r} {load()} {read_environment()!r} {read_environment()}"
    assert read_environment().token == SECRET


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("SLOTS", "5000", "it is a whole number, at least 1 and at most 4096"),
        ("BREAKER_RESET_S", "soon", "it is a number, more than 0"),
        ("LOG_LEVEL", "loud", "choose from: debug, info, warning, error"),
        ("BREAKER", "perhaps", "it is on or off"),
    ],
)
def test_what_a_value_should_be_is_said_in_words(monkeypatch, name, text, words):
    monkeypatch.setenv(PREFIX + name, text)
    with pytest.raises(Misconfigured, match=words):
        read_environment()
