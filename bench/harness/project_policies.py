"""The rows about policies: a filtered view of many files, and the check of a completion under many rules."""

import os
import random
import statistics
import time

from project_client import Project, served_project, some_paths
from project_followers import FILES, SEEN_WITHIN, Report, follower, start_followers, timed
from row import Row
from sandbox_rows import OURS
from timing import summary, sync_filesystem

HIDDEN_SUFFIX = "secret"
VIEW_INTERVAL = 1
# Names of agents that have a view of their own, each with another rule.
FIRST_VIEWS = 5


def view(bench):
    """A view in which every directory may have hidden files: making it, and following a change of one file."""
    tree = bench.data.tree(bench.view_files)
    row = Row(
        "view",
        f"head change of one file in a filtered view of {bench.view_files:,} files",
        "over HTTP; a rule hides `**/*.secret`, of which some directories have one, so that no directory is shown unread",
    )
    files = {**FILES, **hidden_files(bench, tree)}
    with served_project(bench, tree, files, [follower(bench)]) as project:
        project.set_policy(view_policy())
        first, again, after_head = first_views(project)
        reader = project.create(agent="reader", follow="head", materialize="full")
        # The same rules for what may be read: the same view, and the same layers.
        writer = project.create(agent="writer", materialize="full")
        ran = project.client.run(reader, f"find . -name '*.{HIDDEN_SUFFIX}' | wc -l; find . ! -type d | wc -l")
        hidden, shown = (int(word) for word in ran["stdout"].split())
        assert hidden == 0, ran
        pid = start_followers(project, [reader], VIEW_INTERVAL)[0]
        layers, seen = [], []
        landed = []
        for number in range(1, bench.heads + 1):
            known = layer_names(project.server)
            assert project.client.run(writer, f"echo {number} > turn.txt")["exitCode"] == 0
            landed.append(project.landed_at(project.complete_one(writer)["sequence"]))
            time.sleep(SEEN_WITHIN)
            layers.append(max(0, layer_written(project.server, known) - landed[-1]) / 1e6)
            after_head.append(timed(lambda: look(project, "first-0")))
        ran = project.client.run(reader, f"cat /tmp/seen-{VIEW_INTERVAL}; kill -0 {pid} && true")
        report = Report(ran["stdout"], ran["exitCode"] != 0)
        seen = [max(0, report.first_at(number) - at) / 1e6 for number, at in enumerate(landed, 1)]
        project.remove([reader, writer])
    assert (report.missing, report.mixed, report.ended) == (0, 0, False), ran
    row.add(OURS, "a view made for the first time", "ms", summary(first))
    row.add(OURS, "the same view asked for again", "ms", summary(again))
    row.add(OURS, "a view made after a head change of one file", "ms", summary(after_head))
    row.add(OURS, "until its layer is there", "ms", summary(layers))
    row.add(OURS, "until a follower of the view sees it", "ms", summary(seen))
    row.at_most("≤ 50 ms until its layer is there", statistics.median(layers), 50, "ms")
    row.shown("a filtered view made for the first time", statistics.median(first), "ms")
    row.notes.append(
        f"The view has {shown:,} files. Times begin with that of the change in the project's history. A layer is there when its "
        "record has been written, by the time of that file, which is exact to the tick of the kernel's clock (at most 10 ms); "
        f"the follower reads every {VIEW_INTERVAL} ms. Views are made by `GET …/tree` as an agent, which answers with one entry; "
        "their layers are not part of that."
    )
    return row


def view_policy():
    everybody = [{"path": "**", "access": "RW"}]
    named = [{"agent": f"first-{number}", "path": f"**/*{number}*.{HIDDEN_SUFFIX}", "access": "none"} for number in range(FIRST_VIEWS)]
    group = [{"group": "filtered", "path": f"**/*.{HIDDEN_SUFFIX}", "access": "none"}]
    return {"groups": {"filtered": ["reader", "writer"]}, "rules": everybody + group + named}


def hidden_files(bench, tree):
    """One file more in some of the directories."""
    directories = sorted({os.path.dirname(path) for path in some_paths(tree, bench.view_files // 100)})
    return {
        os.path.join(directory, f"{number}.{HIDDEN_SUFFIX}"): f"{number}\n"
        for number, directory in enumerate(directories)
    }


def look(project, agent):
    found = project.ask("GET", "/tree?limit=1", more={"X-Agent": agent})
    assert found, agent


def first_views(project):
    """Milliseconds of a view of each of some agents, and of asking again. The third list is for later."""
    agents = [f"first-{number}" for number in range(FIRST_VIEWS)]
    first = [timed(lambda agent=agent: look(project, agent)) for agent in agents]
    again = [timed(lambda agent=agent: look(project, agent)) for agent in agents]
    return first, again, []


def layer_names(server):
    directory = os.path.join(server.home, "workspaces-layers", "stacks")
    return set(os.listdir(directory))


def layer_written(server, known):
    """Nanoseconds since 1970 at which the record of the one layer was written that was not known before."""
    new = layer_names(server) - known
    assert len(new) == 1, new
    return os.lstat(os.path.join(server.home, "workspaces-layers", "stacks", *new)).st_mtime_ns


def policy(bench):
    """Completions of the same files in two projects, of which one has many rules. The difference is what rules cost."""
    tree = bench.tree()
    row = Row(
        "policy",
        f"policy check and view for {bench.rules:,} rules",
        f"over HTTP; two projects of {bench.files:,} files, one with rules and one without, taking turns; "
        "changes are committed before, so that only merging them is measured",
    )
    paths = some_paths(tree, bench.ruled_files + bench.many_changes)
    ruled, free = paths[: bench.ruled_files], paths[bench.ruled_files :]
    rules = thousand_rules(bench.rules, ruled)
    with bench.server() as server:
        with_rules, without = (Project(server, bench.data, tree) for _ in range(2))
        with_rules.set_policy({"groups": {"coders": ["coder*"]}, "rules": rules})
        few = alternate(bench, with_rules, without, free[:10], bench.rounds * 10)
        many = alternate(bench, with_rules, without, free, bench.rounds)
        check_access(with_rules, ruled, free)
        explained = [[], []]
        for path in (ruled + free)[: 200]:
            for times, project in zip(explained, (with_rules, without), strict=True):
                times.append(timed(lambda project=project, path=path: explain(project, path)))
    report_policy(bench, row, few, many, explained, len(free))
    return row


def report_policy(bench, row, few, many, explained, changes):
    variants = (f"{bench.rules:,} rules", "no rules")
    for name, ten, thousand, one in zip(variants, few, many, explained, strict=True):
        row.add(OURS, f"completion of 10 files, {name}", "ms", summary(ten))
        row.add(OURS, f"completion of {changes:,} files, {name}", "ms", summary(thousand))
        row.add(OURS, f"one path explained, {name}", "ms", summary(one))
    added = statistics.median(few[0]) - statistics.median(few[1])
    row.at_most("≤ 5 ms per completion of 10 files", max(0, added), 5, "ms")
    per_path = (statistics.median(many[0]) - statistics.median(many[1])) / changes * 1000
    row.shown(f"per path of a completion of {changes:,} files", max(0, per_path), "µs")
    asked = statistics.median(explained[0]) - statistics.median(explained[1])
    row.shown("one path explained over HTTP (`policy/explain`)", max(0, asked), "ms")
    row.notes.append(
        "The numbers beside the bars are differences of the medians with and without rules, from sending the completion until "
        "its changes landed. Of the rules half are for single files, a quarter for directories, a fifth are globs that "
        "match in every directory, and the rest is for other agents. The agent has a filtered view."
    )


def thousand_rules(count, ruled):
    """Rules of all kinds, which leave the files that are changed writable."""
    singles, folders, globs = count // 2, count // 4, count // 5
    access = ("none", "R", "RW-", "RA")
    rules = [{"group": "coders", "path": path, "access": access[number % 4]} for number, path in enumerate(ruled[:singles])]
    assert len(rules) == singles, "the tree has too few files"
    names = sorted({os.path.dirname(path) for path in ruled} - {""})
    rules += [
        {"agent": "coder*", "path": f"{names[number % len(names)]}/part-{number}/**", "access": "RA"}
        for number in range(folders)
    ]
    rules += [{"path": f"**/*-{number}.secret", "access": "none"} for number in range(globs)]
    rest = count - len(rules)
    rules += [{"agent": f"other-{number}", "path": "**", "access": "R"} for number in range(rest)]
    random.Random(1).shuffle(rules)
    return rules


def alternate(bench, first, second, paths, rounds):
    """Milliseconds in which completions of these files land, with and without rules, which take turns."""
    times = ([], [])
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            times[index].append(merged(bench, (first, second)[index], paths, number))
    return times


def merged(bench, project, paths, number):
    """Milliseconds in which a snapshot with these files changed is merged."""
    sandbox = project.create(agent="coder")
    try:
        names = " ".join(f"'{path}'" for path in paths)
        ran = project.client.run(sandbox, f"for f in {names}; do echo '// {len(paths)} {number}' >> \"$f\"; done")
        assert ran["exitCode"] == 0, ran
        snapshot = project.client.ask("POST", f"/api/v1/sandboxes/{sandbox}/commit", {})["snapshot"]["id"]
        body = {"snapshot": snapshot, "base": project.sequence(), "agent": "coder", "wait": 60}
        sync_filesystem(bench.data.base)
        began = time.perf_counter()
        done = project.ask("POST", "/completions", body)
        taken = (time.perf_counter() - began) * 1000
        assert done["state"] == "landed" and not done["refused"], done
    finally:
        project.remove([sandbox])
    return taken


def explain(project, path):
    return project.client.ask("GET", f"{project.path}/policy/explain?agent=coder&path={path}")["access"]


def check_access(project, ruled, free):
    """The rules do what they say, so that it is them that are measured."""
    assert [explain(project, path) for path in ruled[:4]] == ["none", "R", "RW-", "RA"]
    assert explain(project, free[0]) == "RW"
