"""The page about the state engine: its caveats, and what it has beside rows."""

from report import Picture, Report, describe_machine
from row import show

PANELS = {
    "first-snapshot": "as it is",
    "next-snapshot": "as it is",
    "checkout": "synced",
    "checkout-between": "as it is",
    "grep": "second time",
    "history": "disk",
    "commit-synced": None,
}
REPORT = Report(
    "state",
    "State engine: speed and memory",
    quick_scale="small data",
    picture=Picture("The state engine and its peers", PANELS, "Times and sizes by tool"),
    program="run",
    everything="make bench",
)


def render(results, output, order):
    sections = filter(None, (layouts(results), hashes(results)))
    REPORT.write(results, output, order, caveats(results), sections)


def caveats(results):
    facts = results["machine"]
    return [
        f"{describe_machine(facts)}, as {facts['user']}. Another disk changes every synced row.",
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
    ]


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
        lines.append(
            f"| {row['layout']} | {times} | {row['commits_per_second']:,.0f} | {row['times_raw_append']:.2f} |"
        )
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
