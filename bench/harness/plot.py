"""Draws the comparison as an SVG by hand: bars by tool for each row with peers. Follows the reader's colour scheme."""

from html import escape

from row import show

WIDTH = 860
LABELS = 250
BAR = 20
GAP = 6
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 14px; }
  .quiet { fill: #59636e; }
  .page { fill: #ffffff; }
  .ours { fill: #1a7f37; }
  .peer { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .quiet { fill: #9198a1; }
    .page { fill: #0d1117; }
    .ours { fill: #3fb950; }
    .peer { fill: #656c76; }
  }
"""


def plot(rows, panels, title):
    """The whole picture. `panels` has rows by name, with the measure that is drawn, `None` for all. Rows without peers are not
    in it."""
    body, y = [], 16
    for row in rows:
        measures = panel_measures(row, panels)
        if len(measures) > 1:
            panel, y = draw_panel(row, measures, y, panels)
            body += panel
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{y}"/>',
            *body,
            "</svg>\n",
        ]
    )


def panel_measures(row, panels):
    if row["id"] not in panels:
        return []
    what = panels[row["id"]]
    return sorted(
        (measure for measure in row["measures"] if what in (None, measure["what"])),
        key=lambda measure: measure["median"],
    )


def draw_panel(row, measures, y, panels):
    what = panels[row["id"]]
    suffix = f" ({what})" if what else ""
    lines = [text(16, y + 14, "title", row["work"] + suffix)]
    y += 26
    longest = max(measure["median"] for measure in measures)
    for measure in measures:
        width = max(1.5, (WIDTH - LABELS - 130) * measure["median"] / longest)
        kind = "ours" if measure["tool"].split(",")[0] == "workspace" else "peer"
        lines.append(text(LABELS - 8, y + 15, "", measure["tool"], anchor="end"))
        lines.append(f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        label = f"{show(measure['median'])} {measure['unit']}"
        lines.append(text(LABELS + width + 8, y + 15, "quiet", label))
        y += BAR + GAP
    return lines, y + 18


def text(x, y, kind, content, anchor="start"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(content)}</text>'
