"""fasa tune, as a user runs it."""
import json

from support import MODEL, CommandTest, facts, main, run

GEOMETRY = ("--geometry", "Llama-3.2-1B", "--tokens", 4096)
# Few steps: the quality of the settings is not tested.
QUICK = ("--steps", 2, "--time-limit", "60s")


class Tune(CommandTest):
    def tune(self, *arguments):
        return json.loads(self.assert_done("tune", "--json", *arguments).stdout)

    def check(self, report):
        measured = [t["tpot_ms"] for t in report["trials"] if t["fits"]]
        self.assertLessEqual(report["best"]["tpot_ms"], min(measured) * 1.002)
        self.assertLessEqual(report["best"]["tpot_ms"], report["given"]["tpot_ms"])

    def test_a_geometry(self):
        path = self.folder / "tuned.toml"
        report = self.tune(*GEOMETRY, *QUICK, "--trials", 9, "-o", path)
        self.assertEqual(len(report["trials"]), 9)
        self.check(report)
        self.assertEqual(path.read_text(), report["toml"])
        self.assertIn("# ", path.read_text())
        config = json.loads(self.assert_done("config", "--config", path).stdout)
        best = report["best"]
        self.assertEqual(config["placement"]["hot_rows"], best["hot_rows"])
        for key in ("depth", "predictor", "streams"):
            self.assertEqual(config["prefetch"][key], best[key])
        self.assertEqual(config["selection"]["fac_tokens"], "auto")

    def test_depths_come_first_and_the_outcome_is_a_sentence(self):
        path = self.folder / "tuned.toml"
        machine = ("--gpu", "RTX 4090", "--bandwidth", "10GB/s")
        text = self.assert_done("tune", *GEOMETRY, *machine, *QUICK, "--trials", 6, "-o",
                                path).stdout.decode()
        self.assertRegex(text.splitlines()[0], "you need no file|in place of")
        self.assertIn("Depth auto", text)
        report = self.tune(*GEOMETRY, *machine, *QUICK, "--trials", 4)
        self.assertEqual([t["depth"] for t in report["trials"]], ["auto", 0, 1, "auto"])
        # The file asks the same question.
        config = json.loads(self.assert_done("config", "--config", path).stdout)
        self.assertEqual(config["device"]["gpu"], "RTX 4090")
        self.assertEqual(config["device"]["name"], "auto")
        self.assertEqual(config["link"]["bandwidth"], "10GB/s")

    def test_the_same_trials_twice(self):
        def trials():
            report = self.tune(*GEOMETRY, *QUICK, "--trials", 8, "--seed", 5)
            return [[t[key] for key in ("hot_rows", "depth", "predictor", "streams")]
                    for t in report["trials"]]
        self.assertEqual(trials(), trials())

    def test_a_model(self):
        prompt = self.write("prompt.txt", facts("1k")["text"])
        path = self.folder / "tuned.toml"
        done = self.assert_done("tune", "--model", MODEL, "--prompt-file", prompt, "--fac-tokens",
                                64, *QUICK, "--trials", 4, "-o", path)
        self.assertIn("ms a token", done.stdout.decode())
        result = self.generate_json("--prompt-file", prompt, "--device", "emulated", "--config",
                                    path, "--max-tokens", 2)
        self.assertEqual(result["config"]["selection"]["fac_tokens"], 64)

    def test_the_first_trial_is_finished_in_any_time(self):
        report = self.tune(*GEOMETRY, "--steps", 2, "--time-limit", "1ms")
        self.assertEqual(len(report["trials"]), 1)
        self.check(report)

    def test_a_small_memory_leaves_out_what_does_not_fit(self):
        report = self.tune(*GEOMETRY, *QUICK, "--trials", 13, "--weight-bits", 0,
                           "--device-memory", "96MiB", "--fac-tokens", 512)
        self.assertIn(False, [t["fits"] for t in report["trials"]])
        self.check(report)


class BadInput(CommandTest):
    def fails(self, parts, *arguments, code=2):
        path = self.folder / "out.toml"
        self.assert_fails(code, parts, "tune", *arguments, "-o", path)
        self.assertEqual(list(self.folder.glob("out.toml*")), [])

    def test_what_to_tune(self):
        self.fails(["--model", "--geometry"])
        self.fails(["--model", "--geometry", "one of them"], "--model", MODEL, *GEOMETRY)
        self.fails(["--prompt-file"], "--model", MODEL)
        self.fails(["Llama-3.1-8C", "nearest"], "--geometry", "Llama-3.1-8C", "--tokens", 100)
        self.fails(["--tokens", "0"], "--geometry", "Llama-3.2-1B")

    def test_time_limit(self):
        for text in ("0s", "soon", "-3s"):
            self.fails(["--time-limit", text], *GEOMETRY, f"--time-limit={text}")

    def test_values(self):
        self.fails(["--steps", "0"], *GEOMETRY, "--steps", 0)
        self.fails(["--weight-bits", "5"], *GEOMETRY, "--weight-bits", 5)
        self.fails(["--trials", "-1"], *GEOMETRY, "--trials=-1")

    def test_nothing_is_fetched(self):
        self.fails(["placement.rows", "host"], *GEOMETRY, "--preset", "fasa-c")
        self.fails(["selection.kind", "fasa"], *GEOMETRY, "--preset", "full")
        prompt = self.write("prompt.txt", "In the beginning")
        self.fails(["cpu", "emulated"], "--model", MODEL, "--prompt-file", prompt, "--device",
                   "cpu")

    def test_memory(self):
        self.fails(["device_memory", "weights"], *GEOMETRY, "--device-memory", "1MiB", code=4)
        self.fails(["device_memory"], *GEOMETRY, "--device-memory", "1MiB", "--weight-bits", 0,
                   "--trials", 6, code=4)

    def test_the_output_is_checked_before(self):
        done = run("tune", *GEOMETRY, "-o", "/nowhere/at/all.toml")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"/nowhere/at/all.toml", done.stderr)


if __name__ == "__main__":
    main()
