"""A PostgreSQL server of our own, in a temporary directory, reachable only over a Unix socket in it."""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ("initdb", "postgres", "pg_isready", "psql")
START_SECONDS = 60


def programs():
    """Directory of the programs, which Debian installs outside of PATH, by version; `None` without them."""
    newest_first = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=version_of, reverse=True)
    for directory in [*newest_first, *os.environ.get("PATH", "").split(os.pathsep)]:
        if all(os.access(os.path.join(directory, name), os.X_OK) for name in PROGRAMS):
            return directory
    return None


def version_of(directory):
    version = os.path.basename(os.path.dirname(directory))
    return int(version) if version.isdigit() else 0


class Postgres:
    """A server with Debian's default settings, so a commit is on disk when it is answered."""

    def __init__(self, directory):
        self.programs = directory
        self.home = tempfile.mkdtemp(prefix="workspace-bench-postgres-")
        self.process = None
        # PostgreSQL refuses to run as root.
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        try:
            if self.user is not None:
                os.chown(self.home, self.user.pw_uid, self.user.pw_gid)
            self.start()
        except BaseException:
            self.stop()
            raise

    def command(self, name, *words):
        return [os.path.join(self.programs, name), *words]

    def identity(self):
        if self.user is None:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def start(self):
        data = os.path.join(self.home, "data")
        initdb = self.command("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8")
        made = subprocess.run(initdb, cwd=self.home, capture_output=True, check=False, **self.identity())
        if made.returncode != 0:
            raise RuntimeError(f"initdb: {made.stderr.decode(errors='replace')}")
        settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.home}"]
        with open(os.path.join(self.home, "log"), "wb") as log:
            self.process = subprocess.Popen(
                self.command("postgres", "-D", data, *settings),
                cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **self.identity(),
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while subprocess.run(self.command("pg_isready", "-q", "-h", self.home), check=False).returncode != 0:
            if time.monotonic() > until or self.process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {self.log()}")
            time.sleep(0.1)

    def log(self):
        with open(os.path.join(self.home, "log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]

    def version(self):
        return subprocess.run(self.command("postgres", "--version"), check=True, capture_output=True, text=True).stdout.strip()

    def database(self, name):
        """URL of a new database."""
        psql = self.command("psql", "-q", "-h", self.home, "-U", "postgres", "-c", f'CREATE DATABASE "{name}"')
        subprocess.run(psql, check=True, stdout=subprocess.DEVNULL)
        return f"postgres://postgres@localhost/{name}?host={self.home}"

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            # An immediate shutdown: the data is removed anyway.
            self.process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(20)
        shutil.rmtree(self.home, ignore_errors=True)
