"""Other ways of running a command in isolation: Docker, runc, crun, bubblewrap."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass

HARDENED = [
    "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--memory", "2g", "--cpus", "2", "--pids-limit", "512", "--user", "1000:1000", "--tmpfs", "/tmp",
]  # fmt: skip


@dataclass
class Package:
    program: str
    package: str


PACKAGES = [
    Package("dockerd", "docker.io"),
    Package("iptables", "iptables"),
    Package("runc", "runc"),
    Package("crun", "crun"),
    Package("bwrap", "bubblewrap"),
    Package("busybox", "busybox-static"),
]


class Docker:
    """A daemon of our own, and an image made of busybox."""

    name = "docker run"

    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="workspace-bench-docker-")
        self.host = f"unix://{self.home}/docker.sock"
        self.log = open(os.path.join(self.home, "log"), "wb")  # noqa: SIM115
        self.daemon = subprocess.Popen(
            [
                "dockerd", "--data-root", f"{self.home}/data", "--exec-root", f"{self.home}/exec",
                "--pidfile", f"{self.home}/pid", "--host", self.host, "--bridge", "none", "--iptables=false",
            ],
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        for _ in range(600):
            if self.quiet("version").returncode == 0:
                break
            time.sleep(0.1)
        with tempfile.TemporaryDirectory() as root:
            make_root(root)
            archive = subprocess.run(["tar", "-C", root, "-c", "."], check=True, capture_output=True).stdout
        imported = ["docker", "-H", self.host, "import", "-", "bench"]
        subprocess.run(imported, input=archive, check=True, stdout=subprocess.DEVNULL)

    def command(self, *words):
        return ["docker", "-H", self.host, *words]

    def quiet(self, *words):
        return subprocess.run(self.command(*words), capture_output=True, check=False)

    def run(self):
        return self.command("run", "--rm", *HARDENED, "bench", "/bin/echo", "hello")

    def start(self, name, writable=False):
        """Starts a container; `docker cp` needs a writable one."""
        options = [option for option in HARDENED if not (writable and option == "--read-only")]
        words = self.command("run", "-d", "--name", name, *options, "bench", "/bin/sleep", "1000000")
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def configuration(self):
        """What Docker hands to its OCI runtime, with its own list of system calls."""
        self.start("looked-at")
        try:
            for directory, _, names in os.walk(f"{self.home}/exec"):
                if "config.json" in names:
                    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
                        return json.load(file)
        finally:
            self.quiet("rm", "-f", "looked-at")
        raise FileNotFoundError("config.json of a container")

    def stop(self):
        self.daemon.terminate()
        self.daemon.wait(30)
        self.log.close()
        with contextlib.suppress(OSError):
            subprocess.run(["umount", "-R", f"{self.home}/data"], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)


class Oci:
    """An OCI runtime with the configuration that Docker would give it."""

    def __init__(self, program, configuration):
        self.program = program
        self.name = f"{program} run"
        self.home = tempfile.mkdtemp(prefix=f"workspace-bench-{program}-")
        root = os.path.join(self.home, "rootfs")
        os.mkdir(root)
        make_root(root)
        made = json.loads(json.dumps(configuration))
        made["process"]["args"] = ["/bin/echo", "hello"]
        made["process"]["terminal"] = False
        made["root"] = {"path": root, "readonly": True}
        made["hooks"] = {}
        made["mounts"] = [mount for mount in made["mounts"] if not mount["source"].startswith("/") or mount["type"] != "bind"]
        made["linux"].pop("cgroupsPath", None)
        for unset in ("cpus", "mems"):
            made["linux"]["resources"].get("cpu", {}).pop(unset, None)
        for namespace in made["linux"]["namespaces"]:
            namespace.pop("path", None)
        with open(os.path.join(self.home, "config.json"), "w", encoding="utf-8") as file:
            json.dump(made, file)
        self.count = 0

    def run(self):
        self.count += 1
        root = os.path.join(self.home, "state")
        return [self.program, "--root", root, "run", "--bundle", self.home, f"bench-{os.getpid()}-{self.count}"]

    def stop(self):
        shutil.rmtree(self.home, ignore_errors=True)


class Bubblewrap:
    """Namespaces only: neither limits nor a list of system calls."""

    name = "bwrap"

    def run(self):
        return [
            "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
            "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev",
            "--tmpfs", "/tmp", "/bin/echo", "hello",
        ]  # fmt: skip

    def stop(self):
        pass


def make_root(root):
    """A root filesystem of busybox."""
    for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "workspace"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin/busybox"))
    for name in ("sh", "echo", "sleep", "true", "cat", "mkdir"):
        os.symlink("busybox", os.path.join(root, "bin", name))


def time_to_output(words, user=None):
    """Seconds until the first byte of output."""
    began = time.perf_counter()
    # Unbuffered: what is read ahead would be lost to `communicate`.
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, user=user, group=user)
    first = process.stdout.read(1)
    took = time.perf_counter() - began
    rest, errors = process.communicate()
    if process.returncode != 0 or first + rest != b"hello\n":
        raise RuntimeError(f"{' '.join(words[:3])}: {errors.decode(errors='replace')[-400:]}")
    return took
