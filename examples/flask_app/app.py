"""A Flask app that hands slow work to a mesh and asks for the result later."""

from flask import Flask

from antiphon import JobFailed, Mesh

app = Flask(__name__)
mesh = Mesh.open().blocking()  # connects at its first use, in each process of the server


@mesh.task("report.render")
def render(order: int) -> str:
    return f"Report on order {order}"


@app.post("/orders/<int:order>/report")
def submit(order: int) -> tuple[dict[str, str], int]:
    return {"job": render.submit(order).id}, 202


@app.get("/reports/<job>")
def report(job: str) -> tuple[dict[str, str], int]:
    try:
        return {"report": render.job(job).result(timeout=2)}, 200
    except TimeoutError as waiting:
        return {"waiting": str(waiting)}, 202
    except JobFailed as failed:
        return {"error": str(failed)}, 502
