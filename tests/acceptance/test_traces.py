"""One trace across real processes: a caller, a worker, and a handler's own process."""

import json
import subprocess
import sys

import pytest

from tests.acceptance.shell import Shell, until
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats

SETUP = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Written(InMemorySpanExporter):
    def export(self, spans):
        result = super().export(spans)
        with open(os.path.join(os.path.dirname(__file__), "spans.jsonl"), "a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent else 0
                line = [span.name, span.context.trace_id, span.context.span_id, parent, os.getpid()]
                file.write(json.dumps(line) + "\\n")
        return result


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Written()))
trace.set_tracer_provider(provider)
"""
TASKS = """
import traced
from antiphon import Mesh

mesh = Mesh.open()


@mesh.task("shop.pack", run_in="process")
def pack(order: int) -> int:
    with traced.trace.get_tracer("shop").start_as_current_span("pack"):
        return order + 1


@mesh.task("shop.order")
async def order(number: int) -> int:
    with traced.trace.get_tracer("shop").start_as_current_span("check"):
        return number
"""
CALLER = """
import asyncio, sys
import traced
from tasks import order, pack, mesh


async def main():
    async with mesh:
        with traced.trace.get_tracer("shop").start_as_current_span("request"):
            first, second = await order.submit(1), await pack.submit(2)
        print(await first.result(), await second.result())


asyncio.run(main())
"""


def test_caller_worker_and_process_are_in_one_trace(tmp_path):
    for name, text in (("traced", SETUP), ("tasks", TASKS), ("caller", CALLER)):
        (tmp_path / f"{name}.py").write_text(text)
    shell = Shell(tmp_path)
    with shell.start("dev", "--tasks", "tasks", "--json") as dev:
        dev.line("ready")
        done = subprocess.run(
            [sys.executable, "caller.py"],
            cwd=tmp_path,
            env=shell.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.stdout == "1 3\n", done.stderr
        file = tmp_path / "spans.jsonl"
        until(lambda: len(file.read_text().splitlines()) >= 7)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    spans = {name: (trace, own, parent, pid) for name, trace, own, parent, pid in lines}
    assert sorted(spans) == [
        "check",
        "pack",
        "request",
        "run shop.order",
        "run shop.pack",
        "submit shop.order",
        "submit shop.pack",
    ]
    assert len({trace for trace, _, _, _ in spans.values()}) == 1
    parents = {"submit shop.order": "request", "run shop.order": "submit shop.order"}
    parents |= {"check": "run shop.order", "run shop.pack": "submit shop.pack"}
    parents |= {"pack": "run shop.pack", "submit shop.pack": "request"}
    assert all(spans[name][2] == spans[parent][1] for name, parent in parents.items())
    pids = {name: pid for name, (_, _, _, pid) in spans.items()}
    assert len({pids["request"], pids["check"], pids["pack"]}) == 3
