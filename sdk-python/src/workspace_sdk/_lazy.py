"""Modules that are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    """Module that is imported when one of its names is first read.

    The HTTP client takes most of the time of an import of the SDK, and a program may use a client late or never.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        # The next time, this method is not called.
        setattr(self, name, value)
        return value
