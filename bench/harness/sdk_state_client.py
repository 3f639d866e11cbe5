"""Client for the benchmark of the state engine in Python.

    sdk_state_client.py prepare STORE FILES         makes a store with a tree, and prints the paths of its files as JSON
    sdk_state_client.py steps STORE REFERENCE CHANGES    as `sdk-python-state/examples/steps.rs`
"""

import json
import sys
import time

from workspace_sdk.state import Expect, Store

# Files of a directory, on average; and bytes of a file.
DIRECTORY, SIZE = 20, 512


def prepare(store, files):
    paths = []
    with Store(store) as opened:
        tree = opened.empty_tree()
        for number in range(int(files)):
            path = f"module{number % 97}/part{number // DIRECTORY}/file{number}.txt"
            paths.append(path)
            tree.write(path, f"{number} ".encode() * (SIZE // 6))
        tree.commit("base", references={"base": Expect.ABSENT})
    return paths


def steps(store, reference, changes):
    with open(changes, encoding="utf-8") as file:
        work = [(path, content.encode()) for path, content in json.load(file)]
    now, times, clones = time.perf_counter, [], []
    with Store(store, create=False) as opened:
        origin = opened.restore(reference)
        for path, content in work:
            begun = now()
            tree = origin.clone()
            cloned = now()
            tree.write(path, content)
            tree.commit("step", durability="buffered")
            times.append((now() - begun) * 1e6)
            clones.append((cloned - begun) * 1e6)
    return {"steps": times, "clones": clones}


print(json.dumps({"prepare": prepare, "steps": steps}[sys.argv[1]](*sys.argv[2:])))
