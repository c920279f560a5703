"""CSS of the report page: system fonts, light and dark mode, screen and print.

Blue marks gold and correct, vermilion marks predicted and wrong; people with any kind of colour vision can distinguish
them. A line, frame or word always gives the same information.
"""

import re

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --raised: #f5f6f8; --ink: #1b1f24; --soft: #56606b; --rule: #dde1e6;
  --blue: #0a5ea8; --red: #b23c06; --note: #8a5a00; --mix: 60%;
  --series0: #0a5ea8; --series1: #b23c06; --series2: #00705a;
  --series3: #8b3f8f; --series4: #7a5f00; --series5: #4a5560;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #15181c; --raised: #1f2429; --ink: #e7eaed; --soft: #a3adb7; --rule: #363d45;
    --blue: #70b8f5; --red: #ff9c6b; --note: #f0bf5a; --mix: 42%;
    --series0: #70b8f5; --series1: #ff9c6b; --series2: #4fc9a8;
    --series3: #dd9be0; --series4: #d9bd4a; --series5: #b4bec9;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 70rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1 { margin: 0; font-size: 1.75rem; font-weight: 650; line-height: 1.2; letter-spacing: -0.01em; }
h2 { margin: 0 0 0.75rem; font-size: 1.15rem; font-weight: 650; line-height: 1.3; }
p { margin: 0 0 0.75rem; max-width: 46rem; }
a { color: var(--blue); }
.subtitle { margin: 0.35rem 0 0; color: var(--soft); }

.tiles { display: flex; flex-wrap: wrap; gap: 1.25rem 3.5rem; margin: 1.75rem 0; }
.tile dt { color: var(--soft); font-size: 0.9rem; }
.tile dd { margin: 0; }
.tile strong {
  display: block; font-size: 2.6rem; font-weight: 650; line-height: 1.15; letter-spacing: -0.02em;
}
.tile:not(:first-child) strong { font-weight: 400; }
.spread { display: block; color: var(--soft); font-size: 0.8rem; font-weight: 400; }
.tile .spread { font-size: 0.9rem; }
.badge {
  display: inline-block; margin-top: 0.15rem; padding: 0 0.4rem; border: 1px solid var(--rule); border-radius: 0.6rem;
  color: var(--soft); font-size: 0.75rem; line-height: 1.4; white-space: nowrap;
}
.badge.kept { border-color: var(--blue); color: var(--blue); }
.badge.failed { border-color: var(--red); color: var(--red); }
.warnings {
  margin: 1.5rem 0; padding: 0.75rem 1rem; border-left: 4px solid var(--note); background: var(--raised);
}
.warnings h2 { margin: 0 0 0.25rem; color: var(--note); font-size: 1rem; }
.warnings ul { margin: 0; padding-left: 1.2rem; }
nav ul {
  display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin: 0; padding: 0.6rem 0; list-style: none;
  font-size: 0.9rem;
}
nav { border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); }
nav a { text-decoration: none; }
nav a:hover, nav a:focus { text-decoration: underline; }

main {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 2.5rem 3rem;
  margin-top: 2rem;
}
section.wide { grid-column: 1 / -1; }

.scroll { overflow-x: auto; margin: 0 0 0.75rem; }
table { border-collapse: collapse; font-size: 0.92rem; min-width: min(100%, 27rem); }
.caption { margin-bottom: 0.4rem; color: var(--soft); font-size: 0.85rem; }
th, td {
  padding: 0.35rem 0.9rem 0.35rem 0; border-bottom: 1px solid var(--rule); text-align: right;
  vertical-align: top; overflow-wrap: normal;
}
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-size: 0.85rem; font-weight: 500; vertical-align: bottom; }
tbody th { font-weight: 500; }
.words { text-align: left; }
th.words:first-child { position: sticky; left: 0; background: var(--ground); }
.numbers { white-space: nowrap; }
table.full { width: 100%; }
table.full .gauge { width: 100%; max-width: 14rem; }
.gauge {
  display: inline-block; min-width: 4.5rem; padding-bottom: 2px;
  background: linear-gradient(var(--blue), var(--blue)) left bottom / calc(var(--share) * 100%) 3px no-repeat,
    linear-gradient(var(--rule), var(--rule)) left bottom / 100% 3px no-repeat;
}
table.matrix td {
  min-width: 4.2rem; padding: 0.5rem 0.6rem; border: 2px solid var(--ground); text-align: center;
  background: color-mix(in srgb, var(--red) calc(var(--share) * var(--mix)), var(--raised));
}
table.matrix td.right {
  background: color-mix(in srgb, var(--blue) calc(var(--share) * var(--mix)), var(--raised));
  box-shadow: inset 0 0 0 2px var(--blue); font-weight: 650;
}
table.matrix { min-width: 0; }
table.matrix bdi { display: inline-block; max-width: 7.5rem; overflow-wrap: break-word; }
table.matrix td .spread { color: inherit; }
table.matrix th { padding: 0.5rem 0.6rem 0.5rem 0; border: 0; }
table.matrix thead th { padding: 0.35rem 0.6rem; text-align: center; }
table.matrix thead th:first-child { padding-left: 0; text-align: left; }

.pictures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 18.5rem), 1fr)); gap: 1.5rem;
}
figure { margin: 0; max-width: 25rem; }
figcaption { margin-top: 0.25rem; color: var(--soft); font-size: 0.85rem; }
svg { display: block; width: 100%; height: auto; }
"""
LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", STYLE.partition("@media")[0]))  # colours of the light mode by name

CHART_STYLE = """
svg text { fill: var(--soft); font-size: 11.5px; }
svg .middle { text-anchor: middle; } svg .end { text-anchor: end; }
svg text.name { font-size: 12px; }
svg line { stroke: var(--rule); }
svg line.axis { stroke: var(--soft); }
svg line.even, svg line.mark { stroke: var(--ink); stroke-dasharray: 5 4; }
svg line.even { stroke-width: 1.5; }
svg line.gap { stroke: var(--series0); stroke-width: 1.5; }
svg line.interval { stroke-width: 2; }
svg polyline { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .point { fill: var(--series0); fill-opacity: 0.4; }
svg rect.within { fill: var(--series0); } svg rect.over { fill: var(--series1); }
"""
CHART_STYLE += "".join(
    f"svg polyline.series{number} {{ stroke: var(--series{number}); stroke-dasharray: {dash}; }}\n"
    f"svg line.series{number} {{ stroke: var(--series{number}); }}\n"
    f"svg circle.series{number}, svg text.series{number} {{ fill: var(--series{number}); }}\n"
    for number, dash in enumerate(("none", "7 3", "2 3", "9 3 2 3", "4 3", "12 4"))
)
STYLE += CHART_STYLE
PICTURE_STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
svg text.title { fill: var(--ink); font-size: 14px; }
svg polyline.train { stroke: var(--soft); stroke-opacity: 0.4; stroke-width: 1; }
svg polyline.heldout { stroke: var(--series1); stroke-width: 1.25; } svg circle.heldout { fill: var(--series1); }
svg polyline.level { stroke: var(--series2); stroke-dasharray: 5 4; }
svg .weight { fill: var(--series0); }
svg text.number { fill: var(--ink); font-size: 10px; } svg text.light { fill: var(--ground); }
svg rect.frame { fill: none; stroke: var(--rule); } svg rect.chosen { fill: none; stroke: var(--series1); }
svg circle.form { fill-opacity: 0.85; } svg circle.kept { stroke: var(--ink); stroke-width: 2.5; }
"""
# For a picture in a separate file: many viewers of SVG know no variables, and a notebook may hold other pictures.
PICTURE_STYLE = re.sub(r"var\(--(\w+)\)", lambda match: LIGHT[match[1]], CHART_STYLE + PICTURE_STYLE)
PICTURE_STYLE = PICTURE_STYLE.replace("svg", "svg.picture")
STYLE += """
.counts {
  display: flex; flex-wrap: wrap; gap: 0.25rem 1.75rem; margin: 0 0 0.5rem; padding: 0; list-style: none;
}
.legend { color: var(--soft); }
mark { background: none; color: inherit; border-radius: 2px; }
mark.gold {
  text-decoration: underline 2px var(--blue); text-underline-offset: 4px; text-decoration-skip-ink: none;
}
mark.predicted { background: color-mix(in srgb, var(--red) 22%, var(--ground)); }
mark.right { text-decoration: underline 1px dotted var(--soft); text-underline-offset: 4px; }
small.wrong, small.right {
  display: inline-block; max-width: 100%; margin: 0 0.15em; padding: 0 0.45em; border: 1px solid var(--red);
  border-radius: 0.8em; color: var(--red); font-size: 0.75em; line-height: 1.5; vertical-align: 0.1em;
}
small.right { padding: 0; border: 0; color: var(--soft); }
.cut { color: var(--soft); font-size: 0.85em; font-style: italic; }
.cases { margin: 1rem 0 0; padding: 0; list-style-position: inside; }
ol.cases { list-style: none; counter-reset: case; }
.cases li {
  counter-increment: case; position: relative; padding: 0.9rem 0 0.4rem 2.5rem;
  border-top: 1px solid var(--rule); break-inside: avoid;
}
.cases li::before { content: counter(case); position: absolute; left: 0; color: var(--soft); }
.text { margin: 0 0 0.5rem; max-width: 46rem; white-space: pre-wrap; line-height: 1.6; }
.verdict { margin: 0 0 0.35rem; color: var(--soft); font-size: 0.92rem; }
.verdict strong { color: var(--ink); }
strong.predicted { text-decoration: none; background: color-mix(in srgb, var(--red) 22%, var(--ground)); }
strong.gold { text-decoration: underline 2px var(--blue); text-underline-offset: 4px; }
details { font-size: 0.92rem; } summary { cursor: pointer; color: var(--blue); margin-bottom: 0.5rem; }
.facts {
  display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: 0.35rem 1.5rem; margin: 0 0 1rem;
}
.facts dt { color: var(--soft); } .facts dd { margin: 0; }
pre {
  margin: 0; padding: 0.75rem 1rem; background: var(--raised);
  font: 0.85rem/1.5 ui-monospace, "SF Mono", Consolas, "Liberation Mono", monospace; white-space: pre-wrap;
}

@media (max-width: 30rem) {
  body { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.4rem; }
  .tiles { gap: 1rem 2rem; } .tile strong { font-size: 2.1rem; }
  th, td { padding-right: 0.5rem; }
  .cases li { padding-left: 0; } .cases li::before { position: static; display: block; }
  .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: 0.5rem; }
}
@media print {
  body {
  max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
  nav { display: none; }
  figure, table, .warnings { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
}
"""
