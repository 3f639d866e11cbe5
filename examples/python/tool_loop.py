"""Lets a language model work in a sandbox with tools.

`Model` is the interface to the model. `ScriptedModel` stands for one here; a real one sends `messages` and
`anthropic_tools()` to an API, and returns the content of the response.
"""

import asyncio
from typing import Any, Dict, List, Protocol

from workspace_sdk import WorkspaceClient, anthropic_tools, call_tool, with_sandbox

Block = Dict[str, Any]


class Model(Protocol):
    async def respond(self, messages: List[Dict[str, Any]], tools: List[Dict[str, Any]]) -> List[Block]:
        """Returns the blocks of the next message: `text`, and `tool_use` for each call of a tool."""
        ...


class ScriptedModel:
    """Model that follows a script."""

    def __init__(self) -> None:
        self._calls = [
            ("write_file", {"path": "add.sh", "content": "echo $(($1 - $2))\n"}),
            ("run", {"command": "sh add.sh 2 3"}),
            ("edit_file", {"path": "add.sh", "old": "-", "new": "+"}),
            ("run", {"command": "sh add.sh 2 3"}),
            ("diff", {}),
        ]

    async def respond(self, messages: List[Dict[str, Any]], tools: List[Dict[str, Any]]) -> List[Block]:
        step = len(messages) // 2
        if step == len(self._calls):
            return [{"type": "text", "text": "The program adds two numbers."}]
        name, arguments = self._calls[step]
        assert name in [tool["name"] for tool in tools]
        return [{"type": "tool_use", "id": f"call-{step}", "name": name, "input": arguments}]


async def solve(model: Model, task: str) -> None:
    async with WorkspaceClient() as client, with_sandbox(client, template="base") as sandbox:
        messages: List[Dict[str, Any]] = [{"role": "user", "content": task}]
        while True:
            content = await model.respond(messages, anthropic_tools())
            messages.append({"role": "assistant", "content": content})
            results: List[Block] = []
            for block in content:
                if block["type"] == "text":
                    print(block["text"])
                elif block["type"] == "tool_use":
                    text = await call_tool(sandbox, block["name"], block["input"])
                    print(f"> {block['name']}\n{text}")
                    results.append({"type": "tool_result", "tool_use_id": block["id"], "content": text})
            if not results:
                return
            messages.append({"role": "user", "content": results})


asyncio.run(solve(ScriptedModel(), "Write a program that adds two numbers."))
