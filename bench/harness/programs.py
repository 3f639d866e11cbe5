"""The programs that are measured: built from this repository, or given."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Directory of programs that are measured as they are, instead of being built.
PROGRAMS = "WORKSPACE_BENCH_PROGRAMS"


def build_packages(*packages):
    """Builds packages of this repository. Returns the directory of the release programs."""
    flags = [word for package in packages for word in ("-p", package)]
    subprocess.run(["cargo", "build", "--release", "--locked", *flags], cwd=ROOT, check=True)
    return release_directory()


def release_directory():
    """Returns the directory in which cargo puts release programs, whichever way it is configured."""
    return os.path.join(cargo_metadata("--no-deps")["target_directory"], "release")


def cargo_metadata(*options):
    words = ["cargo", "metadata", "--format-version=1", *options]
    return json.loads(subprocess.run(words, cwd=ROOT, check=True, capture_output=True).stdout)


def build_server(*more):
    """Builds the release as it is shipped and programs of more packages. Returns a directory with all of them.

    The guest agent is beside the server. With WORKSPACE_BENCH_PROGRAMS nothing is built.
    """
    if PROGRAMS in os.environ:
        return given_programs(("workspace-server", "workspace-agent", *more))
    release = build_packages("workspace-server", *more)
    agent = subprocess.run(["scripts/agent.sh"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    binaries = tempfile.mkdtemp(prefix="workspace-bench-bin-")
    # Copies, in a place that every user may read.
    os.chmod(binaries, 0o755)
    for program in ("workspace-server", *more):
        shutil.copy(os.path.join(release, program), binaries)
    shutil.copy(os.path.join(ROOT, agent), binaries)
    return binaries


def given_programs(names):
    directory = os.path.abspath(os.environ[PROGRAMS])
    missing = [name for name in names if not os.access(os.path.join(directory, name), os.X_OK)]
    if missing:
        print(f"error: {PROGRAMS}={directory} has no {', '.join(missing)}", file=sys.stderr)
        sys.exit(2)
    return directory
