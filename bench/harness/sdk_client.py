"""Client for the benchmark of the SDK for Python: performs the work of each line, and prints its result."""

import asyncio
import http.client
import json
import os
import sys
import time
import traceback

import httpx

import workspace_sdk
import workspace_sdk.sync

URL = os.environ["WORKSPACE_API_URL"]
HEADERS = {"authorization": f"Bearer {os.environ['WORKSPACE_API_KEY']}", "content-type": "application/json"}


def milliseconds(action):
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def run(sandbox, count):
    """Times of single commands, in turns."""
    path = f"/api/v1/sandboxes/{sandbox}/process/run"
    body = {"command": "true"}
    connection = http.client.HTTPConnection(URL.removeprefix("http://"), timeout=60)

    def plain():
        connection.request("POST", path, json.dumps(body), HEADERS)
        assert json.loads(connection.getresponse().read())["exitCode"] == 0

    with workspace_sdk.sync.WorkspaceClient(timeout=0) as client, httpx.Client(headers=HEADERS, timeout=60) as raw:
        box = client.sandbox.get(sandbox)
        runs = {
            "SDK": lambda: box.process.run("true", check=True),
            "httpx": lambda: raw.post(URL + path, json=body).json(),
            "http.client": plain,
        }
        times = {name: [] for name in runs}
        for _ in range(count):
            for name, action in runs.items():
                times[name].append(milliseconds(action))
    connection.close()
    return {"times": times}


async def run_async(sandbox, count):
    """Times of single commands of the asynchronous SDK, in turns."""
    path = f"/api/v1/sandboxes/{sandbox}/process/run"
    times = {"SDK": [], "httpx": []}
    async with workspace_sdk.WorkspaceClient(timeout=0) as client, httpx.AsyncClient(headers=HEADERS, timeout=60) as raw:
        box = await client.sandbox.get(sandbox)
        for _ in range(count):
            begun = time.perf_counter()
            await box.process.run("true", check=True)
            middle = time.perf_counter()
            (await raw.post(URL + path, json={"command": "true"})).json()
            times["SDK"].append((middle - begun) * 1000)
            times["httpx"].append((time.perf_counter() - middle) * 1000)
    return {"times": times}


async def concurrent(sandbox, count):
    """Commands at once on one client."""
    async with workspace_sdk.WorkspaceClient(timeout=0) as client:
        box = await client.sandbox.get(sandbox)
        begun = time.perf_counter()
        runs = [box.process.run(f"echo {index}", timeout=0) for index in range(count)]
        results = await asyncio.gather(*runs, return_exceptions=True)
        took = (time.perf_counter() - begun) * 1000
    right = [getattr(result, "stdout", None) == f"{index}\n" for index, result in enumerate(results)]
    return {"took": took, "failures": [repr(result) for result, is_right in zip(results, right) if not is_right]}


def stream(sandbox, bytes):
    """Output of one command."""
    with workspace_sdk.sync.WorkspaceClient(timeout=0) as client:
        box = client.sandbox.get(sandbox)
        size, begun = 0, time.perf_counter()
        command = f"yes 0123456789abcdef0123456789abcdef | head -c {bytes}"
        for event in box.process.run_stream(command, timeout=0):
            if event.type == "stdout":
                size += len(event.data)
        took = (time.perf_counter() - begun) * 1000
    assert size == bytes, size
    return {"took": took}


WORK = {
    "run": run,
    "run_async": lambda **parameters: asyncio.run(run_async(**parameters)),
    "concurrent": lambda **parameters: asyncio.run(concurrent(**parameters)),
    "stream": stream,
}

for line in sys.stdin:
    parameters = json.loads(line)
    try:
        result = WORK[parameters.pop("work")](**parameters)
    except Exception:
        result = {"error": traceback.format_exc()}
    print(json.dumps(result), flush=True)
