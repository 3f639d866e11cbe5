"""Keys and the server itself."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ._request import Request, segment
from ._service import Service
from ._transport import parse_json
from .types import (
    CreateKey,
    GcReport,
    Health,
    Identity,
    Key,
    NewKey,
    NfsExports,
    ReadinessReport,
    ServerInfo,
    SystemStats,
)


class KeyService(Service):
    """API keys. Only `me` is for all keys; the rest is for admins."""

    async def list(self, *, timeout: Optional[float] = None) -> List[Key]:
        """Returns all keys, without their secrets."""
        return [Key.decode(item) for item in (await self._get("/api/v1/keys", timeout))["items"]]

    async def create(
        self, params: Optional[CreateKey] = None, *, timeout: Optional[float] = None, **fields: Any
    ) -> NewKey:
        """Creates a key. The parameters are a `CreateKey`, or its attributes as keyword arguments."""
        body = CreateKey(**fields) if params is None else params
        return NewKey.decode(await self._post("/api/v1/keys", body, timeout))

    async def revoke(self, key_id: str, *, timeout: Optional[float] = None) -> None:
        """Revokes a key."""
        await self._delete(f"/api/v1/keys/{segment(key_id)}", timeout)

    async def me(self, *, timeout: Optional[float] = None) -> Identity:
        """Returns the key or token of this client, with its limits."""
        return Identity.decode(await self._get("/api/v1/me", timeout))


class SystemService(Service):
    """The server."""

    async def info(self, *, timeout: Optional[float] = None) -> ServerInfo:
        """Returns name, version and main paths of the server."""
        return ServerInfo.decode(await self._get("/", timeout))

    async def health(self, *, timeout: Optional[float] = None) -> Health:
        """Returns that the server runs."""
        return Health.decode(await self._get("/health", timeout))

    async def ready(self, *, timeout: Optional[float] = None) -> ReadinessReport:
        """Returns the checks of the server, also of one that is not ready."""
        request = Request("GET", "/ready", timeout=timeout)
        return ReadinessReport.decode(parse_json(await self._transport.fetch_any(request, (503,))))

    async def stats(self, *, timeout: Optional[float] = None) -> SystemStats:
        """Returns numbers about the server."""
        return SystemStats.decode(await self._get("/api/v1/stats", timeout))

    async def nfs_exports(self, *, timeout: Optional[float] = None) -> NfsExports:
        """Lists the workspaces that can be mounted over NFS."""
        return NfsExports.decode(await self._get("/api/v1/nfs/exports", timeout))

    async def gc(self, *, timeout: Optional[float] = None) -> GcReport:
        """Collects garbage now. Admins only."""
        return GcReport.decode(await self._post("/api/v1/gc", None, timeout, repeatable=True, slow=True))

    async def metrics(self, *, timeout: Optional[float] = None) -> str:
        """Returns metrics in the format of Prometheus. Admins only."""
        return await self._text("/metrics", timeout)

    async def openapi(self, *, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Returns the description of the API."""
        description: Dict[str, Any] = await self._get("/api/v1/openapi.json", timeout)
        return description

    async def docs(self, *, timeout: Optional[float] = None) -> str:
        """Returns the page with the description of the API."""
        return await self._text("/api/docs", timeout)

    async def _text(self, path: str, timeout: Optional[float]) -> str:
        request = Request("GET", path, headers={"accept": "*/*"}, timeout=timeout)
        return (await self._transport.fetch(request)).content.decode("utf-8", "replace")
