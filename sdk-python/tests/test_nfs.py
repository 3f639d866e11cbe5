"""Mounts over NFS: what is run, and what is said if it cannot be. `scripts/vm/nfs-client` mounts for real."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import List, Optional

import pytest

from workspace_sdk._mount import Machine, check_machine, mount_command, run_command, this_machine, unmount_command
from workspace_sdk.errors import MountError, UnexpectedResponseError
from workspace_sdk.sync import WorkspaceClient
from workspace_sdk.types import NfsInfo

LINUX = Machine("linux", is_root=True, has_helper=True)


def export(host: str, path: str, mount_command_v4: Optional[str] = None) -> NfsInfo:
    return NfsInfo(host, "", "", path, 3049, mount_command_v4)


def refusal(command: List[str], machine: Machine) -> str:
    with pytest.raises(MountError) as raised:
        check_machine(command, machine)
    assert raised.value.command == shlex.join(command)
    return str(raised.value)


def test_mount_commands_have_the_options_of_the_server_and_give_programs_no_rights() -> None:
    options = "port=3049,mountport=3049,nosuid,nodev"
    linux = mount_command(export("10.0.0.1", "/sbx-1.0123456789abcdef"), "/mnt", "linux")
    assert shlex.join(linux) == (f"mount -t nfs -o vers=3,tcp,nolock,{options} 10.0.0.1:/sbx-1.0123456789abcdef /mnt")
    macos = mount_command(export("fd00::1", "/sbx-1"), "/mnt", "darwin")
    assert " ".join(macos) == f"mount_nfs -o vers=3,tcp,nolocks,{options} [fd00::1]:/sbx-1 /mnt"
    assert unmount_command("/mnt", "linux", lazy=False) == ["umount", "/mnt"]
    assert unmount_command("/mnt", "linux", lazy=True) == ["umount", "-l", "/mnt"]
    assert unmount_command("/mnt", "darwin", lazy=True) == ["umount", "-f", "/mnt"]

    for host, path in (("-oloop", "/sbx-1"), ("host", "sbx-1"), ("host", "/a\nb"), ("a b", "/sbx-1")):
        with pytest.raises(UnexpectedResponseError):
            mount_command(export(host, path), "/mnt", "linux")


def test_exports_of_the_kernel_are_mounted_by_nfsv4_on_linux() -> None:
    system = export("10.0.0.1", "/it's data", "mount -t nfs4 …")
    expected = ["mount", "-t", "nfs4", "-o", "nosuid,nodev", "10.0.0.1:/it's data", "/mnt"]
    assert mount_command(system, "/mnt", "linux") == expected
    assert mount_command(system, "/mnt", "darwin")[2] == "vers=3,tcp,resvport,nosuid,nodev"


def test_an_error_of_a_mount_names_the_command_to_run() -> None:
    command = ["mount", "-o", "vers=3", "/it is here"]
    quoted = "mount -o vers=3 '/it is here'"
    check_machine(command, LINUX)
    check_machine(command, Machine("darwin", is_root=False, has_helper=False))
    check_machine(["umount", "/mnt"], LINUX._replace(has_helper=False))
    assert refusal(command, LINUX._replace(is_root=False)) == (
        f"only root may mount on Linux\nhint: run: sudo {quoted}"
    )
    assert refusal(command, LINUX._replace(has_helper=False)) == (
        f"this machine has no mount.nfs\nhint: install nfs-common (Debian) or nfs-utils (Fedora), then run: sudo {quoted}"
    )
    assert refusal(command, LINUX._replace(platform="win32")).startswith("NFS exports cannot be mounted on win32\n")


def test_a_mount_runs_its_program_and_reports_its_failure(tmp_path: Path) -> None:
    script = tmp_path / "mount"
    script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\necho broken >&2\nexit "$1"\n')
    script.chmod(0o755)
    run_command([str(script), "0", "a b"])
    assert (tmp_path / "arguments").read_text() == "0 a b\n"
    with pytest.raises(MountError, match=r"^mount failed: broken\nhint: see docs/nfs\.md$"):
        run_command([str(script), "32"])
    with pytest.raises(MountError, match="^none failed: "):
        run_command([str(tmp_path / "none")])


def test_a_sandbox_has_its_export_and_mounts_it_or_says_why_not(client: WorkspaceClient, tmp_path: Path) -> None:
    with client.sandbox.create(template="base") as sandbox:
        nfs = sandbox.nfs
        assert nfs.is_exported
        info = NfsInfo(nfs.host, nfs.mount_command, nfs.mount_command_macos, nfs.path, nfs.port, nfs.mount_command_v4)
        for platform, expected in (("linux", nfs.mount_command), ("darwin", nfs.mount_command_macos)):
            built = shlex.join(mount_command(info, "/mnt", platform))
            assert built.replace(",nosuid,nodev", "") == expected
        assert nfs.path not in repr(nfs) + repr(sandbox)

        with pytest.raises(MountError):
            nfs.unmount(tmp_path)
        command = mount_command(info, str(tmp_path), sys.platform)
        machine = this_machine()
        if not (machine.is_root and machine.has_helper):
            with pytest.raises(MountError) as raised:
                nfs.mount(tmp_path)
            assert str(raised.value) == refusal(command, machine)

        sandbox.pause()
        assert not sandbox.nfs.is_exported
        with pytest.raises(MountError, match="not exported"):
            _ = sandbox.nfs.path
        sandbox.resume()
        assert sandbox.nfs.path == nfs.path
