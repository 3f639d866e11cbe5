"""Base of all types of requests and responses: conversion from and to JSON, comparison, and a short `repr`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple, Type, TypeVar

from .errors import UnexpectedResponseError

T = TypeVar("T")
M = TypeVar("M", bound="Model")

Decoder = Optional[Callable[[Any], Any]]

Wire = Tuple[Tuple[str, str, Decoder, bool], ...]
"""Fields of a type: name of the attribute, name in JSON, decoder, and whether every response has it."""

SECRET_FIELDS = frozenset({"key", "token", "ticket", "url", "path_url", "envs", "websocket_url"})
"""Attributes that `repr` hides, so that they do not get into logs and notebooks."""

_REPR_MAX = 120
_FRACTION = re.compile(r"\.(\d+)")


class _WhenNeeded:
    """Attribute of a class that `dataclass` sets, and which makes the class a dataclass when it is first read."""

    def __init__(self, name: str, options: Mapping[str, bool]) -> None:
        self._name = name
        self._options = options

    def __get__(self, _: object, owner: type) -> Any:
        for name in _DATACLASS_ATTRIBUTES:
            delattr(owner, name)
        dataclass(**self._options)(owner)
        return getattr(owner, self._name)


_DATACLASS_ATTRIBUTES = ("__dataclass_fields__", "__match_args__")


def lazy_dataclass(**options: bool) -> Callable[[Type[T]], Type[T]]:
    """Makes a class a dataclass when that is asked for. For all types at once, it would take a third of the import."""

    def mark(cls: Type[T]) -> Type[T]:
        for name in _DATACLASS_ATTRIBUTES:
            setattr(cls, name, _WhenNeeded(name, options))
        return cls

    return mark


class Model:
    """Data of a request or a response. Attributes that a newer server adds are ignored."""

    _wire: ClassVar[Wire] = ()

    @classmethod
    def decode(cls: Type[M], data: Any) -> M:
        """Creates the object from parsed JSON."""
        if not isinstance(data, dict):
            raise UnexpectedResponseError(f"the server sent no JSON object where {cls.__name__} was expected")
        values: Dict[str, Any] = {}
        for name, wire, decoder, required in cls._wire:
            value = data.get(wire)
            if value is None:
                if required:
                    raise UnexpectedResponseError(f"the server sent a {cls.__name__} without `{wire}`")
                continue
            values[name] = value if decoder is None else decoder(value)
        return cls(**values)

    def encode(self) -> Dict[str, Any]:
        """Returns the object for JSON. Attributes that are `None` are left out."""
        values = ((wire, getattr(self, name)) for name, wire, _, _ in self._wire)
        return {wire: encode(value) for wire, value in values if value is not None}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown: List[str] = []
        for name, _, _, _ in self._wire:
            value = getattr(self, name)
            if value is None or value == [] or value == {}:
                continue
            text = "'…'" if name in SECRET_FIELDS else repr(value)
            if len(text) > _REPR_MAX:
                text = text[:_REPR_MAX] + "…"
            shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


def encode(value: Any) -> Any:
    """Converts a value to what JSON can express."""
    if isinstance(value, Model):
        return value.encode()
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def each(decoder: Callable[[Any], T]) -> Callable[[Any], List[T]]:
    """Returns a decoder of lists."""
    return lambda values: [decoder(value) for value in values]


def tagged(tag: str, types: Mapping[str, Type[Model]]) -> Callable[[Any], Any]:
    """Returns a decoder that selects the type by the field `tag`. Objects of unknown types stay dictionaries."""

    def decode(data: Any) -> Any:
        selected = types.get(str(data.get(tag))) if isinstance(data, dict) else None
        return data if selected is None else selected.decode(data)

    return decode


def parse_time(text: str) -> datetime:
    """Parses a time in RFC 3339. Python before 3.11 accepts neither `Z` nor every number of digits."""
    normalised = _FRACTION.sub(lambda match: "." + match.group(1)[:6].ljust(6, "0"), text)
    try:
        return datetime.fromisoformat(normalised.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError as error:
        raise UnexpectedResponseError(f"the server sent the invalid time {text!r}") from error


def format_time(time: datetime) -> str:
    """Formats a time in RFC 3339 in UTC. A time without a zone is local time, as in the standard library."""
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
