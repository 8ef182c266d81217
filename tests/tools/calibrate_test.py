"""fasa calibrate: fasa generate accepts the map that it writes."""
import json

from support import MODEL, SOURCE, CommandTest, facts, main


class Calibrate(CommandTest):
    def calibrate(self, output, *arguments):
        return self.assert_done("calibrate", "--model", MODEL, "-o", output, "--text",
                                SOURCE / "models/texts/ruth.txt", "--tokens", 600, "--queries", 12,
                                "--tip-chunks", 4, *arguments)

    def test_writes_a_map_that_generate_takes(self):
        path = self.folder / "map.json"
        done = self.calibrate(path)
        self.assertIn(b"distant attention", done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.decode().splitlines()[:-1])), 100)
        self.assertIsInstance(json.loads(path.read_text()), dict)
        prompt = self.write("p.txt", facts("1k")["text"])
        result = self.generate_json("--prompt-file", prompt, "--max-tokens", 2, "--slice", "paper",
                                    "--map", path)
        self.assertEqual(result["map"], str(path))
        self.assertEqual(result["map_seconds"], 0)

    def test_is_the_same_twice_and_depends_on_the_objective(self):
        self.calibrate(self.folder / "a.json")
        self.calibrate(self.folder / "b.json")
        self.calibrate(self.folder / "c.json", "--objective", "ca", "--no-probes")
        first, again, other = ((self.folder / f"{n}.json").read_text() for n in "abc")
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_a_map_of_another_model_says_what_differs(self):
        path = self.folder / "map.json"
        self.calibrate(path)
        config = json.loads((MODEL / "config.json").read_text())
        other = self.copy_model("other")
        self.replace(other, "config.json", json.dumps(config | {"rope_theta": 10000.0}))
        self.assert_fails(3, ["rope_theta", "10000", "map.json"], "generate", "--model", other,
                          "--prompt", "x", "--slice", "lean", "--map", path)

    def test_findings_are_in_the_map_and_generate_takes_them(self):
        path = self.folder / "map.json"
        done = self.calibrate(path, "--slice-bytes", 10)
        self.assertIn(b"slice within 10 bytes", done.stdout)
        found = json.loads(path.read_text())
        self.assertEqual(found["slice"]["bytes"], 10)
        prompt = self.write("p.txt", facts("1k")["text"])
        result = self.generate_json("--prompt-file", prompt, "--max-tokens", 2, "--slice", "map",
                                    "--map", path)
        selection = result["config"]["selection"]
        self.assertEqual(selection["slice_dtype"], found["slice"]["dtype"])
        self.assertEqual(selection["tip_chunks"], found["slice"]["tip_chunks"])
        plain = self.folder / "plain.json"
        self.calibrate(plain)
        self.assert_fails(3, ["plain.json", "--slice-bytes"], "generate", "--model", MODEL,
                          "--prompt", "x", "--map", plain, "--slice", "map")

    def test_bad_input(self):
        output = self.folder / "map.json"
        base = ("calibrate", "--model", MODEL)
        self.assert_fails(2, ["/nonexistent"], *base, "-o", "/nonexistent/map.json")
        self.assert_fails(2, [str(self.folder)], *base, "-o", self.folder)
        self.assert_fails(2, ["output"], *base)
        for flag, value in (("--objective", "best"), ("--window", "-1"), ("--window", "20"),
                            ("--queries", "0"), ("--tokens", "0"), ("--tokens", "9000"),
                            ("--tip-chunks", "33"), ("--slice-bytes", "1"),
                            ("--slice-bytes", "-4")):
            with self.subTest(flag=flag, value=value):
                message = self.assert_fails(2, [], *base, "-o", output, f"{flag}={value}")
                self.assertIn(value, message)
        self.assert_fails(3, ["/nonexistent.txt"], *base, "-o", output, "--text",
                          "/nonexistent.txt")
        self.assertFalse(output.exists())


if __name__ == "__main__":
    main()
