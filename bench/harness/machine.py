"""The machine of a run: what it is, and what has to be installed on it."""

import os
import platform
import shutil
import subprocess
import sys

from timing import Command, run


def install_missing(tools):
    """Installs the Debian packages of peers that are not there."""
    missing = sorted({tool.package for tool in tools if not shutil.which(tool.program)})
    if not missing:
        return
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    print(f"installing {', '.join(missing)}", file=sys.stderr)
    subprocess.run([*prefix, "apt-get", "update", "-qq"], check=True, stdout=subprocess.DEVNULL)
    install = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    subprocess.run([*prefix, *install, *missing], check=True, stdout=subprocess.DEVNULL)


def describe(directory):
    """Facts that every number depends on."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "system": system_name(),
        "filesystem": filesystem(directory),
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
        "load_before": round(os.getloadavg()[0], 2),
    }


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def git_version():
    return run(Command(["git", "--version"]), capture=True).output


def system_name():
    return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")


def filesystem(directory):
    """Type and options of the filesystem that holds `directory`."""
    best = ("", "")
    real = os.path.realpath(directory)
    with open("/proc/self/mounts", encoding="utf-8") as lines:
        for line in lines:
            _, point, kind, options = line.split()[:4]
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, f"{kind} ({options})")
    return best[1]
