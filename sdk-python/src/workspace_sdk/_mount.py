"""Mounts of NFS on this machine."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import List, NamedTuple, Sequence

from .errors import MountError, UnexpectedResponseError
from .types import NfsInfo

HELPER_DIRECTORIES = ("/sbin", "/usr/sbin", "/usr/local/sbin", "/run/current-system/sw/bin")
"""Directories in which `mount` looks for its helpers."""

SAFETY_OPTIONS = "nosuid,nodev"
"""A workspace has files of programs that are not trusted: they get no rights, and are no devices."""

HOST = re.compile(r"[\w.:][\w.:%-]*", re.ASCII)
"""Hosts that are no options of `mount`."""

PATH = re.compile(r"/[^\x00-\x1f\x7f-\x9f]*")
"""Paths without control characters."""


class Machine(NamedTuple):
    """What decides whether this process can mount."""

    platform: str
    is_root: bool
    has_helper: bool


def this_machine() -> Machine:
    """Returns the machine of this process."""
    has_helper = any(os.path.exists(f"{directory}/mount.nfs") for directory in HELPER_DIRECTORIES)
    return Machine(sys.platform, hasattr(os, "geteuid") and os.geteuid() == 0, has_helper)


def mount_command(info: NfsInfo, target: str, platform: str) -> List[str]:
    """Returns the command that mounts an export at an absolute path. Raises if its words could be options."""
    if not (HOST.fullmatch(info.host) and PATH.fullmatch(info.path)):
        raise UnexpectedResponseError("the server named an NFS export with invalid characters")
    # In `host:path`, an IPv6 address needs brackets.
    source = f"[{info.host}]:{info.path}" if ":" in info.host else f"{info.host}:{info.path}"
    is_mac = platform == "darwin"
    if info.mount_command_v4 is not None:
        # The kernel accepts only requests from ports below 1024, and tells its other ports by rpcbind.
        kind, options = "nfs4", "vers=3,tcp,resvport," if is_mac else ""
    else:
        kind, locks = "nfs", "nolocks" if is_mac else "nolock"
        options = f"vers=3,tcp,{locks},port={info.port},mountport={info.port},"
    program = ["mount_nfs"] if is_mac else ["mount", "-t", kind]
    return [*program, "-o", options + SAFETY_OPTIONS, source, target]


def unmount_command(target: str, platform: str, lazy: bool) -> List[str]:
    """Returns the command that unmounts a path. A lazy unmount does not wait for open files."""
    return ["umount", *([("-f" if platform == "darwin" else "-l")] if lazy else []), target]


def check_machine(command: Sequence[str], machine: Machine) -> None:
    """Raises `MountError` if a machine cannot run a command."""
    line = shlex.join(command)
    if machine.platform == "darwin":
        return
    if machine.platform != "linux":
        raise MountError(f"NFS exports cannot be mounted on {machine.platform}", hint="use sandbox.files", command=line)
    if command[0] == "mount" and not machine.has_helper:
        hint = f"install nfs-common (Debian) or nfs-utils (Fedora), then run: sudo {line}"
        raise MountError("this machine has no mount.nfs", hint=hint, command=line)
    if not machine.is_root:
        raise MountError(f"only root may {command[0]} on Linux", hint=f"run: sudo {line}", command=line)


def mount(info: NfsInfo, directory: str) -> None:
    """Mounts an export. The directory is created if it is missing."""
    target, machine = os.path.abspath(directory), this_machine()
    command = mount_command(info, target, machine.platform)
    check_machine(command, machine)
    os.makedirs(target, mode=0o700, exist_ok=True)
    run_command(command)


def unmount(directory: str, lazy: bool) -> None:
    """Unmounts a path."""
    machine = this_machine()
    command = unmount_command(os.path.abspath(directory), machine.platform, lazy)
    check_machine(command, machine)
    run_command(command)


def run_command(command: Sequence[str]) -> None:
    """Runs a command. Raises `MountError` if it fails."""
    import subprocess

    name = os.path.basename(command[0])
    hint = "end the programs that use it, or unmount with `lazy`" if name == "umount" else "see docs/nfs.md"
    line = shlex.join(command)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError as error:
        raise MountError(f"{name} failed: {error}", hint=hint, command=line) from error
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise MountError(f"{name} failed: {reason}", hint=hint, command=line)
