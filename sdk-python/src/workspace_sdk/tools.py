"""Tools for language models: definitions for their APIs, and their execution in a sandbox."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Union

from ._tool_definitions import (
    ArgumentError,
    anthropic_tools,
    openai_tools,
    output_text,
    parse_arguments,
    text_argument,
)
from .errors import CommandFailedError, ProcessTimeoutError, WorkspaceError
from .sandbox import Sandbox

__all__ = ["anthropic_tools", "call_tool", "openai_tools"]


async def call_tool(sandbox: Sandbox, name: str, arguments: Union[Mapping[str, Any], str]) -> str:
    """Performs a call of a tool, and returns the text for the model.

    `arguments` is the object, or its JSON text, that the model sent. Errors of the call are texts that begin with
    `error: `. A server that cannot be reached is raised.
    """
    tool = TOOLS.get(name)
    try:
        if tool is None:
            raise ArgumentError(f"there is no tool `{name}`")
        text: str = await tool(sandbox, parse_arguments(arguments))
    except ArgumentError as error:
        return f"error: {error}"
    except (ProcessTimeoutError, CommandFailedError) as error:
        return f"error: {error.message}{output_text(error.stdout, error.stderr)}"
    except WorkspaceError as error:
        if error.code == 0:
            raise
        return f"error: {error.message}"
    return text


async def _run(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    seconds = arguments.get("timeoutSeconds", 60)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ArgumentError("`timeoutSeconds` must be a positive number")
    result = await sandbox.process.run(text_argument(arguments, "command"), timeout=seconds)
    truncated = "\n(the output is truncated)" if result.truncated else ""
    return f"exit code {result.exit_code}{output_text(result.stdout, result.stderr)}{truncated}"


async def _read_file(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    return await sandbox.files.read(text_argument(arguments, "path"))


async def _write_file(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    path, content = text_argument(arguments, "path"), text_argument(arguments, "content")
    return f"wrote {(await sandbox.files.write(path, content, mkdirs=True)).path}"


async def _edit_file(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    """Replaces a part of a file, unless somebody else changes it meanwhile."""
    path, old, new = (text_argument(arguments, name) for name in ("path", "old", "new"))
    etag = (await sandbox.files.stat(path)).etag
    data = (await sandbox.files.read_bytes(path, if_match=etag)).decode("utf-8", "surrogateescape")
    count = data.count(old) if old else 0
    if count != 1:
        raise ArgumentError(f"`old` occurs {count} times in {path}, not exactly once")
    await sandbox.files.write(path, data.replace(old, new), if_match=etag)
    return f"edited {path}"


async def _commit(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    message = text_argument(arguments, "message") if "message" in arguments else None
    result = await sandbox.commit(message=message)
    return f"snapshot {result.snapshot.id}"


async def _diff(sandbox: Sandbox, arguments: Mapping[str, Any]) -> str:
    return (await sandbox.patch()) or "no changes"


TOOLS: Dict[str, Callable[[Sandbox, Mapping[str, Any]], Any]] = {
    "run": _run,
    "read_file": _read_file,
    "write_file": _write_file,
    "edit_file": _edit_file,
    "commit": _commit,
    "diff": _diff,
}
"""Function of each tool."""
