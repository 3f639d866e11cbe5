"""Merges the work of two agents into a project, and decides their conflict in a review."""

import os

from workspace_sdk.sync import Sandbox, WorkspaceClient


def work(client: WorkspaceClient, project: str, agent: str, title: str) -> Sandbox:
    """Lets an agent change the title, and add a page of its own."""
    sandbox = client.sandbox.create(template="base", project=project, agent=agent)
    sandbox.files.write("index.md", f"# {title}\n")
    sandbox.files.write(f"{agent}.md", f"written by {agent}\n")
    return sandbox


with WorkspaceClient() as client:
    project = client.projects.create(name=f"example-{os.getpid()}")
    with client.sandbox.create(template="base", project=project.name, agent="founder") as founder:
        founder.files.write("index.md", "# Untitled\n")
        founder.complete(message="first version", wait=30)

    with work(client, project.name, "writer", "A guide") as writer:
        with work(client, project.name, "editor", "The guide") as editor:
            for sandbox in (writer, editor):
                completion = sandbox.complete(message=f"work of {sandbox.agent}", wait=30)
                print(f"{sandbox.agent}: {completion.state}, conflicts: {len(completion.conflicts)}")

    for review in client.reviews.list(project.name, state="open").items:
        details = client.reviews.get(project.name, review.id)
        print(f"{review.path}: {details.ours.content!r} or {details.theirs.content!r}")
        client.reviews.resolve(project.name, review.id, choice="theirs", expect=details.head.version)

    print(client.projects.read(project.name, "index.md"), end="")
    print(sorted(entry.name for entry in client.projects.tree(project.name).items or []))
    client.projects.delete(project.name)
