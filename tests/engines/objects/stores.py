"""Object stores as the engine suite wants them: an engine of which only the blobs are there."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from antiphon.ports import Blobs

BUCKET = "artifacts"
PIECES = 1024 * 1024
SERVER = """
import json, sys, urllib.request
import boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
address = "http://%s:%d" % server.get_host_and_port()
keys = dict(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket=sys.argv[1])
iam = boto3.client("iam", endpoint_url=address, **keys)
iam.create_user(UserName="tester")
allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=policy)
made = iam.create_access_key(UserName="tester")["AccessKey"]
# From here on every request needs a true signature.
plain = {"Content-Type": "text/plain"}
reset = urllib.request.Request(f"{address}/moto-api/reset-auth", data=b"0", headers=plain)
urllib.request.urlopen(reset)
print("ready", address, made["AccessKeyId"], made["SecretAccessKey"], flush=True)
sys.stdin.read()
"""
"""Ends with its test, whose end of the pipe it watches."""


class OnlyBlobs:
    """As much of an engine as a blob suite touches."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs

    async def close(self) -> None:
        pass


class BlobHarness:
    """Every connection sees the same store; each mesh its own part of it."""

    def __init__(self, blobs_of: Any) -> None:
        self.blobs_of = blobs_of

    async def connect(self, mesh: str, *, create: bool = True, loan_s: float | None = None) -> Any:
        return OnlyBlobs(self.blobs_of(mesh))


class S3Server(NamedTuple):
    """Where it is, and the one pair of keys that it takes."""

    address: str
    key_id: str
    secret: str

    @property
    def env(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "ANTIPHON_S3_ENDPOINT": self.address,
            "ANTIPHON_S3_REGION": "eu-central-1",
        }


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server of the S3 protocol on loopback, with one empty bucket."""
    if importlib.util.find_spec("moto") is None:
        if os.environ.get("CI"):
            pytest.fail("moto is missing: it is in requirements.lock")
        pytest.skip("no moto here: scripts/setup brings it")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, BUCKET],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.fullmatch(r"ready (http://127\.0\.0\.1:\d+) (\S+) (\S+)\n", line):
                yield S3Server(*found.groups())
                break
        else:
            raise AssertionError("the server did not start")
    finally:
        process.kill()
        process.communicate()
