"""A FastAPI app that hands slow work to a mesh and asks for the result later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Response

from antiphon import JobFailed, JobStatus, Mesh, Misconfigured, Rejected

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
async def report(job: str, response: Response) -> dict[str, str] | JobStatus:
    try:
        handle = render.job(job)
        return {"report": await handle.result(timeout=0)}  # now, or not yet
    except TimeoutError:
        response.status_code = 202
        return await handle.status()
    except JobFailed as failed:
        raise HTTPException(502, str(failed)) from failed
    except (Misconfigured, Rejected) as unknown:
        raise HTTPException(404, str(unknown)) from unknown
