"""A headless Chromium, driven over its debugging pipe: no other package is needed for it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
COMMAND: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
WAIT_S: Final = 60.0
MOST_BYTES: Final = 64 << 20
"""Of one message: a screenshot."""


def program() -> str | None:
    """Where the browser is; None if none is installed."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Seen(Struct):
    """What a page brought with it since it was opened."""

    bytes: int = 0
    errors: list[str] = []


class Browser:
    """One tab."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._session = ""
        self.seen = Seen()

    async def attach(self) -> None:
        """Open the tab and listen to it."""
        made = await self.call("Target.createTarget", url="about:blank")
        target = made["targetId"]
        attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            await self.call(f"{domain}.enable")

    async def listen(self) -> None:
        """Take what the browser says until it ends."""
        while True:
            try:
                raw = await self._reader.readuntil(b"\0")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            self._take(json.loads(raw[:-1]))
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the browser has ended"))

    def _take(self, message: dict[str, Any]) -> None:
        waiting = self._answers.pop(message.get("id", 0), None)
        if waiting is not None and not waiting.done():
            if "error" in message:
                waiting.set_exception(RuntimeError(message["error"]["message"]))
            else:
                waiting.set_result(message.get("result", {}))
            return
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.loadingFinished":
                self.seen.bytes += int(about["encodedDataLength"])
            case "Runtime.exceptionThrown":
                self.seen.errors.append(str(about["exceptionDetails"]["text"]))
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.seen.errors.append(str(about["entry"]["text"]))
            case "Runtime.consoleAPICalled" if about["type"] in {"error", "warning"}:
                self.seen.errors.append(str([one.get("value") for one in about["args"]]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the debugging protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(WAIT_S):
            return await answer

    async def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded; what it brings is counted anew."""
        self.seen = Seen()
        await self.during(self.call("Page.navigate", url=url))

    async def during(self, act: Any) -> None:
        """Do something that loads a page, and wait for that."""
        self._loaded.clear()
        await act
        async with asyncio.timeout(WAIT_S):
            await self._loaded.wait()

    async def ask(self, script: str) -> Any:
        """What an expression gives."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(WAIT_S):
            while not await self.ask(script):
                await asyncio.sleep(0.05)

    async def click(self, selector: str) -> None:
        """Click what a selector finds first."""
        await self.ask(f"document.querySelector({json.dumps(selector)}).click()")

    async def press(self, selector: str) -> None:
        """Click what loads another page."""
        await self.during(self.click(selector))

    async def choose_file(self, selector: str, file: Path) -> None:
        """Choose a file in a form that sends it at once."""
        root = (await self.call("DOM.getDocument"))["root"]["nodeId"]
        found = await self.call("DOM.querySelector", nodeId=root, selector=selector)
        await self.during(
            self.call("DOM.setFileInputFiles", nodeId=found["nodeId"], files=[str(file)])
        )

    async def look(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Have a window of this size, and this theme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    async def picture(self, *, whole: bool = True) -> bytes:
        """What is seen, as PNG; the whole page or the window."""
        taken = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """A browser with one tab, in a directory of its own, while the block runs."""
    found = program()
    if found is None:
        raise FileNotFoundError("chromium is not installed: apt-get install chromium")
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    flags = [*COMMAND, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as home:

        def arrange() -> None:
            # The browser reads from 3 and writes to 4, whatever numbers our pipes have.
            low, high = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(low, 3)
            os.dup2(high, 4)

        process = await asyncio.create_subprocess_exec(
            found,
            *flags,
            f"--user-data-dir={home}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=arrange,
            env={**os.environ, "HOME": home},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MOST_BYTES)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(ours_out, "wb")
        )
        tab = Browser(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
        listening = asyncio.ensure_future(tab.listen())
        try:
            await tab.attach()
            yield tab
        finally:
            listening.cancel()
            transport.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
