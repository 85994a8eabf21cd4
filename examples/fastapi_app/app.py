"""A FastAPI app that hands slow work to a mesh and asks for the result later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from antiphon import JobFailed, Mesh

mesh = Mesh.open()


@mesh.task("report.render")
def render(order: int) -> str:
    return f"Report on order {order}"


@asynccontextmanager
async def connected(_app: FastAPI) -> AsyncIterator[None]:
    async with mesh:
        yield


app = FastAPI(lifespan=connected)


@app.post("/orders/{order}/report", status_code=202)
async def submit(order: int) -> dict[str, str]:
    return {"job": (await render.submit(order)).id}


@app.get("/reports/{job}")
async def report(job: str) -> JSONResponse:
    try:
        return JSONResponse({"report": await render.job(job).result(timeout=2)})
    except TimeoutError as waiting:
        return JSONResponse({"waiting": str(waiting)}, 202)
    except JobFailed as failed:
        return JSONResponse({"error": str(failed)}, 502)
