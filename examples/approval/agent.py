"""An agent that may prepare a release alone, and deploy it only when a person says yes.

antiphon worker agent.py
antiphon submit agent.release web 7
"""

from antiphon import JobContext, Mesh, NoAnswer

mesh = Mesh.open()


async def build(service: str, version: int) -> str:
    """The agent's own work: it is stored as a step, and not repeated after the wait."""
    print(f"building {service} {version}")
    return f"{service}-{version}.tar"


async def deploy(artifact: str) -> str:
    """What must not happen without a person."""
    print(f"deploying {artifact}")
    return f"{artifact} is live"


@mesh.task("agent.release", keep_output=True)
async def release(ctx: JobContext, service: str, version: int) -> str:
    """Build, ask, deploy."""
    artifact = await ctx.step("build", build, service, version)
    try:
        said = await ctx.ask(
            f"deploy {artifact} to production?",
            kind="approve.deploy",
            schema={
                "type": "object",
                "properties": {
                    "go": {"type": "boolean", "title": "Deploy it?"},
                    "why": {"type": "string", "maxLength": 200},
                },
                "required": ["go"],
                "additionalProperties": False,
            },
            within="2d",
            not_by=[ctx.submitter],
        )
    except NoAnswer:
        return f"{artifact} was not deployed: nobody answered"
    if not said["go"]:
        return f"{artifact} was not deployed: {said.get('why') or 'no reason given'}"
    return await ctx.step("deploy", deploy, artifact)
