"""--trace-file: the file can be opened by viewers of the Trace Event Format."""
import json

from support import MODEL, CommandTest, facts, main

MICROSECOND = 1e-6


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Trace(CommandTest):
    def trace(self, *flags, tokens=6, **options):
        path = self.folder / "trace.json"
        text = facts("1k")["text"]
        result = self.generate_json("--prompt-file", self.write("prompt.txt", text), "--max-tokens",
                                    tokens, "--fac-tokens", 64, *flags, "--trace-file", path,
                                    **options)
        return read(path), result

    def check_format(self, trace):
        """Checks every event against the format; returns the names of threads by tid."""
        self.assertEqual(trace["displayTimeUnit"], "ns")
        self.assertEqual(trace["otherData"]["dropped"], 0)
        threads, order, arrows, last = {}, {}, {}, 0
        for event in trace["traceEvents"]:
            self.assertIn(event["ph"], "MXCsf")
            self.assertEqual(event["pid"], 1)
            self.assertTrue(event["name"])
            if event["ph"] == "M":
                if event["name"] == "thread_name":
                    threads[event["tid"]] = event["args"]["name"]
                elif event["name"] == "thread_sort_index":
                    order[event["tid"]] = event["args"]["sort_index"]
                else:
                    self.assertEqual(event["name"], "process_name")
                continue
            self.assertGreaterEqual(event["ts"], last, "sorted by time")
            last = event["ts"]
            if event["ph"] == "C":
                self.assertEqual(len(event["args"]), 1)
                self.assertGreaterEqual(min(event["args"].values()), 0)
                continue
            if event["ph"] in "sf":
                arrows.setdefault(event["id"], []).append(event["ph"])
                continue
            self.assertGreaterEqual(event["dur"], 0)
            self.assertIn(event["cat"], ("compute", "miss", "prefetch", "write_back", "prefill",
                                         "control", "wait"))
            self.assertIn(event["tid"], threads, "threads are named before their events")
        self.assertTrue(all(ends == ["s", "f"] for ends in arrows.values()), arrows)
        self.assertEqual(threads.keys(), order.keys())
        self.assertEqual(len(set(order.values())), len(order))
        self.assertNotIn(0, threads)
        return threads

    def events(self, trace, phase):
        return [event for event in trace["traceEvents"] if event["ph"] == phase]

    def check_streams_are_in_order(self, trace, slack):
        """A stream's work and its waits never overlap."""
        ends = {}
        for event in self.events(trace, "X"):
            if event["name"].startswith(("step ", "layer ")):
                continue
            self.assertGreaterEqual(event["ts"] + slack, ends.get(event["tid"], 0), event)
            ends[event["tid"]] = event["ts"] + event["dur"]

    def test_the_emulated_device(self):
        trace, result = self.trace("--device", "emulated")
        threads = self.check_format(trace)
        self.check_streams_are_in_order(trace, slack=1e-3)
        self.assertEqual(trace["otherData"]["clock"], "virtual")
        self.assertLessEqual({"model", "control", "copy 0", "copy 1", "write-back"},
                             set(threads.values()))
        done = {(threads[e["tid"]], e["name"], e["cat"]) for e in self.events(trace, "X")}
        self.assertLessEqual({("model", "select", "compute"), ("model", "attend", "compute"),
                              ("model", "prefill", "prefill"), ("model", "projections", "compute"),
                              ("copy 0", "fetch", "miss"), ("copy 1", "fetch", "miss"),
                              ("write-back", "write_back", "write_back"),
                              ("model", "wait for fetch", "wait")},
                             done)
        # Bytes by cause equal those of the report.
        steps = result["decode"]["tokens"]
        missed = sum(e["args"].get("h2d_bytes", 0) for e in self.events(trace, "X")
                     if e["cat"] == "miss")
        self.assertAlmostEqual(missed, result["fetch"]["bytes_per_step"] * steps, delta=0.5)
        layers = {e["args"]["layer"] for e in self.events(trace, "X") if e["name"] == "select"}
        self.assertEqual(layers, {0, 1, 2, 3})
        # The last event on the model's stream ends at the clock's final time.
        ends = max(e["ts"] + e["dur"] for e in self.events(trace, "X")
                   if threads[e["tid"]] == "model")
        span = (result["prefill"]["seconds"] + result["decode"]["seconds"]) / MICROSECOND
        self.assertGreaterEqual(ends, span)

    def test_waits_name_what_they_waited_for(self):
        trace, _ = self.trace("--device", "emulated", "--bandwidth", "1GB/s")
        waits = [e for e in self.events(trace, "X") if e["name"] == "wait for fetch"]
        self.assertGreater(len(waits), 0)
        for wait in waits:
            self.assertEqual(wait["args"]["awaited_cause"], "miss")
            self.assertEqual(wait["args"]["awaited_layer"], wait["args"]["layer"])
            self.assertTrue(wait["args"]["awaited_stream"].startswith("copy "))
            self.assertGreater(wait["dur"], 0)
        self.assertEqual(len(self.events(trace, "f")), len(waits))

    def test_steps_contain_their_layers(self):
        trace, result = self.trace("--device", "emulated")
        spans = [e for e in self.events(trace, "X") if e["name"].startswith(("step ", "layer "))]
        steps = [e for e in spans if e["name"].startswith("step ")]
        self.assertGreaterEqual(len(steps), result["decode"]["tokens"])
        for layer in spans:
            self.assertTrue(any(s["ts"] <= layer["ts"] + 1e-3 and
                                layer["ts"] + layer["dur"] <= s["ts"] + s["dur"] + 1e-3
                                for s in steps), layer)

    def test_counters(self):
        trace, result = self.trace("--device", "emulated")
        counters = {}
        for event in self.events(trace, "C"):
            counters.setdefault(event["name"], []).extend(event["args"].values())
        self.assertEqual(set(counters), {"bytes in flight, host to device", "device memory",
                                         "bytes in flight, device to host", "hit rate"})
        rates = counters["hit rate"]
        self.assertEqual(len(rates), result["decode"]["tokens"])
        self.assertAlmostEqual(sum(rates) / len(rates), result["fetch"]["hit_rate"])
        self.assertEqual(max(counters["device memory"]), result["memory"]["device_peak_bytes"])
        for direction in ("host to device", "device to host"):
            flight = counters["bytes in flight, " + direction]
            self.assertEqual(flight[-1], 0)
            self.assertGreater(max(flight), 0)

    def test_virtual_times_are_those_without_a_trace(self):
        arguments = ("--prompt", "And God said" * 20, "--max-tokens", 8, "--fac-tokens", 40,
                     "--device", "emulated")
        plain = self.generate_json(*arguments)
        traced = self.generate_json(*arguments, "--trace-file", self.folder / "t.json")
        for part in ("prefill", "decode"):
            self.assertEqual(plain[part]["seconds"], traced[part]["seconds"])
        self.assertEqual(plain["tokens"], traced["tokens"])

    def test_the_cpu_device(self):
        for preset in ("fasa-m", "full"):
            trace, _ = self.trace("--device", "cpu", "--preset", preset)
            threads = self.check_format(trace)
            self.check_streams_are_in_order(trace, slack=1e-3)
            self.assertEqual(trace["otherData"]["clock"], "wall")
            self.assertIn("model", threads.values())
            self.assertFalse([e for e in self.events(trace, "X") if e["cat"] == "wait"])

    def test_by_variable_and_by_file(self):
        path = self.folder / "by-variable.json"
        self.generate_json("--prompt", "x", "--max-tokens", 2,
                           environment={"FASA_TRACE_FILE": str(path)})
        self.check_format(read(path))
        path = self.folder / "by-file.json"
        config = self.write("c.toml", f"[trace]\nfile = \"{path}\"\n")
        self.generate_json("--prompt", "x", "--max-tokens", 2, "--config", config)
        self.check_format(read(path))


class BadPaths(CommandTest):
    def generate(self, path, *flags):
        return ("generate", "--model", MODEL, "--prompt", "x", "--max-tokens", 2, "--trace-file",
                path, *flags)

    def test_a_path_that_cannot_be_written_is_said_before_the_run(self):
        for path in (self.folder / "missing" / "t.json", self.folder):
            self.assert_fails(2, ["cannot write", str(path)], *self.generate(path))
        # The error comes before the weights are read; they would be the next error.
        folder = self.copy_model()
        self.replace(folder, "model.safetensors", b"no weights")
        self.assert_fails(2, ["cannot write"], "generate", "--model", folder, "--prompt", "x",
                          "--trace-file", self.folder / "missing" / "t.json")

    def test_a_run_that_fails_keeps_what_was_there(self):
        path = self.write("t.json", "old")
        self.assert_fails(4, ["device_memory"], *self.generate(path, "--device", "emulated",
                                                               "--device-memory", "1MB"))
        self.assertEqual(path.read_text(), "old")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["t.json"])

    def test_an_old_file_is_replaced_whole(self):
        path = self.write("t.json", "old" * 100000)
        self.assert_done(*self.generate(path))
        self.assertIn("traceEvents", read(path))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["t.json"])


if __name__ == "__main__":
    main()
