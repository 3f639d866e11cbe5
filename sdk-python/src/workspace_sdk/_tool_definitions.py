"""Definitions of the tools for language models, which `tools.json` has for all SDKs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Union


def openai_tools() -> List[Dict[str, Any]]:
    """Returns the definitions for the `tools` of OpenAI's chat completions."""
    return [{"type": "function", "function": tool} for tool in _definitions()]


def anthropic_tools() -> List[Dict[str, Any]]:
    """Returns the definitions for the `tools` of Anthropic's messages."""
    return [
        {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
        for tool in _definitions()
    ]


class ArgumentError(Exception):
    """Argument of a model that a tool does not accept."""


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Returns an argument that must be text."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ArgumentError(f"`{name}` must be a string")
    return value


def parse_arguments(arguments: Union[Mapping[str, Any], str]) -> Mapping[str, Any]:
    """Parses the arguments of a call, which some models send as text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ArgumentError("the arguments are not a JSON object")
    return value


def output_text(stdout: str, stderr: str) -> str:
    """Returns the output of a command as text for a model, each part on lines of its own."""
    parts = [f"\n{name}:\n{text.rstrip()}" for name, text in (("stdout", stdout), ("stderr", stderr)) if text]
    return "".join(parts)


def _definitions() -> List[Dict[str, Any]]:
    text = Path(__file__).with_name("tools.json").read_text(encoding="utf-8")
    definitions: List[Dict[str, Any]] = json.loads(text)
    return definitions
