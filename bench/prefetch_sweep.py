#!/usr/bin/env python3
"""What prefetch does to the time per output token, on links of four speeds.

  bench/prefetch_sweep.py [--fasa build/release/fasa] [--out docs] > tables.md

Runs `fasa profile` on the emulated device (RTX 4060 Ti 16GB, Llama-3.1-8B, 128k tokens, the shipped
selection trace) for FASA-C and for FASA-M without prefetch and with both predictors at each depth;
then sweeps depth and hot_rows into plots (prefetch-depth.svg, prefetch-hot-rows.svg under --out).
Prints Markdown."""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# GB/s that large copies reach: 0.8 of a lane's raw rate, as the catalogue of GPUs has it.
LINKS = {"PCIe 3 x8": 0.8 * 0.985 * 8, "PCIe 4 x8": 0.8 * 1.969 * 8,
         "PCIe 4 x16": 0.8 * 1.969 * 16, "PCIe 5 x16": 0.8 * 3.938 * 16}
HOT_ROWS = [0, 256, 512, 1024, 2048, 4096, 8192, 16384]
DEPTHS = [0, 1, 2, 3, 4]
COLOURS = ["#3b6fb6", "#d1495b", "#2a9d8f", "#e09f3e", "#8d6ab8"]


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.known = {}

    def profile(self, *flags, tokens=131072, link=None):
        """The JSON of one run; the same run is made once."""
        command = [self.arguments.fasa, "profile", "--geometry", "Llama-3.1-8B", "--tokens",
                   str(tokens), "--steps", str(self.arguments.steps), "--warmup",
                   str(self.arguments.warmup), "--low-bit-tokens", "0", "--json", *map(str, flags)]
        if link is not None:
            command += ["--bandwidth", f"{LINKS[link]:.4f}GB/s"]
        key = tuple(command)
        if key not in self.known:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
            if done.returncode != 0:
                sys.exit(f"prefetch_sweep: {' '.join(command)} ended with {done.returncode}")
            self.known[key] = json.loads(done.stdout)
        return self.known[key]


def prefetch(predictor, depth):
    return ["--predictor", predictor, "--depth", depth]


def variants():
    yield "FASA-C", ["--preset", "fasa-c"]
    yield "FASA-M, none", prefetch("none", 0)
    yield "runners-up", prefetch("runners-up", 1)
    for depth in DEPTHS:
        yield f"next-query, depth {depth}", prefetch("next-query", depth)
    yield "next-query, depth auto", ["--predictor", "next-query", "--depth", "auto"]


def main_table(bench, tokens_attended):
    print(f"\n### k = {tokens_attended}\n")
    print("| link | what | TPOT, ms | over FASA-C | TPOT with 4-bit weights, ms | over FASA-C "
          "| transfer, ms | hidden | hit rate | accuracy | coverage | wasted, MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for link in LINKS:
        base = base_weights = None
        for name, flags in variants():
            k = ["--fac-tokens", tokens_attended]
            run = bench.profile(*flags, *k, link=link)
            weights = bench.profile(*flags, *k, "--weight-bits", 4, link=link)
            base, base_weights = base or run["tpot_ms"], base_weights or weights["tpot_ms"]
            moved = run["transfer_ms"] > 0
            predicted = run["prefetch"]["rows"] > 0
            cells = [link, name, f"{run['tpot_ms']:.3f}", f"{run['tpot_ms'] / base:.2f}x",
                     f"{weights['tpot_ms']:.2f}", f"{weights['tpot_ms'] / base_weights:.2f}x",
                     f"{run['transfer_ms']:.3f}" if moved else "-",
                     f"{100 * run['transfer_hidden']:.0f} %" if moved else "-",
                     f"{100 * run['hit_rate']:.1f} %",
                     f"{100 * run['prefetch']['accuracy']:.0f} %" if predicted else "-",
                     f"{100 * run['prefetch']['coverage']:.0f} %" if predicted else "-",
                     f"{run['prefetch']['wasted'] / 1e6:.1f}" if predicted else "-"]
            print("| " + " | ".join(cells) + " |", flush=True)


def full_table(bench):
    print("\n### Over full KV at 64k\n")
    print("| link | with | full KV on the device, ms | full KV on the host, ms | FASA-M, ms "
          "| FASA-M, next-query depth 1, ms | full on the device / FASA-M "
          "| full on the host / FASA-M |")
    print("|---|---|---|---|---|---|---|---|")
    for link in LINKS:
        for bits, name in ((0, "attention alone"), (4, "4-bit weights")):
            common = {"tokens": 65536, "link": link}
            weights = ["--weight-bits", bits]
            device = bench.profile("--preset", "full", *weights, **common)["tpot_ms"]
            host = bench.profile("--preset", "full", "--rows", "host", *weights,
                                 **common)["tpot_ms"]
            sparse = ["--fac-tokens", 256, *weights]
            plain = bench.profile(*prefetch("none", 0), *sparse, **common)["tpot_ms"]
            ahead = bench.profile(*prefetch("next-query", 1), *sparse, **common)["tpot_ms"]
            print(f"| {link} | {name} | {device:.2f} | {host:.1f} | {plain:.2f} | {ahead:.2f} "
                  f"| {device / plain:.2f}x | {host / plain:.1f}x |", flush=True)


def svg(path, title, across, series, x_label):
    """Lines of milliseconds over evenly spaced `across`, from zero."""
    width, height, left, top, bottom, right = 760, 340, 60, 36, 46, 190
    most = max(max(values) for values in series.values()) * 1.08
    plot_w, plot_h = width - left - right, height - top - bottom
    x_of = [left + plot_w * i / (len(across) - 1) for i in range(len(across))]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>',
             f'<text x="{left}" y="20" font-size="14">{title}</text>']
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50) if most / s <= 8)
    for i in range(int(most / step) + 1):
        y = top + plot_h * (1 - i * step / most)
        parts.append(f'<line x1="{left}" x2="{left + plot_w}" y1="{y:.1f}" y2="{y:.1f}" '
                     f'stroke="#ddd"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">'
                     f'{i * step:g} ms</text>')
    for x, name in zip(x_of, across):
        parts.append(f'<text x="{x:.1f}" y="{height - 26}" text-anchor="middle">{name}</text>')
    parts.append(f'<text x="{left + plot_w / 2}" y="{height - 8}" text-anchor="middle">'
                 f'{x_label}</text>')
    for i, (name, values) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        dash = ' stroke-dasharray="5 4"' if "FASA-C" in name else ""
        y_of = [top + plot_h * (1 - v / most) for v in values]
        path_text = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(x_of, y_of))
        parts.append(f'<polyline points="{path_text}" fill="none" stroke="{colour}" '
                     f'stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                  for x, y in zip(x_of, y_of)]
        y = top + 12 + 18 * i
        parts.append(f'<line x1="{width - right + 14}" x2="{width - right + 38}" y1="{y}" '
                     f'y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>'
                     f'<text x="{width - right + 44}" y="{y + 4}">{name}</text>')
    path.write_text("\n".join(parts) + "\n</svg>\n")


def sweep_depth(bench, out):
    series = {f"{link}": [bench.profile(*prefetch("next-query", depth), "--fac-tokens", 256,
                                        link=link)["tpot_ms"] for depth in DEPTHS]
              for link in LINKS}
    fasa_c = bench.profile("--preset", "fasa-c", "--fac-tokens", 256, link="PCIe 4 x8")["tpot_ms"]
    series["FASA-C"] = [fasa_c] * len(DEPTHS)
    svg(out / "prefetch-depth.svg", "TPOT of attention, k = 256, next-query", DEPTHS, series,
        "depth (0 = no prefetch)")


def sweep_hot_rows(bench, out):
    rows = {}
    series = {}
    for name, flags in (("no prefetch", prefetch("none", 0)),
                        ("next-query, depth 1", prefetch("next-query", 1)),
                        ("runners-up", prefetch("runners-up", 1))):
        runs = [bench.profile(*flags, "--fac-tokens", 256, "--hot-rows", hot, link="PCIe 4 x8")
                for hot in HOT_ROWS]
        rows[name] = runs
        series[name] = [run["tpot_ms"] for run in runs]
    fasa_c = bench.profile("--preset", "fasa-c", "--fac-tokens", 256, link="PCIe 4 x8")["tpot_ms"]
    series["FASA-C"] = [fasa_c] * len(HOT_ROWS)
    svg(out / "prefetch-hot-rows.svg", "TPOT of attention, k = 256, PCIe 4 x8", HOT_ROWS, series,
        "hot rows per layer and KV head")
    print("\n### hot_rows, k = 256, PCIe 4 x8\n")
    print("| hot_rows | device bytes of hot rows, GB | hit rate | TPOT without prefetch, ms "
          "| over FASA-C | next-query depth 1, ms | runners-up, ms |")
    print("|---|---|---|---|---|---|---|")
    for i, hot in enumerate(HOT_ROWS):
        plain = rows["no prefetch"][i]
        print(f"| {hot} | {plain['memory']['device_hot_row_bytes'] / 1e9:.2f} "
              f"| {100 * plain['hit_rate']:.1f} % | {plain['tpot_ms']:.3f} "
              f"| {plain['tpot_ms'] / fasa_c:.2f}x "
              f"| {series['next-query, depth 1'][i]:.3f} | {series['runners-up'][i]:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasa", default=str(ROOT / "build/release/fasa"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--warmup", type=int, default=32)
    parser.add_argument("--sets", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--tables-only", action="store_true", help="the links alone, no sweeps")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    if not arguments.tables_only:
        sweep_depth(bench, arguments.out)
        sweep_hot_rows(bench, arguments.out)
        full_table(bench)
    for tokens in arguments.sets:
        main_table(bench, tokens)


if __name__ == "__main__":
    main()
