"""fasa trace: the file that it writes, and its errors for bad input."""
import json

from support import MODEL, SOURCE, CommandTest, main


class Trace(CommandTest):
    def header(self, path):
        data = path.read_bytes()
        self.assertEqual(data[:8], b"fasatrc\n")
        return json.loads(data.split(b"\n")[1])

    def test_writes_a_trace(self):
        path = self.folder / "a.fasatrace"
        prompt = self.write("ruth.txt", (SOURCE / "models/texts/ruth.txt").read_text()[:400])
        base = ("trace", "--model", MODEL, "--prompt-file", prompt, "--steps", 3)
        done = self.assert_done(*base, "-o", path, "--fac-tokens", 40)
        self.assertIn(b"3 steps after 400 tokens, 40 tokens selected", done.stdout)
        header = self.header(path)
        self.assertEqual(header["schema"], 4)
        self.assertEqual(header["model"], "needle-3m")
        self.assertEqual(header["text"], "ruth.txt")
        self.assertEqual((header["layers"], header["kv_heads"], header["steps"]), (4, 2, 3))
        self.assertEqual(header["budget"], 40)
        again = self.folder / "b.fasatrace"
        self.assert_done(*base, "-o", again, "--fac-tokens", 40, "--device", "emulated")
        self.assertEqual(path.read_bytes(), again.read_bytes())
        self.assert_done(*base, "-o", again)
        self.assertEqual(self.header(again)["budget"], 128)

    def test_bad_input(self):
        path = self.folder / "a.fasatrace"
        base = ("trace", "--model", MODEL, "--prompt", "In the beginning")
        self.assert_fails(2, ["/nonexistent"], *base, "-o", "/nonexistent/a.fasatrace")
        self.assert_fails(2, ["output"], *base)
        self.assert_fails(2, ["steps = 0"], *base, "-o", path, "--steps", 0)
        self.assert_fails(2, ["8192"], *base, "-o", path, "--steps", 9000)
        self.assert_fails(2, ["fac_tokens"], *base, "-o", path, "--fac-tokens", "0.5")
        self.assert_fails(2, ["fasa"], *base, "-o", path, "--preset", "full")
        self.assert_fails(3, ["/nonexistent.txt"], "trace", "--model", MODEL, "-o", path,
                          "--prompt-file", "/nonexistent.txt")
        self.assertFalse(path.exists())


if __name__ == "__main__":
    main()
