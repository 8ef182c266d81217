"""fasa profile, as a user runs it."""
import json
import unittest

from support import MODEL, SOURCE, CommandTest, facts, main, report_of

SMALL = ("--geometry", "Llama-3.2-1B", "--tokens", 8192, "--steps", 4, "--warmup", 3)
SUMS = (("compute_ms",), ("transfer_ms",), ("wait_ms", "rows"), ("wait_ms", "predictions"),
        ("wait_ms", "tables"), ("bytes", "miss"), ("bytes", "prefetch"), ("bytes", "write_back"),
        ("prefetch", "wasted"), ("prefetch", "rows"), ("prefetch", "rows_used"),
        ("rows", "protected"), ("rows", "hits"), ("rows", "misses"))


def value(part, path):
    for key in path:
        part = part[key]
    return part


class Profile(CommandTest):
    def profile(self, *arguments, **options):
        done = self.assert_done("profile", "--json", *arguments, **options)
        return json.loads(done.stdout)

    def check_identities(self, profile):
        layers = profile["layers"]
        self.assertEqual([layer["layer"] for layer in layers], list(range(len(layers))))
        for path in SUMS:
            parts = [value(part, path) for part in [*layers, profile["outside_layers"]]]
            self.assertAlmostEqual(sum(parts), value(profile, path), places=6, msg=path)
        spent = profile["compute_ms"] + sum(profile["wait_ms"].values()) + profile["idle_ms"]
        self.assertAlmostEqual(spent, profile["tpot_ms"], places=4)
        for part in [profile, *layers]:
            for share in ("transfer_hidden", "hit_rate"):
                self.assertTrue(0 <= part[share] <= 1, part[share])
            moved = part["transfer_ms"]
            if moved > 0 and part["wait_ms"]["rows"] < moved:
                self.assertAlmostEqual(part["transfer_hidden"],
                                       1 - part["wait_ms"]["rows"] / moved, places=9)
            rows = part["rows"]
            seen = sum(rows.values())
            if seen:
                self.assertAlmostEqual(part["hit_rate"], 1 - rows["misses"] / seen, places=9)
        self.assertAlmostEqual(sum(step["ms"] for step in profile["steps"]) / len(profile["steps"]),
                               profile["tpot_ms"], places=9)

    def test_a_synthetic_decode(self):
        profile = self.profile(*SMALL, "--predictor", "runners-up", "--depth", 1)
        self.check_identities(profile)
        self.assertEqual(len(profile["layers"]), 16)
        self.assertEqual(profile["clock"], "virtual")
        self.assertEqual(profile["profiled_steps"], 4)
        self.assertEqual(profile["config"]["device"]["gpu"], "RTX 4060 Ti 16GB")
        self.assertEqual(profile["config"]["selection"]["fac_tokens"], "auto")
        self.assertEqual(profile["bytes"]["miss"], profile["rows"]["misses"] * 256)  # 2 x 64 bf16
        self.assertEqual(profile["bytes"]["write_back"], 16 * 8 * 256)
        prefetch = profile["prefetch"]
        self.assertAlmostEqual(prefetch["accuracy"],
                               prefetch["rows_used"] / prefetch["rows"], places=9)
        self.assertTrue(0 < profile["overlap"] < 1)

    def test_several_contexts_in_one_step(self):
        one = self.profile(*SMALL, "--depth", 0)
        profile = self.profile(*SMALL, "--depth", 0, "--sequences", 3)
        self.check_identities(profile)
        self.assertEqual(profile["sequences"], 3)
        self.assertEqual(profile["bytes"]["write_back"], 3 * one["bytes"]["write_back"])
        self.assertGreater(profile["tpot_ms"], one["tpot_ms"])
        self.assertLess(profile["tpot_ms"], 3 * one["tpot_ms"])
        self.assertAlmostEqual(profile["link_measured"]["latency_us"], 10, places=3)

    def test_several_tokens_in_one_step(self):
        one = self.profile(*SMALL, "--depth", 0)
        profile = self.profile(*SMALL, "--depth", 0, "--step-tokens", 4)
        self.assertEqual(profile["step_tokens"], 4)
        self.assertEqual(profile["bytes"]["write_back"], 4 * one["bytes"]["write_back"])
        self.assertGreater(profile["tpot_ms"], one["tpot_ms"])
        self.assertLess(profile["tpot_ms"], 4 * one["tpot_ms"])

    def test_the_same_twice(self):
        first, second = (self.profile(*SMALL, "--depth", 0) for _ in range(2))
        self.assertEqual(first["rows"], second["rows"])
        self.assertAlmostEqual(first["tpot_ms"], second["tpot_ms"], places=9)

    def test_presets_and_weights(self):
        fasa_m = self.profile(*SMALL, "--predictor", "none", "--weight-bits", 0)
        fasa_c = self.profile(*SMALL, "--preset", "fasa-c", "--weight-bits", 0)
        self.check_identities(fasa_c)
        self.assertEqual(fasa_c["bytes"], {"miss": 0, "prefetch": 0, "write_back": 0})
        self.assertEqual(fasa_c["transfer_hidden"], 1)
        self.assertLess(fasa_c["tpot_ms"], fasa_m["tpot_ms"])
        self.assertIn("unlimited", " ".join(fasa_c["notes"]))
        weighted = self.profile(*SMALL, "--predictor", "none", "--weight-bits", 4)
        self.check_identities(weighted)
        self.assertGreater(weighted["tpot_ms"], fasa_m["tpot_ms"])
        self.assertEqual(weighted["bytes"], fasa_m["bytes"])
        full = self.profile("--geometry", "llama-3.2-1b", "--tokens", 1024, "--steps", 2,
                            "--preset", "full", "--rows", "host")
        self.check_identities(full)
        self.assertGreater(full["bytes"]["miss"], 16 * 8 * 256 * 1024)

    def test_a_model(self):
        text = facts("1k")
        prompt = self.write("prompt.txt", text["text"] + text["questions"][0]["prompt_suffix"])
        arguments = ("--model", MODEL, "--prompt-file", prompt, "--steps", 4, "--warmup", 2,
                     "--fac-tokens", 64, "--depth", 1, "--bandwidth", "100MB/s")
        profile = self.profile(*arguments)
        self.check_identities(profile)
        self.assertEqual(len(profile["layers"]), 4)
        self.assertGreater(profile["outside_layers"]["compute_ms"], 0)
        self.assertGreater(profile["prefetch"]["rows"], 0)
        self.assertTrue(0 < profile["overlap"] < 1)
        cpu = self.profile(*arguments, "--device", "cpu")
        self.assertEqual(cpu["clock"], "wall")
        self.assertEqual(cpu["bytes"], {"miss": 0, "prefetch": 0, "write_back": 0})

    def test_two_configs_in_turns(self):
        slow = self.write("slow.toml", '[link]\nbandwidth = "2GB/s"\n')
        fast = self.write("fast.toml", 'preset = "fasa-c"\n')
        both = self.profile(*SMALL, "--predictor", "none", "--compare", slow, fast)
        self.assertEqual([one["file"] for one in both["compare"]], [str(slow), str(fast)])
        for one in both["compare"]:
            self.check_identities(one)
        ratio = both["tpot_ratio"]
        self.assertLess(ratio["mean"], 1)
        self.assertLessEqual(ratio["lowest"], ratio["mean"])
        self.assertLessEqual(ratio["mean"], ratio["highest"])
        alone = self.profile(*SMALL, "--predictor", "none", "--config", slow)
        self.assertAlmostEqual(alone["tpot_ms"], both["compare"][0]["tpot_ms"], places=6)

    def test_tables_fit_100_columns(self):
        slow = self.write("a-very-long-name-of-a-config-file-that-goes-on-and-on.toml",
                          '[link]\nbandwidth = "2GB/s"\n')
        for arguments in ((), ("--depth", 5, "--weight-bits", 16),
                          ("--preset", "fasa-c"), ("--compare", slow, slow, "--preset", "fasa-c")):
            with self.subTest(arguments=arguments):
                text = self.assert_done("profile", *SMALL, *arguments).stdout.decode()
                self.assertLessEqual(max(len(line) for line in text.splitlines()), 100)
                self.assertNotIn("nan", text)

    def test_parts_say_where_the_time_goes(self):
        for slow in (("--bandwidth", "1GB/s"), ()):
            profile = self.profile(*SMALL, *slow, "--head-groups", 2)
            parts = profile["parts"]
            self.assertLessEqual({"scoring", "attention", "weights", "append"}, set(parts))
            self.assertAlmostEqual(sum(part["ms"] for part in parts.values()),
                                   profile["compute_ms"], places=6)
            self.assertEqual(parts["weights"]["calls"], 17)  # the output projection too
            self.assertGreater(parts["scoring"]["bytes"], 0)
            self.assertEqual(profile["head_groups"], 2)
            moved = profile["transfers_behind_ms"]
            self.assertGreater(sum(moved.values()), 0)
            self.assertLessEqual(moved["nothing"] / sum(moved.values()), 1)
            self.assertIn("smollm2-8k", profile["selections"])
            self.assertIn("Rows on the host cost", profile["verdict"])
        text = self.assert_done("profile", *SMALL, "--bandwidth", "1GB/s").stdout.decode()
        for part in ("scoring", "bandwidth", "head groups", "rows moved while", "selections:"):
            self.assertIn(part, text)

    def test_advice_was_tried(self):
        profile = self.profile(*SMALL, "--bandwidth", "1GB/s", "--hot-rows", 512)
        tried = profile["advice"]["tried"]
        self.assertGreater(len(tried), 1)
        best = min(tried, key=lambda one: one["tpot_ms"] or 1e9)
        self.assertLess(best["tpot_ms"], profile["tpot_ms"])
        self.assertIn(f"Set {best['setting']}: {best['tpot_ms']:.3f} ms", profile["advice"]["text"])
        key, setting = best["setting"].split(".")
        given = self.write("given.toml", f"[{key}]\n{setting}\n")
        again = self.profile(*SMALL, "--bandwidth", "1GB/s", "--config", given, "--no-advice")
        self.assertAlmostEqual(again["tpot_ms"], best["tpot_ms"], places=6)
        self.assertNotIn("advice", again)

    def test_a_cold_start_is_said(self):
        cold = self.profile("--geometry", "Llama-3.2-1B", "--tokens", 8192, "--steps", 2,
                            "--warmup", 17, "--no-advice")
        self.assertTrue(cold["warmup_rises"])
        self.assertIn("raise --warmup", " ".join(cold["notes"]))
        warm = self.profile("--geometry", "Llama-3.2-1B", "--tokens", 8192, "--steps", 2,
                            "--no-advice")
        self.assertGreaterEqual(warm["warmup_steps"], 48)
        self.assertFalse(warm["warmup_rises"])

    def test_files(self):
        page, trace = self.folder / "p.html", self.folder / "t.json"
        done = self.assert_done("profile", *SMALL, "--bandwidth", "1GB/s", "--no-advice", "--json",
                                "--html", page, "--trace-file", trace)
        report = report_of(page)
        (timeline,) = report.pop("timelines")
        self.assertEqual(report.pop("report"), "profile")
        self.assertEqual(report, json.loads(done.stdout))
        self.check_timeline(report, timeline)
        for part in report["parts"].values():
            self.assertEqual(part["share_of_bandwidth"] is None, part["bytes"] == 0)
        self.assertLessEqual(report["parts"]["weights"]["share_of_bandwidth"], 1)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual({e["args"]["layer"] for e in events if e["name"] == "select"},
                         set(range(16)))


    def check_timeline(self, report, timeline):
        """The last step has the kinds of work of the profile, and no row without work."""
        self.assertEqual(timeline["streams"][0], "compute")
        self.assertNotIn("hit rate", timeline["streams"])  # a counter
        spans = {}
        for stream, start, length, kind, _, layer, moved in timeline["entries"]:
            self.assertGreaterEqual(start, 0)
            self.assertGreaterEqual(length, 0)
            self.assertTrue(-1 <= layer < len(report["layers"]))
            self.assertGreaterEqual(moved, 0)
            spans.setdefault(stream, []).append(kind)
        self.assertEqual(set(spans), set(range(len(timeline["streams"]))))
        waits = {"wait_rows", "wait"}
        self.assertEqual(set(spans[0]) - waits, set(report["parts"]))
        self.assertFalse(waits & {kind for stream in spans if stream for kind in spans[stream]})
        self.assertIn("miss", {kind for stream in spans if stream for kind in spans[stream]})

    def test_a_page_of_two_configs(self):
        page = self.folder / "p.html"
        (self.folder / "<").mkdir()
        names = [self.write(name, f"[prefetch]\ndepth = {depth}\n")
                 for name, depth in (("</script>.toml", 0), ("b.toml", 1))]
        self.assert_done("profile", *SMALL, "--bandwidth", "1GB/s", "--compare", *names, "--html",
                         page)
        report = report_of(page)
        self.assertEqual([run["file"] for run in report["compare"]], list(map(str, names)))
        self.assertEqual(len(report["timelines"]), 2)
        for run, timeline in zip(report["compare"], report["timelines"]):
            self.check_timeline(run, timeline)
        self.assertLessEqual(report["tpot_ratio"]["lowest"], report["tpot_ratio"]["mean"])


class BadInput(CommandTest):
    def fails(self, parts, *arguments, code=2):
        return self.assert_fails(code, parts, "profile", *arguments)

    def test_what_to_profile(self):
        self.fails(["--model", "--geometry"])
        self.fails(["one of them"], "--geometry", "Llama-3.1-8B", "--model", MODEL)
        self.fails(["Lama-3.1-8B", "nearest", "Llama-3.1-8B"], "--geometry", "Lama-3.1-8B")
        self.fails(["--prompt-file"], "--model", MODEL)
        self.fails(["--tokens", "--geometry"], "--model", MODEL, "--prompt", "x", "--tokens", 5)
        self.fails(["--weight-bits", "--geometry"], "--model", MODEL, "--prompt", "x",
                   "--weight-bits", 4)
        self.fails(["prompt"], *SMALL, "--prompt", "x")
        self.fails(["/nonexistent"], *SMALL, "--selection-trace", "/nonexistent", code=3)

    def test_values(self):
        for flag, given in (("--steps", 0), ("--steps", -1), ("--warmup", -1), ("--tokens", 0),
                            ("--weight-bits", 3), ("--sequences", 0), ("--sequences", 257),
                            ("--step-tokens", 0), ("--step-tokens", 17),
                            ("--bandwidth", "0GB/s"),
                            ("--hot-rows", -1), ("--depth", -1), ("--depth", 17)):
            with self.subTest(flag=flag, given=given):
                message = self.fails(["allowed"], "--geometry", "Llama-3.2-1B", f"{flag}={given}")
                self.assertIn(str(given), message)
        self.fails(["RTX 4061", "nearest"], *SMALL, "--gpu", "RTX 4061")
        self.fails(["cpu", "emulated"], *SMALL, "--device", "cpu")

    def test_files_are_checked_first(self):
        missing = self.folder / "none" / "p.html"
        self.fails([str(missing)], *SMALL, "--html", missing)
        self.fails([str(missing)], *SMALL, "--trace-file", missing)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_compare(self):
        good = self.write("good.toml", 'preset = "fasa-m"\n')
        bad = self.write("bad.toml", "[prefetch]\ndepht = 1\n")
        self.fails(["bad.toml:2", "depth"], *SMALL, "--compare", good, bad)
        self.fails(["--compare", "--config"], *SMALL, "--compare", good, good, "--config", good)
        self.fails(["--trace-file"], *SMALL, "--compare", good, good, "--trace-file",
                   self.folder / "t.json")

    def test_a_broken_trace(self):
        whole = (SOURCE / "models/traces/needle-3m-7k.fasatrace").read_bytes()
        broken = self.write("t.fasatrace", whole[:5000])
        self.fails(["t.fasatrace"], *SMALL, "--selection-trace", broken, code=3)


if __name__ == "__main__":
    main()
