"""fasa eval: results stored per example, and the totals computed from them."""
import json
import math
import shutil
import signal
import subprocess
import sys
import time

from support import FASA, MODEL, SOURCE, CommandTest, main, report_of, run

RUTH = SOURCE / "models/texts/ruth.txt"
NEEDLE = ("eval", "needle", "--model", MODEL, "--text", RUTH, "--context", 600)
TWO = ("eval", "ppl", "--model", MODEL, "--text", RUTH, "--context", 400, "--stride", 50)
PPL = (*TWO[:4], "--selection", "fasa", *TWO[4:])


class Eval(CommandTest):
    def setUp(self):
        super().setUp()
        self.results = self.folder / "results"

    def evaluate(self, *arguments):
        done = self.assert_done(*arguments, "--results", self.results, "--json")
        return json.loads(done.stdout)

    def files(self):
        return sorted(self.results.glob("*.jsonl"))

    def records(self):
        (path,) = self.files()
        return [json.loads(line) for line in path.read_text().splitlines()][1:]

    def test_perplexity_is_what_its_examples_say(self):
        result = self.evaluate(*PPL, "--examples", 3, "--fac-tokens", 32)
        records = self.records()
        self.assertEqual(result["examples"], 3)
        self.assertEqual(result["tokens"], 150)
        self.assertAlmostEqual(result["perplexity"],
                               math.exp(sum(r["nll"] for r in records) / 150), places=9)
        self.assertLess(result["interval"][0], result["perplexity"])
        self.assertEqual(result["config"]["selection"]["fac_tokens"], 32)
        self.assertEqual(result["tasks"][0]["results"], str(self.files()[0]))

    def test_needle_counts_right_answers(self):
        result = self.evaluate(*NEEDLE, "--examples", 2, "--selection", "full")
        questions = [q for r in self.records() for q in r["questions"]]
        self.assertEqual(result["questions"], 8)
        self.assertEqual(len(questions), 8)
        self.assertEqual(result["accuracy"], sum(q["score"] for q in questions) / 8)
        for question in questions:
            self.assertEqual(question["score"],
                             question["answer"].split(".")[0] == question["expected"])

    def test_goes_on_where_it_was(self):
        first = self.evaluate(*PPL, "--examples", 2)
        more = self.evaluate(*PPL, "--examples", 4)
        self.assertEqual(more["tasks"][0]["resumed"], 2)
        self.assertEqual([r["id"] for r in self.records()], ["0@0", "0@50", "0@100", "0@150"])
        again = self.evaluate(*PPL, "--examples", 2)
        self.assertEqual(again["perplexity"], first["perplexity"])
        self.assertEqual(again["tasks"][0]["resumed"], 2)
        fresh = self.evaluate(*PPL, "--examples", 1, "--fresh")
        self.assertEqual(fresh["tasks"][0]["resumed"], 0)
        self.assertEqual(len(self.records()), 1)

    def test_an_interruption_loses_the_current_example_alone(self):
        arguments = [str(a) for a in (*PPL, "--examples", 200, "--results", self.results)]
        running = subprocess.Popen([FASA, *arguments], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            # Killed as soon as the file holds some results.
            while running.poll() is None and not (self.files() and
                                                  self.files()[0].read_text().count("\n") >= 4):
                time.sleep(0.001)
            self.assertIsNone(running.poll(), "it ended before it could be interrupted")
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
        kept = self.files()[0].read_text().count("\n") - 1
        self.assertGreaterEqual(kept, 3)
        resumed = self.evaluate(*PPL, "--examples", kept + 2)
        self.assertEqual(resumed["tasks"][0]["resumed"], kept)
        whole = self.folder / "whole"
        done = self.assert_done(*PPL, "--examples", kept + 2, "--results", whole, "--json")
        self.assertEqual(json.loads(done.stdout)["perplexity"], resumed["perplexity"])

    def test_the_table_has_methods_and_tasks(self):
        self.evaluate(*TWO, "--examples", 2, "--selection", "full")
        self.evaluate(*NEEDLE, "--examples", 1, "--fac-tokens", 40, "--selection", "fasa")
        done = self.assert_done(*PPL, "--examples", 1, "--fac-tokens", 40, "--results",
                                self.results)
        lines = done.stdout.decode().split("Results in ")[1].splitlines()[1:]
        self.assertEqual(lines[0].split(), ["method", "needle", "600", "ppl", "400"])
        self.assertTrue(lines[1].startswith("fasa 40 and all others low-bit int2, 32 FCs int2"))
        self.assertTrue(lines[1].endswith("*"), lines[1])
        self.assertRegex(lines[2], r"^full +- +\d\.\d{4}$")
        self.assertIn("fewer examples", lines[3])

    def test_perplexity_is_compared_with_full_attention_by_default(self):
        result = self.evaluate(*TWO, "--examples", 1, "--fac-tokens", 40)
        self.assertEqual([method["method"].split()[0] for method in result["methods"]],
                         ["fasa", "full"])
        self.assertGreater(result["methods"][0]["tasks"][0]["against_full"]["kl"]["mean"], 0)

    def test_several_selections_share_a_prefill(self):
        methods = (("full", 32), ("fasa", 32), ("fasa", 64), ("snapkv", 32), ("snapkv", 64))
        alone = {}
        for kind, budget in methods:
            done = self.assert_done(*TWO, "--examples", 2, "--selection", kind, "--fac-tokens",
                                    budget, "--low-bit-tokens", 0, "--results",
                                    self.folder / "alone", "--json")
            alone[json.loads(done.stdout)["method"]] = json.loads(done.stdout)
        page = self.folder / "all.html"
        result = self.evaluate(*PPL, "--examples", 2, "--selections", "full,fasa,snapkv,fasa",
                               "--budgets", 32, 64, "--html", page)
        self.assertEqual([m["method"] for m in result["methods"]], list(alone))
        for method in result["methods"]:
            self.assertEqual(method["perplexity"], alone[method["method"]]["perplexity"])
            self.assertEqual(method["config"]["selection"],
                             alone[method["method"]]["config"]["selection"])
            self.assertEqual(method["examples"], 2)
        self.assertEqual(len(self.files()), len(methods))
        again = self.evaluate(*TWO, "--examples", 2, "--selection", "full", "--fac-tokens", 50)
        self.assertEqual(again["tasks"][0]["resumed"], 2, "full attention has no budget")
        self.assertEqual(report_of(page), {**result, "report": "eval"})

    def test_predictions_are_compared_with_full_attention(self):
        arguments = (*PPL, "--selections", "fasa,full", "--budgets", 24, 400)
        result = self.evaluate(*arguments, "--examples", 2)
        against = {m["method"].split(",")[0]: m["tasks"][0].get("against_full")
                   for m in result["methods"]}
        self.assertIsNone(against["full"])
        self.assertEqual(against["fasa 400"]["kl"]["mean"], 0)
        self.assertEqual(against["fasa 400"]["same_best"]["mean"], 1)
        self.assertEqual(against["fasa 400"]["perplexity_change"]["mean"], 0)
        few = against["fasa 24"]
        self.assertEqual((few["examples"], few["tokens"]), (2, 100))
        self.assertGreater(few["kl"]["mean"], 0)
        low, high = few["kl"]["range"]
        self.assertLessEqual(low, few["kl"]["mean"])
        self.assertLessEqual(few["kl"]["mean"], high)
        # Stored results of full attention are reused; its logits are computed again for new
        # budgets.
        more = self.evaluate(*PPL, "--selections", "fasa,full", "--budgets", 24, 30, "--examples",
                             3)
        again = {m["method"].split(",")[0]: m["tasks"][0] for m in more["methods"]}
        self.assertEqual(again["fasa 24"]["resumed"], 2)
        self.assertEqual(again["fasa 24"]["against_full"]["examples"], 3)
        self.assertEqual(again["fasa 30"]["against_full"]["examples"], 3)
        page = self.folder / "kl.html"
        done = self.assert_done(*arguments, "--examples", 2, "--results", self.results, "--html",
                                page)
        self.assertIn("against full: KL 0.0000 nats", done.stdout.decode())
        self.assertTrue(any("against_full" in m["tasks"][0] for m in report_of(page)["methods"]))

    def test_ways_to_store_rows_are_compared(self):
        arguments = (*PPL, "--selections", "full,fasa", "--budgets", 24, "--row-dtypes", "bf16",
                     "int8")
        result = self.evaluate(*arguments, "--examples", 2)
        names = [m["method"] for m in result["methods"]]
        self.assertEqual([name.split(", ")[-1] for name in names],
                         ["bf16 rows", "bf16 rows", "int8 rows", "int8 rows"])
        against = {m["method"]: m["tasks"][0].get("against_full") for m in result["methods"]}
        self.assertIsNone(against["full, bf16 rows"])
        self.assertGreater(against["full, int8 rows"]["kl"]["mean"], 0)
        self.assertLess(against["full, int8 rows"]["kl"]["mean"], 0.01)
        again = self.evaluate(*arguments, "--examples", 2)
        self.assertEqual([m["tasks"][0]["resumed"] for m in again["methods"]], [2, 2, 2, 2])
        self.assert_fails(2, ["--row-dtypes", "int8"], *PPL, "--row-dtypes", "int4")

    def test_codes_of_a_budget(self):
        report = self.evaluate(*PPL, "--examples", 1, "--selections", "full,fasa", "--budgets",
                               "24+all", "24+all:int4")
        two, four = (m["tasks"][0]["against_full"]["kl"]["mean"] for m in report["methods"][1:])
        self.assertIn("low-bit int4, 32 FCs int4", report["methods"][2]["method"])
        self.assertLess(four, two / 2)
        for budget in ("24+all:int3", "24+all:bf16", "24:int4:int2", "24+8+8", ":int4"):
            self.assert_fails(2, ["--budgets", "128+all:int4"], *PPL, "--budgets", budget)

    def test_selections_that_cannot_be_compared(self):
        self.assert_fails(2, ["--selections", "quset"], *PPL, "--selections", "fasa,quset")
        self.assert_fails(2, ["--budgets"], *PPL, "--selections", "fasa", "--budgets", 0)
        self.assert_fails(2, ["fac_tokens"], *PPL, "--selections", "fasa", "--budgets", 10)

    def test_a_method_is_named_by_what_sets_it_apart(self):
        self.evaluate(*PPL, "--examples", 1, "--fac-tokens", 40)
        result = self.evaluate(*PPL, "--examples", 1, "--fac-tokens", 40, "--sinks", 2,
                               "--dense-layers", "0,2")
        self.assertEqual(result["method"],
                         "fasa 40 and all others low-bit int2, 32 FCs int2, sinks 2, "
                         "dense_layers [0,2]")
        self.assertEqual(len(self.files()), 2)

    def test_several_lengths_and_the_picture(self):
        page = self.folder / "needle.html"
        result = self.evaluate(*NEEDLE, 900, "--examples", 1, "--html", page, "--selection",
                               "fasa")
        self.assertEqual([t["task"] for t in result["tasks"]], ["needle 600", "needle 900"])
        self.assertEqual(result["questions"], 8)
        facts = report_of(page)["facts"]
        self.assertEqual(facts, result["facts"])
        self.assertEqual({fact["context"] for fact in facts}, {600, 900})
        self.assertEqual(sum(fact["asked"] for fact in facts), 8)
        self.assertAlmostEqual(sum(fact["right"] for fact in facts), 8 * result["accuracy"])

    def test_a_model_without_a_template_is_asked_in_english(self):
        model = self.copy_model()
        (model / "needle.json").unlink()
        self.evaluate("eval", "needle", "--model", model, "--text", RUTH, "--context", 900,
                      "--examples", 1, "--selection", "fasa")
        self.assertIn("secret number", self.records()[0]["questions"][0]["question"])

    def data_folder(self):
        """A small data set in LongBench's format, written for this test."""
        data = self.folder / "data"
        data.mkdir()
        prompts = {"qasper": "Text: {context}\nQuestion: {input}\nAnswer:",
                   "trec": "{context}\n{input}"}
        self.write("data/dataset2prompt.json", json.dumps(prompts))
        self.write("data/dataset2maxlen.json", json.dumps({"qasper": 3, "trec": 2}))
        line = {"context": "In the beginning", "input": "when", "answers": ["the"],
                "all_classes": None}
        self.write("data/qasper.jsonl", json.dumps(line) + "\n{broken\n" + json.dumps(line) + "\n")
        self.write("data/trec.jsonl", json.dumps(line | {"all_classes": ["a", "the"]}) + "\n")
        return data

    def stand_in(self):
        """A Python with the packages, or a stand-in whose metrics all return 50."""
        python = self.write("python", "#!/bin/sh\n[ \"$3\" = --check ] && exit 0\n"
                            "echo noise\necho '{\"scores\": {\"1\": 50, \"3\": 100}}'\n")
        python.chmod(0o755)
        return python

    def test_longbench(self):
        result = self.evaluate("eval", "longbench", "--model", MODEL, "--data", self.data_folder(),
                               "--context", 200, "--metrics-python", self.stand_in(),
                               "--selection", "fasa")
        self.assertEqual([t["task"] for t in result["tasks"]], ["qasper", "trec"])
        self.assertEqual([t["examples"] for t in result["tasks"]], [2, 1])
        self.assertEqual([t["score"] for t in result["tasks"]], [75, 50])
        self.assertEqual(result["score"], 62.5)
        self.assertGreaterEqual(result["interval"][0], 0)
        self.assertLessEqual(result["tasks"][0]["interval"][1], 100)
        self.assertEqual(result["examples"], 3)
        self.assertEqual(result["skipped_lines"], 1)
        self.assertIn("qasper.jsonl:2: invalid JSON", result["notes"][0])
        done = self.assert_done(*PPL, "--examples", 1, "--results", self.results)
        self.assertRegex(done.stdout.decode(), r"method +ppl 400 +qasper +trec")
        self.assertRegex(done.stdout.decode(), r" 75\.0 +50\.0")

    def test_longbench_with_the_real_metrics(self):
        python = SOURCE / "build/metrics-venv/bin/python"
        if not python.exists():
            self.skipTest("tools/env metrics makes what this needs")
        result = self.evaluate("eval", "longbench", "--model", MODEL, "--data", self.data_folder(),
                               "--context", 200, "--metrics-python", python, "--tasks", "qasper",
                               "--selection", "fasa")
        record = self.records()[0]
        self.assertEqual(result["score"], 100 if "the" in record["prediction"].split() else 0)

    def test_code_in_folders_above_is_not_run(self):
        """Nor what lies in the working folder."""
        ran = self.folder / "ran"
        program = self.folder / "home/bin/fasa"
        program.parent.mkdir(parents=True)
        shutil.copy2(FASA, program)
        for place in (self.folder / "tools", self.folder / "share/fasa", self.folder / "home/tools",
                      self.folder / "home/bin"):
            package = place / "fasa_metrics"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("")
            (package / "__main__.py").write_text(f"open({str(ran)!r}, 'w')\n")
        for place in (self.folder, self.folder / "home"):
            python = place / "build/metrics-venv/bin/python"
            python.parent.mkdir(parents=True)
            python.write_text(f"#!/bin/sh\ntouch {ran}\n")
            python.chmod(0o755)
        arguments = ["eval", "longbench", "--model", MODEL, "--data", self.data_folder(),
                     "--context", 200, "--results", self.results]
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertFalse(ran.exists())
        run(*arguments, "--metrics-python", sys.executable, cwd=self.folder / "tools")
        self.assertFalse(ran.exists())
        self.assert_fails(2, ["--tasks", "../qasper"], *arguments, "--tasks", "../qasper")

    def test_math(self):
        data = self.folder / "data"
        data.mkdir()
        self.write("data/aime.jsonl", "".join(json.dumps({"problem": f"{n}+1?", "answer": n + 1})
                                              + "\n" for n in range(3)))
        result = self.evaluate("eval", "math", "--model", MODEL, "--data", data, "--context", 150,
                               "--samples", 2, "--pass-k", 2, "--temperature", 1, "--examples", 2,
                               "--metrics-python", self.stand_in(), "--selection", "fasa")
        self.assertEqual(result["examples"], 2)
        self.assertEqual(len(self.records()[0]["predictions"]), 2)
        self.assertEqual(self.records()[1]["answer"], "2")

    def test_answers_are_compared_with_those_of_full_attention(self):
        """Scores of the separate program as well: its stand-in gives all methods the same."""
        result = self.evaluate("eval", "longbench", "--model", MODEL, "--data", self.data_folder(),
                               "--context", 200, "--metrics-python", self.stand_in(), "--tasks",
                               "qasper", "--fac-tokens", 24)
        self.assertEqual([m["method"].split()[0] for m in result["methods"]], ["fasa", "full"])
        retained = result["methods"][0]["tasks"][0]["against_full"]["retained"]
        self.assertEqual((retained["mean"], retained["full"], retained["asked"]), (1, 1.5, 2))
        low, high = retained["interval"]
        self.assertTrue(low < 1 < high)

    def test_bad_data(self):
        data = self.data_folder()
        base = ("eval", "longbench", "--model", MODEL, "--results", self.results)
        self.assert_fails(2, ["--data"], *base)
        self.assert_fails(3, ["none"], *base, "--data", self.folder / "none")
        self.assert_fails(2, ["qaspr", "nearest: qasper", "repobench-p"], *base, "--data", data,
                          "--tasks", "qaspr")
        self.assert_fails(3, ["lcc", "dataset2prompt.json"], *base, "--data", data, "--tasks",
                          "lcc")
        python = self.write("python", "#!/bin/sh\necho missing: rouge\nexit 1\n")
        python.chmod(0o755)
        self.assert_fails(2, ["missing: rouge", "tools/env metrics"], *base, "--data", data,
                          "--context", 200, "--metrics-python", python)
        self.assertFalse(self.results.exists())
        self.assert_fails(2, ["--pass-k", "3"], "eval", "math", "--model", MODEL, "--data", data,
                          "--pass-k", 3)

    def test_bad_input(self):
        base = ("--model", MODEL, "--results", self.results)
        self.assert_fails(2, ["pppl", "nearest: ppl", "needle"], "eval", "pppl", *base)
        short = self.write("short.txt", "x" * 300)
        self.assert_fails(3, ["short.txt", "300", "401"], *PPL[:4], "--text", short, "--context",
                          400, "--results", self.results)
        self.assert_fails(3, ["short.txt", "--context"], *NEEDLE[:4], "--text", short, "--context",
                          600, "--results", self.results)
        self.assert_fails(3, ["none.txt"], *PPL[:4], "--text", self.folder / "none.txt",
                          "--results", self.results)
        self.assert_fails(2, ["--stride", "400", "399"], *PPL[:-1], 400, "--results", self.results)
        self.assert_fails(2, ["--context", "9000", "8192"], *NEEDLE, 9000, "--results",
                          self.results)
        self.assert_fails(2, ["--examples", "0"], *PPL, "--examples", 0, "--results", self.results)
        self.assert_fails(2, ["--examples", "100000"], *PPL, "--examples", 100000, "--results",
                          self.results)
        self.assert_fails(2, ["--depths", "1.5"], *NEEDLE, "--depths", 1.5, "--results",
                          self.results)
        self.assert_fails(2, ["facts", "25", "24"], *NEEDLE, "--facts", 25, "--results",
                          self.results)
        model = self.copy_model()
        self.replace(model, "needle.json", "{\"fact\": 3}")
        self.assert_fails(3, ["needle.json", "fact"], "eval", "needle", "--model", model,
                          "--results", self.results)
        self.assertEqual(self.files(), [])
        self.assert_fails(2, ["--results", "short.txt"], *PPL, "--results", short)
        self.assert_fails(2, ["/nonexistent"], *PPL, "--html", "/nonexistent/x.html", "--results",
                          self.results)


if __name__ == "__main__":
    main()
