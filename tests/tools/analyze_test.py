"""fasa analyze, as a user runs it."""
import json

from support import MODEL, SOURCE, CommandTest, main, report_of

RUTH = SOURCE / "models/texts/ruth.txt"
SMALL = ("analyze", "--model", MODEL, "--text", RUTH, "--tokens", 700, "--window", 64, "--queries",
         20)


class Analyze(CommandTest):
    def test_page_and_json(self):
        page = self.folder / "a.html"
        done = self.assert_done(*SMALL, "-o", page, "--json")
        result = json.loads(done.stdout)
        self.assertEqual(result["texts"][0]["name"], "ruth.txt")
        mean = result["agreement"]["mean"]
        self.assertEqual((len(mean), len(mean[0]), len(mean[0][0])), (4, 4, 32))
        self.assertEqual(len(result["map_overlap"]["sizes"]), 9)
        self.assertEqual(report_of(page), {**result, "report": "analyze"})

    def test_the_table_is_readable(self):
        done = self.assert_done(*SMALL)
        lines = done.stdout.decode().splitlines()
        self.assertLessEqual(max(map(len, lines)), 100)
        self.assertIn("over 0.4", done.stdout.decode())

    def test_bad_input(self):
        short = self.write("short.txt", "x" * 300)
        base = ("analyze", "--model", MODEL, "--text")
        self.assert_fails(3, ["short.txt", "300", "--window"], *base, short)
        self.assert_fails(2, ["--window", "2049", "2048"], *base, RUTH, "--window", 2049)
        self.assert_fails(2, ["--window", "351", "350"], *base, RUTH, "--window", 351, "--tokens",
                          700)
        self.assert_fails(2, ["--tokens", "9000", "8192"], *base, RUTH, "--tokens", 9000)
        self.assert_fails(2, ["tip_chunks", "33"], *base, RUTH, "--tip-chunks", 33)
        self.assert_fails(2, ["--text"], "analyze", "--model", MODEL)
        self.assert_fails(3, ["none.txt"], *base, self.folder / "none.txt")
        self.assert_fails(2, ["/nonexistent"], *base, RUTH, "-o", "/nonexistent/a.html")


if __name__ == "__main__":
    main()
