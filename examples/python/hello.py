"""Runs a program in a sandbox."""

from workspace_sdk.sync import WorkspaceClient

with WorkspaceClient() as client, client.sandbox.create(template="base") as sandbox:
    sandbox.files.write("hello.sh", 'echo "Hello from $(pwd)"\n')
    result = sandbox.process.run("sh hello.sh", check=True)
    print(result.stdout, end="")
