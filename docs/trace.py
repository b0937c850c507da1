"""Draws a part of a trace as SVG: a row for each stream, a box for each op, an arrow for each wait that was inserted.

    RADDLE_TRACE=trace.json cargo run --release -- demo --steps 12
    python3 docs/trace.py trace.json --us 3000 > docs/trace.svg

The part is the one with the most arrows.
"""

import argparse
import json
from html import escape

LEFT, WIDTH, ROW, TOP = 92, 860, 26, 30
COLORS = {"adam": "#d1495b", "linear": "#2e86ab"}
OTHER = "#9fb8ad"

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("trace")
arguments.add_argument("--device", default="cpu")
arguments.add_argument("--us", type=float, default=3000, help="microseconds of it")
options = arguments.parse_args()

with open(options.trace) as file:
    events = json.load(file)["traceEvents"]
process = next(e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == options.device)
events = [e for e in events if e["pid"] == process]
names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
starts = {e["id"]: e for e in events if e["ph"] == "s"}
waits = [(starts[e["id"]], e) for e in events if e["ph"] == "f" and e["id"] in starts]


def inside(start, wait):
    return start <= wait[0]["ts"] and wait[1]["ts"] <= start + options.us


begin = max((wait[0]["ts"] - 20 for wait in waits), key=lambda at: sum(inside(at, wait) for wait in waits))
ops = [e for e in events if e["ph"] == "X" and e["ts"] < begin + options.us and e["ts"] + e["dur"] > begin]
rows = {tid: row for row, tid in enumerate(sorted({e["tid"] for e in ops}))}
across = lambda ts: LEFT + (ts - begin) / options.us * WIDTH  # noqa: E731
down = lambda tid: TOP + rows[tid] * ROW  # noqa: E731
height = TOP + len(rows) * ROW + 8

out = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 8} {height}" '
    'font-family="sans-serif" font-size="11">',
    f'<rect width="100%" height="100%" fill="#fff"/><clipPath id="c"><rect x="{LEFT}" width="{WIDTH}" height="{height}"/></clipPath>',
    '<marker id="a" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    '<path d="M0 0L6 3L0 6z" fill="#111"/></marker>',
    f'<text x="{LEFT}" y="16" fill="#555">{options.us:g} µs of {escape(options.device)}: a row is a stream, '
    "a box an op (red: Adam writes the weights), an arrow a wait that the runtime inserted</text>",
]
for tid, row in rows.items():
    out.append(f'<text x="4" y="{TOP + row * ROW + 15}" fill="#333">{escape(names[tid])}</text>')
    out.append(f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{down(tid) + 22}" y2="{down(tid) + 22}" stroke="#eee"/>')
out.append('<g clip-path="url(#c)">')
for e in ops:
    x, width = across(e["ts"]), max(e["dur"] / options.us * WIDTH, 0.8)
    color = COLORS.get(e["name"], OTHER)
    out.append(f'<rect x="{x:.1f}" y="{down(e["tid"])}" width="{width:.1f}" height="20" rx="2" fill="{color}"/>')
    if width > 7 * len(e["name"]):
        out.append(f'<text x="{x + 3:.1f}" y="{down(e["tid"]) + 14}" fill="#111">{escape(e["name"])}</text>')
for start, end in waits:
    if inside(begin, (start, end)):
        out.append(f'<line x1="{across(start["ts"]):.1f}" y1="{down(start["tid"]) + 10}" x2="{across(end["ts"]):.1f}" '
                   f'y2="{down(end["tid"]) + 10}" stroke="#111" marker-end="url(#a)"/>')
print("\n".join([*out, "</g></svg>"]))
