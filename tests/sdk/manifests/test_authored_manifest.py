"""Manifests as people write them: many spellings, one job; and what cannot be read for sure."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon import Mesh
from antiphon.core.manifest import author, core_bytes, job_id
from antiphon.errors import Malformed, Misconfigured
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.manifests.authored_manifest import (
    again,
    alias_of,
    read_manifest,
    require_handler_call,
    with_alias,
)

ROOT = Path(__file__).resolve().parents[3]
SEED_BYTES = (
    b'{"args":["echo","hello"],"command":["/usr/bin/env","bash","-lc"],'
    b'"env":{"GREETING":"hello"},"timeout":30}'
)
SEED_ID = "298aaf4ca1e68cb951a3fae38e69dba73ce6a24d138f773601ff7d264e0d5fdc"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

BLOCK = """\
command:
  - /usr/bin/env
  - bash
  - -lc
args:
  - echo
  - hello
timeout: 30
env:
  GREETING: hello
"""
STYLES = {
    "block": BLOCK,
    "lists not indented": BLOCK.replace("  - ", "- "),
    "flow": "command: [/usr/bin/env, bash, -lc]\nargs: [echo, hello]\n"
    "timeout: 30\nenv: {GREETING: hello}\n",
    "one flow mapping": "{command: [/usr/bin/env, bash, -lc], args: [echo, hello,],\n"
    " timeout: 30, env: {GREETING: hello}}",
    "quoted": "\"command\": ['/usr/bin/env', \"bash\", '-lc']\n'args': [\"e\\x63ho\", 'hello']\n"
    "timeout: 'PT30S'\nenv: {'GREETING': \"hello\"}\n",
    "block text": "command:\n  - |-\n    /usr/bin/env\n  - >-\n    bash\n  - -lc\n"
    "args: [echo, hello]\ntimeout: PT0M30S\nenv: {GREETING: hello}\n",
    "reordered": "env:\n    GREETING: hello\ntimeout: 30\nargs: [echo, hello]\n"
    "command: [/usr/bin/env, bash, -lc]\n",
    "JSON": json.dumps(json.loads(SEED_BYTES), indent=4),
    "JSON indented with tabs": json.dumps(json.loads(SEED_BYTES), indent="\t"),
    "canonical JSON": SEED_BYTES.decode(),
    "CRLF": BLOCK.replace("\n", "\r\n"),
    "CR": BLOCK.replace("\n", "\r"),
    "comments": "# a job\n---\n" + BLOCK.replace("\n", "  # why\n") + "...\n# the end\n",
    "no line break at the end": BLOCK.rstrip(),
    "byte order mark": "\ufeff" + BLOCK,
    "explicit keys": BLOCK.replace("timeout: 30", "? timeout\n: 30"),
    "alias for people": BLOCK + f"ulid: {ULID}\n",
}


@pytest.mark.req("P2", "P3")
@pytest.mark.parametrize("style", STYLES)
def test_however_it_is_spelt_it_is_one_job(style):
    read = read_manifest(STYLES[style])
    assert core_bytes(read) == SEED_BYTES
    assert job_id(read) == SEED_ID


@pytest.mark.parametrize("name", ["job.yaml", "job.yml", "job.json", "job"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_file_is_read_by_its_content(tmp_path, name, mark):
    path = tmp_path / name
    path.write_bytes(mark + SEED_BYTES)
    assert job_id(read_manifest(path)) == SEED_ID


def words(*texts):
    return f"command: [{', '.join(texts)}]\ntimeout: 1\n"


@pytest.mark.parametrize(
    "text",
    ["yes", "no", "on", "off", "y", "n", "2026-01-01", "2026-01-01T10:00:00Z", "12:30", "1:30:00",
     "1_000", "1.2.3", "10.0.0.1", "0b11", "nan", "inf", "~/x", "a:b", "http://x.example/y#z",
     "-", "--flag", "-lc", "@", "C:\\x", "it's", "<<", "=", "é", "\U0001f600", "nil", "none"],
)  # fmt: skip
def test_words_are_text_as_in_yaml_1_2(text):
    if text in {"-", "@"}:
        text = f"'{text}'"  # YAML's own signs
    shown = text.strip("'") if text.startswith("'") else text
    assert read_manifest(words(text)).command == (shown,)


# --- what is refused, and with which words ----------------------------------------------------

DIGITS = "9" * 20
NUMBERS = ["012", "+1", "0x1F", "0o17"]
FRACTIONS = ["1.5", "1.", ".5", "1e3", "30.0", ".inf", "-.INF", ".nan"]


@pytest.mark.parametrize(
    "text, place, sentence, hint",
    [
        # YAML's machinery
        ("command: &c [a]\nargs: *c\ntimeout: 1", "line 1, column 10", "anchors are not", "'&c'"),
        ("command: [a, *c]\ntimeout: 1", "line 1, column 14", "aliases are not", "'*c'"),
        ("command: [!!str a]\ntimeout: 1", "line 1, column 11", "tags are not", "in quotes"),
        ("command: !x [a]\ntimeout: 1", "line 1, column 10", "tags are not", "in quotes"),
        ("!!map {command: [a], timeout: 1}", "line 1, column 1", "tags are not", "in quotes"),
        ("%YAML 1.2\n---\ncommand: [a]", "line 1, column 1", "directives", "remove the line"),
        ("command: [a]\n---\ncommand: [b]", "line 2, column 1", "second document", "one file"),
        ("a: 1\na: 2", "line 2, column 1", "'a' is written twice; first on line 1", "keep one"),
        ("{a: 1, 'a': 2}", "line 1, column 8", "'a' is written twice", "keep one"),
        ("env: {X: a, X: a}", "line 1, column 13", "'X' is written twice", "keep one"),
        ("? [a]\n: b", "line 1, column 3", "a name is text", "in quotes"),
        ("1: x", "line 1, column 1", "1 is read as a number", "'1'"),
        ("true: x", "line 1, column 1", "true is read as true or false", "'true'"),
        ("'': x\n~: y", "line 2, column 1", "~ is read as no value", "'~'"),
        ("<<: {a: b}", "line 1, column 1", "merging", "write the fields"),
        ("command: [a,\n  b\n  c]\ntimeout: 1", "line 2, column 3", "several lines", "in quotes"),
        ("command:\n  - python\n    -c\n", "line 2, column 5", "several lines", "new '- '"),
        ("command: ['\u2028']", "line 1, column 12", "U+2028", "\\u2028"),
        ("command: [a]\n# \x07", "line 2, column 3", "U+0007", "\\x07"),
        # numbers
        *((words(n), "line 1, column 11", f"{n} is a number in a form", n) for n in NUMBERS),
        *((words(n), "line 1, column 11", f"{n} is not a whole number", n) for n in FRACTIONS),
        (f"command: [a]\ntimeout: {DIGITS}", "line 2, column 10", "53 bits", "quotes"),
        (f"command: [a]\ntimeout: -{DIGITS * 9}", "line 2, column 10", "53 bits", "quotes"),
        (words("30"), "line 1, column 11", "'command[0]' is the number 30", '"30"'),
        (words("a", "true"), "line 1, column 14", "'command[1]' is true", '"true"'),
        (words("~"), "line 1, column 11", "left empty; it takes text", "''"),
        # syntax
        ("env:\n\tA: b", "line 2, column 1", "indented with a tab", "two spaces"),
        ("env:\n  A: b\n\tB: c", "line 3, column 1", "indented with a tab", "two spaces"),
        (words("@example.add"), "line 1, column 11", "cannot begin with @", "in quotes"),
        (words("ls", "*.txt"), "line 1, column 15", "begins with *", "in quotes"),
        ("command: a: b", "line 1, column 11", "a ': ' is not allowed here", "in quotes"),
        ("command: [a]\ntimeout 30\n", "line 2, column 1", "has no ': '", "name: value"),
        ("command: [a\ntimeout: 1", "line 1, column 11", "over several lines", "quotes"),
        ("command: ['a'\ntimeout: 1", "line 1, column 10", "bracket is not closed", "comma"),
        ('command: ["a]\n', "line 1, column 11", "quote is not closed", "same quote"),
        ('command: ["C:\\q"]\n', "line 1, column 14", "no such escape", "single quotes"),
        ("command: - a", "line 1, column 10", "on a new line", "[a, b]"),
        ("command:\n- a\nargs:\n  - b\n c: d", "line 5, column 2", "does not continue", "indent"),
        # the manifest
        ("", "", "it is empty", "command:"),
        ("# only a comment\n", "", "it is empty", "command:"),
        ("- a\n- b", "line 1, column 1", "this is a list", "command:"),
        ("timeout:30", "line 1, column 1", "this is text", "space after the ':'"),
        ("{command: [a], timeout:1}", "line 1, column 16", "no field 'timeout:1'", "space after"),
        ("{command:[a]}", "line 1, column 9", "a space is missing", "name: value"),
        ("command: [a]", "line 1, column 1", "there is no 'timeout'", "timeout: 30"),
        ("timeout: 1", "line 1, column 1", "there is no 'command'", "command: ["),
        ("comand: [a]\ntimeout: 1", "line 1, column 1", "no field 'comand'", "'command'"),
        ("Timeout: 1\ncommand: [a]", "line 1, column 1", "no field 'Timeout'", "'timeout'"),
        (words("a") + "kind: b", "line 3, column 1", "no field 'kind'", "--kind"),
        (words("a") + "colour: b", "line 3, column 1", "no field 'colour'", "command, args"),
        ("command: echo 'a b'\ntimeout: 1", "line 1, column 10", "one text", '["echo", "a b"]'),
        ("command: echo it's\ntimeout: 1", "line 1, column 10", "one text", '["echo", "it\'s"]'),
        ("command: {a: b}\ntimeout: 1", "line 1, column 10", "is a mapping", "[a, b]"),
        ("command: []\ntimeout: 1", "line 1, column 10", "'command' is empty", "[echo, hello]"),
        (words("[a]"), "line 1, column 11", "'command[0]' is a list", "in quotes"),
        (words("a") + "args: b c", "line 3, column 7", "'args' is one text", 'args: ["b", "c"]'),
        (words("a") + "env: [A=b]", "line 3, column 6", "'env' is a list", "{GREETING: hello}"),
        (words("a") + "env: {A: 1}", "line 3, column 10", "'env.A' is the number 1", '"1"'),
        (words("a") + "env: {A: }", "line 3, column 10", "'env.A' is left empty", "''"),
        (words("a") + "env: {A-B: c}", "line 3, column 7", "'A-B' is not a valid name", "letters"),
        (words("a") + "cwd: ''", "line 3, column 6", "'cwd' is not valid", "cwd: src"),
        (words("a") + "cwd: 5", "line 3, column 6", "'cwd' is the number 5", '"5"'),
        (words("a") + "ulid: x", "line 3, column 7", "26 digits", "--alias"),
        (words("a") + "policy_root: x", "line 3, column 14", "sha256", "policy_root:"),
        (words("a") + "inputs: x", "line 3, column 9", "it takes a list", "blobptr"),
        (words("a") + "inputs: [x]", "line 3, column 10", "is a mapping, not text", "blobptr"),
        (words("a") + "inputs: [{path: x}]", "line 3, column 10", "'blobptr' or 'nonce'", "hash"),
        (words("a") + "inputs: [{kind: f}]", "line 3, column 17", "'blobptr' or 'nonce'", "hash"),
        (words("a") + "inputs:\n- kind: nonce\n  nonce: short", "line 5, column 10",
         "'inputs[0].nonce' is not valid", "nonce:"),
        (words("a") + "inputs:\n- {kind: blobptr, algo: blake3}", "line 4, column 3",
         "no 'hash'", "hash:"),
        (words("a") + "inputs:\n- {kind: blobptr, algo: blake3, hash: xyz}", "line 4, column 39",
         "'inputs[0].hash' is not valid", "hash:"),
        (words("a") + "inputs:\n- {kind: blobptr, algo: md5, hash: xyz}", "line 4, column 25",
         "", ""),
        (words("a") + "inputs:\n- {kind: nonce, nonce: '0123456789abcdef', size: 1}",
         "line 4, column 44", "no field 'size'", "kind, nonce"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_what_to_write(text, place, sentence, hint):
    with pytest.raises(Malformed) as refusal:
        read_manifest(text)
    error = refusal.value
    assert error.message.startswith(place)
    assert sentence in error.message
    assert hint in error.hint
    assert error.hint


@pytest.mark.parametrize(
    "written, hint",
    [("30 seconds", "timeout: 30,"), ("30s", "timeout: 30,"), ("5 min", "timeout: 300,"),
     ("2 hours", "timeout: 7200,"), ("1 day", "timeout: 86400,"), ("500ms", "PT30S"),
     ("5 months", "PT30S"), ("1:30", "PT30S"), ("soon", "PT30S"), ("PT1.5S", "PT30S"),
     ("'30'", "PT30S"), ("-5", "timeout: 0"), ("40000000", "31622400"), ("P900D", "31622400"),
     ("true", "PT30S"), ("", "PT30S"), ("[30]", "PT30S")],
)  # fmt: skip
def test_a_timeout_that_is_none_gets_the_seconds_it_may_mean(written, hint):
    with pytest.raises(Malformed) as refusal:
        read_manifest(f"command: [a]\ntimeout: {written}\n")
    assert refusal.value.message.startswith("line 2, column ")
    assert hint in refusal.value.hint


@pytest.mark.parametrize(
    "text, sentence",
    [
        ('{"command":["a"],"timeout":1,"timeout":2}', "'timeout' is written twice"),
        ('{"command":["a"],"timeout":1,"env":{"A":"","A":""}}', "'A' is written twice"),
        ('{"command":["a"],"timeout":1.0}', "the fraction 1.0"),
        ('{"command":["a"],"timeout":1e2}', "the fraction 100.0"),
        (f'{{"command":["a"],"timeout":{DIGITS}}}', "53 bits"),
        ('{"command":["a"],"timeout":9007199254740992}', "53 bits"),
        ('{"command":["a"],"timeout":NaN}', "NaN is not JSON"),
        ('{"command":["\\ud800"],"timeout":1}', "not JSON"),
        ('{"command":["a"],\n "timeout":1,}', "line 2, column 1"),
        ('{"command":["a"] // why\n}', "line 1, column 18: this is not JSON"),
        ("command: [a]\ntimeout: 1\n", "line 1, column 1: this is not JSON"),
        ("[" * 2000 + "]" * 2000, "nested deeper than 8"),
        ("[[[[[[[[[[1]]]]]]]]]]", "nested deeper than 8"),
        ('"text"', "this is text"),
        ("", "not JSON"),
    ],
)
def test_a_json_file_is_json_and_nothing_else(tmp_path, text, sentence):
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(Malformed) as refusal:
        read_manifest(path)
    assert refusal.value.message.startswith(str(path))
    assert sentence in refusal.value.message
    assert refusal.value.hint


def test_an_error_in_a_file_begins_with_its_name(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("command: [a]\ntimeout: soon\n")
    with pytest.raises(Malformed, match=re.escape(f"{path}, line 2, column 10: 'soon'")):
        read_manifest(path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(Misconfigured, match="there is no file"):
        read_manifest(tmp_path / "job.yaml")
    with pytest.raises(Misconfigured, match="cannot be read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("raw", [BLOCK.encode("utf-16"), BLOCK.encode() + b"# \xe9\n"])
def test_other_encodings_are_refused(raw):
    with pytest.raises(Malformed, match="not UTF-8") as refusal:
        read_manifest(raw)
    assert refusal.value.hint == "save it as UTF-8"


def test_a_lone_surrogate_is_no_text():
    with pytest.raises(Malformed):
        read_manifest("command: ['\ud800']\ntimeout: 1\n")


def test_without_libyaml_json_is_still_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert job_id(read_manifest(SEED_BYTES)) == SEED_ID
    with pytest.raises(Misconfigured, match="libyaml") as refusal:
        read_manifest(BLOCK)
    assert "JSON" in refusal.value.hint


@pytest.mark.processes
def test_the_yaml_library_is_loaded_only_for_yaml():
    program = (
        "import sys\nfrom antiphon.sdk.manifests.authored_manifest import read_manifest\n"
        f"read_manifest({SEED_BYTES!r})\nassert 'yaml' not in sys.modules\n"
        "read_manifest('{command: [a], timeout: 1}')\nassert 'yaml' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- beside reading ---------------------------------------------------------------------------


def test_again_is_a_new_job_with_the_same_content_and_without_the_alias():
    first = read_manifest(STYLES["alias for people"])
    second, third = again(first, "0" * 16), again(first, "1" * 16)
    assert len({job_id(first), job_id(second), job_id(third)}) == 3
    assert msgspec.structs.replace(second, inputs=msgspec.UNSET) == author(json.loads(SEED_BYTES))
    assert alias_of(second) is None


@pytest.mark.req("P4")
def test_an_alias_is_made_once_and_changes_no_id():
    plain = read_manifest(BLOCK)
    assert alias_of(plain) is None
    named = with_alias(plain)
    assert re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", alias_of(named))
    assert job_id(named) == SEED_ID
    assert with_alias(named) is named
    assert alias_of(with_alias(plain)) != alias_of(named)
    assert author(json.loads(msgspec.json.encode(named))) == named


@pytest.mark.req("P4")
async def test_a_ulid_is_resolved_by_reading_the_manifest_and_is_no_key():
    once, other = with_alias(read_manifest(BLOCK)), author({"command": ["true"], "timeout": 1})
    async with Mesh.open(engine="memory") as mesh:
        first = await mesh.submit_manifest("build.docs", once)
        again = await mesh.submit_manifest("build.docs", with_alias(read_manifest(BLOCK)))
        await mesh.submit_manifest("build.docs", other)
        async with mesh.replica() as replica:
            assert [job.id for job in replica.ask(ReplicaJobs).find(alias_of(once))] == [SEED_ID]
            assert [job.id for job in replica.ask(ReplicaJobs).find(alias_of(once).lower())] == [
                SEED_ID
            ]
            assert replica.ask(ReplicaJobs).find(alias_of(with_alias(other))) == []
        assert (again.id, again.is_new) == (first.id, False), "another alias is no other job"

        # Nobody keeps a ULID to one job: it names both, and ids tell them apart.
        same = msgspec.structs.replace(other, timeout=2, ulid=alias_of(once))
        second = await mesh.submit_manifest("build.docs", same)
        async with mesh.replica() as replica:
            assert {job.id for job in replica.ask(ReplicaJobs).find(alias_of(once))} == {
                SEED_ID,
                second.id,
            }


def call(*args, command="'@example.add'"):
    return read_manifest(f"command: [{command}]\ntimeout: 1\nargs: {json.dumps(args)}\n")


@pytest.mark.parametrize(
    "manifest, sentence, hint",
    [
        (call("2", "3"), "one JSON text", 'args: [\'{"args":[2,3],"kwargs":{}}\']'),
        (call("it's"), "one JSON text", 'args: [\'{"args":["it\'\'s"],"kwargs":{}}\']'),
        (call(), "one JSON text", 'args: [\'{"args":[],"kwargs":{}}\']'),
        (call('{"args": [2, 3], "kwargs": {}}'), "sorted keys", '\'{"args":[2,3],"kwargs":{}}\''),
        (call('{"kwargs":{},"args":[2,3]}'), "sorted keys", '\'{"args":[2,3],"kwargs":{}}\''),
        (call(command="'@example.add', '2'"), "more words", "'args'"),
    ],
)
def test_a_call_that_no_handler_could_answer_says_how_it_is_written(manifest, sentence, hint):
    with pytest.raises(Malformed, match=sentence) as refusal:
        require_handler_call(manifest)
    assert hint in refusal.value.hint
    if "args: [" in refusal.value.hint:
        as_told = f"command: ['@example.add']\ntimeout: 1\n{refusal.value.hint}\n"
        require_handler_call(read_manifest(as_told))


def test_commands_and_proper_calls_pass():
    require_handler_call(read_manifest(BLOCK))
    require_handler_call(call('{"args":[2,3],"kwargs":{}}'))
    require_handler_call(call('{"args":[1.0,9007199254740993],"kwargs":{}}'))


def test_a_call_whose_arguments_are_stored_passes():
    stored = "inputs: [{kind: blobptr, algo: blake3, name: arguments, hash: '%s', size: 70000}]"
    written = f"command: ['@example.add']\ntimeout: 1\n{stored % ('0' * 64)}\n"
    require_handler_call(read_manifest(written))
    with pytest.raises(Malformed, match="one JSON text"):
        require_handler_call(read_manifest(written.replace("arguments", "others")))
    with pytest.raises(Malformed, match="size"):
        require_handler_call(read_manifest(written.replace(", size: 70000", "")))


async def test_a_call_by_kind_writes_the_same_manifest():
    written = "command: ['@example.add']\ntimeout: PT1H\n"
    written += 'args: [\'{"args":[2,3],"kwargs":{}}\']\n'
    async with Mesh.open(engine="memory") as mesh:
        by_kind = await mesh.submit("example.add", 2, 3, options={"once": True})
        by_manifest = await mesh.submit_manifest("example.add", read_manifest(written))
        elsewhere = await mesh.submit_manifest("example.sub", read_manifest(written))
    assert (by_manifest.id, by_manifest.is_new) == (by_kind.id, False)
    assert (elsewhere.id, elsewhere.is_new) == (by_kind.id, True)


# --- the page and the script ------------------------------------------------------------------


def test_the_examples_of_the_page_can_be_read():
    page = (ROOT / "docs/reference/manifest.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```(?:yaml|json)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 3
    read = [read_manifest(example) for example in examples]
    for manifest in read:
        require_handler_call(manifest)
    assert job_id(read[0]) == SEED_ID
    assert SEED_ID in page
    assert SEED_BYTES.decode() in page


@pytest.mark.processes
def test_the_script_says_whether_the_schemas_are_current(tmp_path):
    copied = tmp_path / "scripts" / "schemas"
    copied.parent.mkdir()
    copied.write_bytes((ROOT / "scripts/schemas").read_bytes())

    def run(*arguments):
        return subprocess.run(
            [sys.executable, copied, *arguments], capture_output=True, text=True, check=False
        )

    assert run().returncode == 1
    assert "--write" in run().stderr
    assert run("--write").returncode == run().returncode == 0
    made = {path.name: path.read_text() for path in (tmp_path / "docs/reference/schemas").iterdir()}
    assert made == {
        path.name: path.read_text() for path in (ROOT / "docs/reference/schemas").iterdir()
    }
    (tmp_path / "docs/reference/schemas/proof.schema.json").write_text("{}")
    assert "proof.schema.json is out of date" in run().stderr
    assert run("--wrong").returncode == 2
