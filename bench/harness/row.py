"""What a row of the benchmark reports."""

from dataclasses import asdict, dataclass, field


@dataclass
class Measure:
    """One number of one tool, with its range."""

    tool: str
    what: str
    unit: str
    median: float
    min: float
    max: float
    samples: int


@dataclass
class Verdict:
    """A bar and what was reached; `met` is `None` if the number is only shown."""

    bar: str
    reached: str
    met: bool | None


@dataclass
class Row:
    """A piece of work, its measures and whether its bars are met."""

    id: str
    work: str
    scope: str
    measures: list = field(default_factory=list)
    verdicts: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def add(self, tool, what, unit, summary):
        self.measures.append(Measure(tool, what, unit, **summary))

    def median(self, tool, what):
        for measure in self.measures:
            if (measure.tool, measure.what) == (tool, what):
                return measure.median
        raise KeyError(f"{tool}: {what}")

    def at_most(self, bar, value, limit, unit):
        """The bar is an upper limit."""
        self.verdicts.append(Verdict(bar, f"{show(value)} {unit}".strip(), value <= limit))

    def at_least(self, bar, value, limit, unit):
        """The bar is a lower limit."""
        self.verdicts.append(Verdict(bar, f"{show(value)} {unit}".strip(), value >= limit))

    def shown(self, what, value, unit):
        """There is no limit, but the number belongs beside the bars."""
        self.verdicts.append(Verdict(what, f"{show(value)} {unit}".strip(), None))

    def to_json(self):
        return asdict(self)


def show(value):
    """A number with about three digits; a count is exact."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    magnitude = abs(value)
    digits = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2
    if magnitude < 0.1:
        digits = 3
    return f"{value:,.{digits}f}"
