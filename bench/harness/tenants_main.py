"""Two tenants on one server: one attacks, the other measures."""

import contextlib
import ctypes
import os
import struct
import threading
import time

from benchmark import measure_row, run_benchmark
from programs import build_server
from report import Picture, Report, describe_machine
from row import Row
from sandbox_client import Client, Server
from tenants_attacks import INSIDE, SECONDS, connections, script
from timing import p99, summary

NOBODY = 65_534
ATTACKS = [*INSIDE, "connections"]
USERS = {"root": None, "ordinary user": NOBODY}
# An attack has begun to bite by then.
HEAD_START = 2
BAR = 3
TITLE = "One tenant under the attacks of another"
PICTURE = Picture(TITLE, dict.fromkeys(ATTACKS, "attacked, p99"), "p99 of `true`, quiet and attacked")
REPORT = Report("tenants", TITLE, quick_scale="few repetitions", picture=PICTURE)


def main(words, usage):
    needs_root = "the rows with a server of root need root"
    return run_benchmark(words, usage, REPORT, ATTACKS, measure, caveats, needs_root=needs_root)


def measure(session):
    binaries = build_server()
    shorten_slice()
    session.describe(binaries)
    rounds = 50 if session.quick else 500
    for attack in session.chosen:
        session.keep(attack, measure_row(attack, lambda attack=attack: attack_row(binaries, attack, rounds)))


def attack_row(binaries, attack, rounds):
    row = Row(attack, f"attack: {attack}", "`true` over a kept connection in another tenant's sandbox")
    for user, uid in USERS.items():
        compare(row, binaries, attack, user, uid, rounds)
    return row


def shorten_slice():
    """Lets this process, which stands for another machine, run as soon as its answer is there (Linux 6.12).

    Servers that it starts have the usual slice, and ask for another one themselves.
    """
    number = {"x86_64": 314, "aarch64": 274}.get(os.uname().machine)
    if number is None:
        return
    reset_on_fork, slice_ns = 1, 100_000
    attributes = struct.pack(
        "=IIQiIQQQ", 48, os.SCHED_OTHER, reset_on_fork, os.getpriority(os.PRIO_PROCESS, 0), 0, slice_ns, 0, 0
    )
    if ctypes.CDLL(None, use_errno=True).syscall(number, 0, attributes, 0) != 0:
        raise OSError(ctypes.get_errno(), "sched_setattr")


def compare(row, binaries, attack, user, uid, rounds):
    """Measures the victim in quiet and during the attack, on a server of its own."""
    with Server(binaries, user=uid) as server:
        victim, attacker = (tenant(server, name) for name in ("victim", "attacker"))
        sandbox = victim.create()
        quiet, _ = sample(victim, sandbox, rounds)
        with running(attack, server, attacker):
            time.sleep(HEAD_START)
            attacked, failures = sample(victim, sandbox, rounds)
            failures += probe(victim)
        failures += probe(victim)
        victim.delete(sandbox)
    add(row, user, "quiet", quiet)
    add(row, user, "attacked", attacked)
    row.at_most(f"{user}: p99 ≤ {BAR} × its quiet value", p99(attacked) / p99(quiet), BAR, "×")
    row.at_most(f"{user}: nothing of the other fails", len(failures), 0, "failures")
    row.notes += [f"{user}: {text}" for text in sorted(set(failures))]


def tenant(server, name):
    """A client with a key of its own."""
    order = {"name": name, "owner": name, "role": "user"}
    return Client(server.port, server.client().ask("POST", "/api/v1/keys", order)["key"])


def sample(client, sandbox, rounds):
    """Seconds of every `true`, and what failed. It ends with the attack, so that all of it is measured under attack."""
    end = time.monotonic() + SECONDS - HEAD_START - 5
    taken, failures = [], []
    for _ in range(rounds):
        if time.monotonic() > end:
            break
        began = time.perf_counter()
        try:
            assert client.run(sandbox, "true")["exitCode"] == 0
        except (AssertionError, OSError, RuntimeError) as error:
            failures.append(f"run: {error}")
        taken.append(time.perf_counter() - began)
    return taken, failures


def probe(client):
    """Makes a sandbox, writes, reads, starts a process with pipes and ends: what the other tenant needs beside `run`."""
    command = "echo kept > file && cat file | cat && mkdir -p d/e && ls -R d > /dev/null"
    try:
        sandbox = client.create()
        try:
            result = client.run(sandbox, command)
            return [] if result["stdout"] == "kept\n" else [f"probe: {result}"]
        finally:
            client.delete(sandbox)
    except (OSError, RuntimeError) as error:
        return [f"create: {error}"]


@contextlib.contextmanager
def running(attack, server, client):
    """The attack, begun; ended and cleared away afterwards."""
    stop = threading.Event()
    if attack == "connections":
        thread = threading.Thread(target=connections, args=(server.port, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        return
    sandbox = client.create(**INSIDE[attack][1])
    thread = threading.Thread(target=attack_inside, args=(client, sandbox, attack))
    thread.start()
    try:
        yield
    finally:
        thread.join()
        with contextlib.suppress(OSError, RuntimeError):
            client.delete(sandbox)


def attack_inside(client, sandbox, attack):
    """The attacker's sandbox may well be ended for what it does; that is no failure."""
    order = {
        "command": 'exec python3 -c "$SCRIPT"',
        "envs": {"SCRIPT": script(attack)},
        "timeout": (SECONDS + 5) * 1000,
    }
    with contextlib.suppress(OSError, RuntimeError):
        client.ask("POST", f"/api/v1/sandboxes/{sandbox}/process/run", order)


def add(row, user, what, samples):
    row.add(user, what, "ms", summary(samples, 1000))
    row.add(user, f"{what}, p99", "ms", summary([p99(samples)], 1000))


def caveats(results):
    facts = results["machine"]
    return [
        f"{describe_machine(facts)}.",
        "- Two tenants have a key and a sandbox each on one server with default limits, except that requests are not "
        f"limited by rate. One attacks for {SECONDS} seconds; the other runs `true` all the while, then creates a sandbox, "
        "works in it and deletes it, during the attack and after it.",
        "- Server, client and both tenants share two cores, so an attack that only computes costs the other about half. "
        "The client stands for another machine: it asks the kernel for short slices of processor time, so that it does not wait "
        "for the attack when its answer is there.",
        "- The ordinary user has no cgroups here: nothing limits the CPU of a sandbox but the scheduler.",
    ]
