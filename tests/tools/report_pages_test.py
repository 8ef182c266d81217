"""Pages of reports in a browser: what they draw, wide and narrow, light and dark. Skipped without
Chromium or FASA_LONG=1. FASA_SCREENSHOTS=DIR saves screenshots."""
import os
import pathlib
import unittest

from browser import PROGRAM, Browser
from support import MODEL, SOURCE, CommandTest, main, report_of

RUTH = SOURCE / "models/texts/ruth.txt"
DECODE = ("--geometry", "Llama-3.2-1B", "--tokens", 8192, "--steps", 4, "--warmup", 3,
          "--bandwidth", "1GB/s")
TEXT = "document.getElementById('page').innerText"
# Rows of a table are as high as each other: nothing breaks within a cell.
UNEVEN = """[...document.querySelectorAll('table:not(.heat) tbody')].filter(body => {
  const heights = [...body.rows].map(row => row.offsetHeight);
  return Math.max(...heights) - Math.min(...heights) > 1; }).length"""
# Labels of axes that lie outside of their canvas.
CUT = """charts.flatMap(chart => Object.values(chart.scales).flatMap(scale =>
  scale.getLabelItems ? scale.getLabelItems(chart.chartArea) : scale._labelItems ?? [])
  .filter(item => { const [x, y] = item.translation ?? item.options.translation;
                    return x < 0 || y < 0 || x > chart.width || y > chart.height; })).length"""
# Lanes of timelines without a span.
EMPTY = """charts.filter(chart => chart.options.indexAxis === 'y').flatMap(chart => {
  const lanes = chart.data.labels?.length ? chart.data.labels : chart.options.scales.y.labels;
  const used = new Set(chart.data.datasets.flatMap(set => set.data.map(
      (one, i) => one.y ?? lanes[i])));
  return lanes.filter(lane => !used.has(lane)); })"""
# The least contrast of a cell's text on its colour.
CONTRAST = """Math.min(...[...document.querySelectorAll('.heat td[style]')].map(cell => {
  const rgb = colour => colour.match(/\\d+/g).map(Number);
  const [a, b] = [getComputedStyle(cell).color, getComputedStyle(cell).backgroundColor]
      .map(colour => luminance(rgb(colour)) + 0.05);
  return Math.max(a, b) / Math.min(a, b); }))"""


@unittest.skipUnless(PROGRAM, "no Chromium is installed; tools/env clients installs it")
@unittest.skipUnless(os.environ.get("FASA_LONG") == "1", "the long run has them (FASA_LONG=1)")
class ReportPages(CommandTest):
    def looks(self, page):
        """Opens the page in both widths and schemes; yields a browser for each."""
        for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")):
            with self.subTest(width=width, scheme=scheme):
                browser = Browser(self, self.folder / f"browser-{width}-{scheme}", (width, 900))
                if width < 600:
                    browser.become_phone(width)
                browser.prefer(scheme)
                browser.call("Page.navigate", url=f"file://{page}")
                browser.wait_for("document.title.startsWith('fasa ')")
                self.assertEqual(browser.problems, [])
                self.assertEqual(browser.requests, [f"file://{page}"])
                across = browser.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(across, width)
                self.assertEqual(browser.evaluate(UNEVEN), 0)
                self.assertEqual(browser.evaluate(CUT), 0)
                self.assertEqual(browser.evaluate(EMPTY), [])
                self.assertFalse(browser.evaluate(f"/NaN|undefined|Infinity/.test({TEXT})"))
                dark = browser.evaluate("luminance(colour('back').match(/\\d+/g).map(Number))") < .1
                self.assertEqual(dark, scheme == "dark")
                if folder := os.environ.get("FASA_SCREENSHOTS"):
                    name = f"{page.stem}-{width}-{scheme}.png"
                    (pathlib.Path(folder) / name).write_bytes(browser.screenshot())
                yield browser
                browser.stop()

    def test_a_profile(self):
        page = self.folder / "profile.html"
        self.assert_done("profile", *DECODE, "--no-advice", "--html", page)
        report = report_of(page)
        for browser in self.looks(page):
            text = browser.evaluate(TEXT)
            for part in (f"{report['tpot_ms']:.3f} ms", report["verdict"].split(":")[0], "scoring",
                         f"{report['parts']['weights']['ms']:.3f} ms", "it waited"):
                self.assertIn(part, text)
            self.assertEqual(browser.evaluate("charts.length"), 6)
            layers = "document.querySelector('label span').textContent"
            self.assertEqual(browser.evaluate(layers), "layers 6 to 9")
            browser.evaluate("(() => { const of = document.querySelector('input[type=range]');"
                             "of.value = 2; of.dispatchEvent(new Event('input')); })()")
            self.assertEqual(browser.evaluate(layers), "layers 2 to 5")

    def test_two_profiles(self):
        page = self.folder / "compare.html"
        names = [self.write(f"depth{depth}.toml", f"[prefetch]\ndepth = {depth}\n")
                 for depth in (0, 1)]
        self.assert_done("profile", *DECODE, "--compare", *names, "--html", page)
        first, second = report_of(page)["compare"]
        for browser in self.looks(page):
            text = browser.evaluate(TEXT)
            self.assertIn(f"{second['tpot_ms'] / first['tpot_ms']:.3f}", text)
            self.assertIn("prefetch.depth", text)
            # Both share one axis in each chart, or have axes of the same length.
            tops = browser.evaluate("charts.slice(-2).map(chart => chart.scales.y.max)")
            self.assertEqual(tops[0], tops[1])
            lanes = browser.evaluate("charts[1].options.scales.y.labels")
            self.assertEqual({lane[:3] for lane in lanes}, {"A: ", "B: "})

    def test_facts_of_several_methods(self):
        page = self.folder / "needle.html"
        self.assert_done("eval", "needle", "--model", MODEL, "--text", RUTH, "--context", 600, 900,
                         "--examples", 1, "--selections", "full,streaming", "--budgets", 48,
                         "--results", self.folder / "results", "--html", page)
        for browser in self.looks(page):
            methods = [one["method"] for one in report_of(page)["methods"]]
            self.assertEqual(browser.evaluate(
                "[...document.querySelector('tbody').rows].map(row => row.cells[0].innerText)"),
                methods)
            self.assertEqual(browser.evaluate("document.querySelectorAll('.heat').length"), 2)
            self.assertGreater(browser.evaluate(CONTRAST), 4.5)

    def test_an_analysis(self):
        page = self.folder / "analyze.html"
        self.assert_done("analyze", "--model", MODEL, "--text", RUTH, "--tokens", 700, "--window",
                         64, "--queries", 20, "--steps", 4, "--selections", "fasa,streaming",
                         "--budgets", 32, 64, "-o", page)
        for browser in self.looks(page):
            text = browser.evaluate(TEXT)
            for part in ("ruth.txt", "mean CA", "layer 3", "K = 2048", "distant attention kept"):
                self.assertIn(part, text)
            self.assertEqual(browser.evaluate("document.querySelectorAll('.map canvas').length"), 4)


if __name__ == "__main__":
    main()
