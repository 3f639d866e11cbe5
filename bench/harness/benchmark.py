"""One call of a benchmark: its arguments, its rows one after another, and the file that keeps their numbers."""

import datetime
import json
import os
import sys

import machine
from data import bench_directory
from programs import ROOT


def run_benchmark(words, usage, report, rows, measure, caveats, needs_root=None):
    """Measures the rows that the arguments name and writes the report. Returns the exit status.

    `measure` gets a `Session`, and returns true if a row failed. `caveats` makes those of the report from the results.
    `needs_root` is the reason why only root may measure.
    """
    chosen, options = parse_arguments(words, usage, rows)
    session = Session(report.name, rows, chosen, "--quick" in options)
    failed = False
    if "--render" not in options:
        if needs_root is not None and os.geteuid() != 0:
            print(f"error: {needs_root}", file=sys.stderr)
            return 1
        failed = measure(session)
    report.write(session.results, session.output, rows, caveats(session.results))
    return 1 if failed else 0


def parse_arguments(words, usage, rows):
    """Returns the rows that were typed, all without any, and the options. Exits with the usage if others were typed."""
    options = {word for word in words if word.startswith("-")}
    chosen = [word for word in words if not word.startswith("-")]
    unknown = (options - {"--quick", "--render"}) | (set(chosen) - set(rows))
    if unknown:
        print(usage, file=sys.stderr)
        print(f"rows: {' '.join(rows)}", file=sys.stderr)
        sys.exit(0 if unknown <= {"-h", "--help"} else 2)
    return chosen or list(rows), options


class Session:
    """The rows that are asked for, and the results so far, which include rows that were measured before."""

    def __init__(self, name, rows, chosen, quick):
        self.rows = rows
        self.chosen = chosen
        self.quick = quick
        self.output = bench_directory() if quick else os.path.join(ROOT, "docs/benchmarks")
        os.makedirs(self.output, exist_ok=True)
        self.path = os.path.join(self.output, f"{name}.json")
        self.results = load_results(self.path)

    def describe(self, directory):
        """Adds the date, and the machine with the filesystem of this directory, to the results."""
        today = datetime.date.today().isoformat()
        self.results.update(quick=self.quick, date=today, machine=machine.describe(directory))

    def measure_rows(self, bench):
        for name in self.chosen:
            self.keep(name, measure_row(name, lambda work=self.rows[name]: work(bench)))

    def keep(self, name, row):
        self.results["rows"][name] = row
        self.save()

    def save(self):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.results, file, indent=1)
            file.write("\n")


def load_results(path):
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    return {"rows": {}}


def measure_row(name, work):
    """Returns the row that the work makes, as JSON, with the load from before it began."""
    load = round(os.getloadavg()[0], 2)
    print(f"  {name}", file=sys.stderr)
    row = work().to_json()
    row["load_before"] = load
    return row
