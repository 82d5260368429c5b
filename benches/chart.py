#!/usr/bin/env python3
"""Draws docs/images/speed.svg, the chart of the README and the book, from benches/results/results.json.

    python3 benches/chart.py
"""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Names of rows in the table, and their labels in the chart.
ROWS = [
    ("resnet-50, batch 16", "ResNet-50, 16 images"),
    ("bert-base, 8x128", "BERT-base, 8 x 128 tokens"),
    ("gpt2 small, 64 tokens after 16", "GPT-2 small writes 64 tokens"),
    ("llama 135m, 4x256", "LLaMA 135M, 4 x 256 tokens"),
    ("train gpt2 small, 2x128", "train GPT-2 small, 2 x 128 tokens"),
    ("train resnet-50, batch 8", "train ResNet-50, 8 images"),
]
# Label, columns of which the fastest is shown, CSS class of the bar.
PROGRAMS = [
    ("grove", ["grove, flex"], "grove"),
    ("PyTorch, the fastest of its modes", ["PyTorch", "PyTorch, channels last", "torch.compile"], "torch"),
    ("JAX", ["JAX"], "jax"),
    ("candle", ["candle"], "candle"),
]
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 12px; fill: #57606a }
.grove { fill: #0072b2 } .torch { fill: #d55e00 } .jax { fill: #cc79a7 } .candle { fill: #009e73 }
.line { stroke: #d0d7de } .ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #e6edf3 } .small { fill: #9198a1 } .line { stroke: #3d444d }
  .grove { fill: #56b4e9 } .torch { fill: #f0894a } .jax { fill: #e3a6c8 } .candle { fill: #3ac29a }
}
"""
WIDTH, LEFT, TOP, BAR, GAP = 760, 250, 64, 13, 16
# Length of the axis, relative to grove's time; longer bars are cut and labelled with their ratio.
LONGEST = 3.0


def seconds(value):
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def main():
    results = json.loads((ROOT / "benches/results/results.json").read_text())
    rows = {row["name"]: {column["name"]: column for column in row["columns"]} for row in results["rows"]}
    unit = (WIDTH - LEFT - 120) / LONGEST
    parts, x, y = [], LEFT - 240, TOP
    for name, _, kind in PROGRAMS:
        parts.append(f'<rect class="{kind}" x="{x}" y="32" width="12" height="12"/><text x="{x + 18}" y="42">{name}</text>')
        x += 40 + 7 * len(name)
    for row, title in ROWS:
        times = []
        for _, columns, kind in PROGRAMS:
            found = [rows[row][column].get("median_seconds") for column in columns if column in rows[row]]
            found = [time for time in found if time]
            if found:
                times.append((min(found), kind))
        own = times[0][0]
        middle = y + (BAR + 1) * len(times) / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{title}</text>')
        for time, kind in times:
            ratio = time / own
            width = min(ratio, LONGEST) * unit
            note = seconds(time) if ratio <= LONGEST else f"{seconds(time)} ({ratio:.1f} x)"
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
            parts.append(f'<text class="small" x="{LEFT + width + 6:.1f}" y="{y + BAR - 2}">{note}</text>')
            y += BAR + 1
        y += GAP
    line = LEFT + unit
    parts.insert(0, f'<line class="line" x1="{line:.1f}" x2="{line:.1f}" y1="{TOP - 6}" y2="{y - GAP + 6}"/>')
    machine = results["machine"]
    where = f"{results['date']}, {machine['cpu']}, {machine['threads']} threads, f32. The line is grove's time."
    parts.append(f'<text class="small" x="10" y="{y + 8}">{where}</text>')
    title = "Time on a CPU, relative to grove; shorter is faster"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 20}" viewBox="0 0 {WIDTH} {y + 20}" role="img">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n"
        # Viewers without colour schemes show dark text on a page that may be dark.
        f'<rect class="ground" width="{WIDTH}" height="{y + 20}" rx="6"/>\n'
        f'<text x="10" y="20" style="font-weight: 600">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )
    file = ROOT / "docs/images/speed.svg"
    file.parent.mkdir(exist_ok=True)
    file.write_text(svg)
    print(file)


if __name__ == "__main__":
    main()
