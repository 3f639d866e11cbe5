"""NFS export of a sandbox."""

from __future__ import annotations

import os
from typing import Optional, Union

from ._runtime import in_thread
from .errors import MountError
from .types import NfsInfo

Path = Union[str, "os.PathLike[str]"]


class NFSMount:
    """Mounted workspace. Used with `async with`, it is unmounted at the end of the block."""

    path: str
    """Directory of the mount."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<NFSMount {self.path}>"

    async def __aenter__(self) -> NFSMount:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.unmount()

    async def unmount(self, *, lazy: bool = False) -> None:
        """Unmounts the workspace. The directory stays. With `lazy`, programs that use it are not waited for."""
        from ._mount import unmount

        await in_thread(unmount, self.path, lazy)


class NFSService:
    """Address of the workspace for NFS clients.

    Its `repr` has no path, because who knows the path may read and write the workspace.
    """

    def __init__(self, info: Optional[NfsInfo]) -> None:
        self._info = info

    def __repr__(self) -> str:
        return f"<NFSService {'exported' if self.is_exported else 'not exported'}>"

    @property
    def is_exported(self) -> bool:
        """False if the workspace is not exported; then the other attributes raise `MountError`.

        The server has `NFS_MODE=off`, the sandbox follows the head of a project or is paused to disk, or the token of
        the client lacks a right to files.
        """
        return self._info is not None

    @property
    def host(self) -> str:
        """Host name or address."""
        return self._exported().host

    @property
    def port(self) -> int:
        """TCP port of NFS."""
        return self._exported().port

    @property
    def path(self) -> str:
        """Path to mount. It is a credential: who knows it may read and write the workspace."""
        return self._exported().path

    @property
    def mount_command(self) -> str:
        """Command that mounts the workspace at `/mnt` on Linux. It needs root."""
        return self._exported().mount_command

    @property
    def mount_command_v4(self) -> Optional[str]:
        """Command that mounts the workspace at `/mnt` on Linux by NFSv4; `None` unless the kernel is the server."""
        return self._exported().mount_command_v4

    @property
    def mount_command_macos(self) -> str:
        """Command that mounts the workspace at `/mnt` on macOS."""
        return self._exported().mount_command_macos

    async def mount(self, path: Path) -> NFSMount:
        """Mounts the workspace at a directory of this machine, which is created if it is missing.

        Linux needs root and `mount.nfs`; otherwise, the `MountError` has the command to run.
        """
        from ._mount import mount

        info, directory = self._exported(), os.fspath(path)
        await in_thread(mount, info, directory)
        return NFSMount(directory)

    async def unmount(self, path: Path, *, lazy: bool = False) -> None:
        """Unmounts a directory of this machine. With `lazy`, programs that use it are not waited for."""
        from ._mount import unmount

        await in_thread(unmount, os.fspath(path), lazy)

    def _exported(self) -> NfsInfo:
        if self._info is None:
            raise MountError("the workspace is not exported over NFS", hint="see docs/nfs.md")
        return self._info
