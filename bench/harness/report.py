"""Renders the numbers as a page: caveats first, then bars, then every measure."""

import os

from plot import plot
from row import show

BEGIN, END = "<!-- reasons -->", "<!-- end of reasons -->"


def render(results, output, order):
    rows = [results["rows"][name] for name in order if name in results["rows"]]
    page = os.path.join(output, "state.md")
    parts = [
        title(results),
        caveats(results),
        bars(rows),
        reasons(page),
        "![Times and sizes by tool](state.svg)\n",
        *(details(row) for row in rows),
        layouts(results),
        hashes(results),
        reproduce(),
    ]
    with open(page, "w", encoding="utf-8") as file:
        file.write("\n".join(part for part in parts if part))
    with open(os.path.join(output, "state.svg"), "w", encoding="utf-8") as file:
        file.write(plot(rows))


def title(results):
    small = " — small data, only to try the harness" if results.get("quick") else ""
    return f"# State engine: speed and memory{small}\n\nMade by `bench/run` on {results['date']}; do not edit, except between the marks.\n"


def caveats(results):
    facts = results["machine"]
    lines = [
        "## Before the numbers\n",
        f"- One machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB of memory, "
        f"Linux {facts['kernel']}, {facts['system']}, as {facts['user']}. Another disk changes every synced row.",
        f"- Filesystem: {facts['filesystem']}.",
        f"- Load average when the run began: {facts['load_before']}; each row below says what it was before it. "
        "The tools take turns within each repetition, another one first each time, so that noise falls on all.",
        "- The data comes from a seeded generator (`workspace-bench tree`): names, directory shape and sizes (log-normal, "
        "median 4 KiB, mean about 10 KiB) follow real source trees, text deflates about 3.4 times. It is not real source.",
        "- Caches are warm: the tree is in the page cache for every tool. Before each measured command the filesystem "
        "is written out, so that no tool pays for the one before it.",
        "- Debian's restic and borg are old (newer ones are faster at some of this), and the tools differ in what they do:",
        "",
        "| tool | version | what to keep in mind |",
        "|---|---|---|",
        *(f"| {tool['name']} | {tool['version']} | {tool['note']} |" for tool in results["tools"]),
        "",
    ]
    return "\n".join(lines)


def bars(rows):
    lines = ["## Bars\n", "| work | bar | reached | met |", "|---|---|---|---|"]
    for row in rows:
        for verdict in row["verdicts"]:
            met = {True: "yes", False: "**no**", None: "—"}[verdict["met"]]
            lines.append(f"| {row['work']} | {verdict['bar']} | {verdict['reached']} | {met} |")
    return "\n".join([*lines, ""])


def reasons(page):
    """What people wrote about bars that are not met survives a new run."""
    kept = f"{BEGIN}\n{END}"
    if os.path.exists(page):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        if BEGIN in text and END in text:
            kept = BEGIN + text.split(BEGIN, 1)[1].split(END, 1)[0] + END
    return kept + "\n"


def details(row):
    lines = [f"## {row['work'][0].upper()}{row['work'][1:]}\n"]
    lines.append(f"`bench/run {row['id']}`: {row['scope']}. Load before: {row['load_before']}.\n")
    lines += ["| tool | measure | median | range | of | × workspace |", "|---|---|---:|---:|---:|---:|"]
    ours = {measure["what"]: measure["median"] for measure in row["measures"] if measure["tool"] == "workspace"}
    for measure in row["measures"]:
        reference = ours.get(measure["what"])
        ratio = f"{measure['median'] / reference:.2f}" if reference else ""
        lines.append(
            f"| {measure['tool']} | {measure['what']} | {show(measure['median'])} {measure['unit']} "
            f"| {show(measure['min'])}–{show(measure['max'])} | {measure['samples']} | {ratio} |"
        )
    lines += ["", *(f"{note}\n" for note in row["notes"])]
    return "\n".join(lines)


def layouts(results):
    if "layouts" not in results:
        return ""
    lines = [
        "## Layout of a store: what one small commit costs\n",
        "Prototypes, `workspace-bench layouts`: a chunk of 4 KiB and eight nodes of 3 KiB; microseconds.\n",
        "| layout | min | p10 | p50 | p90 | commits/s | × raw append |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in results["layouts"]:
        times = " | ".join(show(row["latency_us"][which]) for which in ("min", "p10", "p50", "p90"))
        lines.append(f"| {row['layout']} | {times} | {row['commits_per_second']:,.0f} | {row['times_raw_append']:.2f} |")
    return "\n".join([*lines, ""])


def hashes(results):
    if "hashes" not in results:
        return ""
    lines = [
        "## Hash: BLAKE3 against SHA-256\n",
        "One thread, generated source text, `workspace-bench hashes`; GB per second of CPU time.\n",
        "| work | BLAKE3 | SHA-256 | ratio |",
        "|---|---:|---:|---:|",
    ]
    rates = {(row["work"], row["hash"]): row["gb_per_cpu_second"] for row in results["hashes"]}
    for work in dict.fromkeys(work for work, _ in rates):
        blake3, sha256 = rates[work, "blake3"], rates[work, "sha256"]
        lines.append(f"| {work} | {blake3:.2f} | {sha256:.2f} | {blake3 / sha256:.2f} |")
    return "\n".join([*lines, ""])


def reproduce():
    return "## Again\n\n`make bench` measures everything; `bench/run --help` says how to measure less.\n"
