"""Runs commands and measures them: wall time, CPU time, peak resident memory."""

import os
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field


class CommandFailed(Exception):
    """A measured command did not do its work, so its time means nothing."""


@dataclass
class Command:
    """One program with its arguments, working directory and additions to the environment."""

    argv: list
    cwd: str = None
    env: dict = field(default_factory=dict)
    allowed: tuple = (0,)


@dataclass
class Usage:
    """What running something cost."""

    wall: float
    cpu: float
    max_rss: int
    output: str = ""


def run(command, capture=False):
    """Runs one command to its end."""
    environment = {**os.environ, "LC_ALL": "C", **command.env}
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command.argv],
        cwd=command.cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if capture else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    # Both pipes are drained: a full one would stop the program that is measured.
    errors = []
    reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    reader.start()
    try:
        output = process.stdout.read() if capture else b""
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        process.wait()
        raise
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    process.stderr.close()
    if capture:
        process.stdout.close()
    if process.returncode not in command.allowed:
        text = errors[0].decode(errors="replace").strip()
        raise CommandFailed(f"{' '.join(map(str, command.argv))}: exit {process.returncode}\n{text}")
    cpu = usage.ru_utime + usage.ru_stime
    return Usage(wall, cpu, usage.ru_maxrss * 1024, output.decode(errors="replace").strip())


def run_all(commands):
    """Runs commands one after the other; the wall time is the sum, the memory the largest."""
    parts = [run(command) for command in commands]
    return Usage(
        sum(part.wall for part in parts),
        sum(part.cpu for part in parts),
        max(part.max_rss for part in parts),
    )


def sync_filesystem(path):
    """Writes out everything dirty on the filesystem of `path` and returns the seconds it took."""
    return run(Command(["sync", "-f", path])).wall


def summary(samples, scale=1.0):
    """Median and range of a list of numbers."""
    scaled = [sample * scale for sample in samples]
    return {
        "median": statistics.median(scaled),
        "min": min(scaled),
        "max": max(scaled),
        "samples": len(scaled),
    }


def p95(samples):
    return last_quantile(samples, 20)


def p99(samples):
    return last_quantile(samples, 100)


def last_quantile(samples, parts):
    """Value above which the last of so many equal parts of the samples is; that of a single sample is the sample."""
    return statistics.quantiles(samples, n=parts)[-1] if len(samples) > 1 else samples[0]


def disk_usage(paths):
    """Bytes of disk blocks and bytes of content under `paths`; a hard link counts once."""
    blocks = content = 0
    seen = set()
    for root in paths:
        for directory, _, names in os.walk(root):
            for path in [directory, *(os.path.join(directory, name) for name in names)]:
                status = os.lstat(path)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                blocks += status.st_blocks * 512
                content += status.st_size
    return blocks, content
