"""Renders the numbers of a benchmark as a page: caveats first, then bars, then every measure."""

import os
from dataclasses import dataclass

from plot import plot
from row import show

BEGIN, END = "<!-- reasons -->", "<!-- end of reasons -->"


@dataclass(frozen=True)
class Picture:
    """The plot of a page."""

    title: str
    # The measure that is drawn of each row, by the name of the row.
    panels: dict
    alt: str = "Times by tool"


@dataclass(frozen=True)
class Report:
    """A page about the rows of a benchmark, with its plot."""

    # Name of the files, without their endings.
    name: str
    title: str
    # What a quick run has few of, for the title.
    quick_scale: str
    picture: Picture | None = None
    # Program below bench/ that measures the rows, if its name is another one.
    program: str | None = None
    # Command that measures all rows, if it is another one.
    everything: str | None = None

    @property
    def command(self):
        return f"bench/{self.program or self.name}"

    def write(self, results, output, order, caveats, sections=()):
        """Writes the files to the directory `output`. Rows are in the order of their names, before more sections."""
        rows = [results["rows"][name] for name in order if name in results["rows"]]
        page = os.path.join(output, f"{self.name}.md")
        small = f" — {self.quick_scale}, only to try the harness" if results.get("quick") else ""
        parts = [
            f"# {self.title}{small}\n",
            f"Made by `{self.command}` on {results['date']}; do not edit, except between the marks.\n",
            "## Before the numbers\n",
            *caveats,
            "",
            bars(rows),
        ]
        if "failed" in results:
            parts.append(failed_rows(results["failed"], self.command))
        parts.append(reasons(page))
        if self.picture is not None:
            parts.append(f"![{self.picture.alt}]({self.name}.svg)\n")
            write_file(os.path.join(output, f"{self.name}.svg"), plot(rows, self.picture.panels, self.picture.title))
        parts += [
            *(details(row, self.command) for row in rows),
            *sections,
            f"## Again\n\n`{self.everything or self.command}` measures everything; "
            f"`{self.command} --help` says how to measure less.\n",
        ]
        write_file(page, "\n".join(parts))


def write_file(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def describe_machine(facts):
    """The first caveat, which each page ends in its own way."""
    return (
        f"- One machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB of memory, "
        f"Linux {facts['kernel']}, {facts['system']}"
    )


def list_settings(settings):
    return ", ".join(f"`{name}={value}`" for name, value in settings.items())


def bars(rows):
    lines = ["## Bars\n", "| work | bar | reached | met |", "|---|---|---|---|"]
    for row in rows:
        for verdict in row["verdicts"]:
            met = {True: "yes", False: "**no**", None: "—"}[verdict["met"]]
            lines.append(f"| {row['work']} | {verdict['bar']} | {verdict['reached']} | {met} |")
    return "\n".join([*lines, ""])


def failed_rows(failed, command):
    lines = [f"- `{command} {name}`: {reason.replace(chr(10), ' ')}" for name, reason in failed.items()]
    return "\n".join(["Rows that failed, and have no numbers:\n", *lines, ""]) if lines else ""


def reasons(page):
    """What people wrote about bars that are not met survives a new run."""
    kept = f"{BEGIN}\n{END}"
    if os.path.exists(page):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        if BEGIN in text and END in text:
            kept = BEGIN + text.split(BEGIN, 1)[1].split(END, 1)[0] + END
    return kept + "\n"


def details(row, command):
    lines = [f"## {row['work'][0].upper()}{row['work'][1:]}\n"]
    lines.append(f"`{command} {row['id']}`: {row['scope']}. Load before: {row['load_before']}.\n")
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
