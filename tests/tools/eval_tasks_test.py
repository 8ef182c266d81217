"""Each task of fasa eval that asks questions, once, at about a thousand tokens."""
import json

from support import MODEL, SOURCE, CommandTest, main

RUTH = SOURCE / "models/texts/ruth.txt"


class EvalTasks(CommandTest):
    def setUp(self):
        super().setUp()
        self.results = self.folder / "results"

    def evaluate(self, *arguments):
        done = self.assert_done(*arguments, "--results", self.results, "--json")
        return json.loads(done.stdout)

    def ruler_folder(self):
        """A sample in the form of RULER's files, in the words that the bundled model knows."""
        data = self.folder / "ruler"
        (data / "niah_single_1").mkdir(parents=True)
        text = RUTH.read_text()[:700]
        line = {"input": text[:300] + "\n[\u03b148213]\n" + text[300:] + "\n?\u03b1",
                "outputs": ["48213"], "answer_prefix": "", "length": 900}
        self.write("ruler/niah_single_1/validation.jsonl", json.dumps(line) + "\n")
        return data

    def longbench2_folder(self):
        data = self.folder / "longbench2"
        data.mkdir()
        self.write("longbench2/0shot.txt", "$DOC$\n$Q$ (A) $C_A$ (B) $C_B$ (C) $C_C$ (D) $C_D$\n")
        line = {"context": RUTH.read_text()[:2000], "question": "Who?", "answer": "B",
                **{f"choice_{letter}": letter for letter in "ABCD"}}
        self.write("longbench2/data.json", json.dumps([line]))
        return data

    def test_every_task_at_a_thousand_tokens(self):
        """Full attention and fasa, in one run; resumed, nothing is left to do."""
        counts = {"turns": 5, "retrieval": 11, "extract": 1, "ruler": 1, "longbench2": 1}
        more = {"extract": ["--records", 3], "ruler": ["--data", self.ruler_folder()],
                "longbench2": ["--data", self.longbench2_folder()]}
        for task, questions in counts.items():
            with self.subTest(task=task):
                arguments = ["eval", task, "--model", MODEL, "--context", 1024, "--selections",
                             "full,fasa", "--budgets", "64+all", *more.get(task, [])]
                if task in ("turns", "retrieval", "extract"):
                    arguments += ["--text", RUTH, "--examples", 1]
                full, fasa = self.evaluate(*arguments)["methods"]
                self.assertEqual((full["questions"], fasa["questions"]), (questions, questions))
                for one in fasa["tasks"]:
                    self.assertGreater(one["against_full"]["tokens"], 4)
                    self.assertLess(one["against_full"]["kl"]["mean"], 0.2)
                again = self.evaluate(*arguments)["methods"]
                self.assertTrue(all(one["resumed"] == 1 for m in again for one in m["tasks"]))
                if task == "retrieval":
                    self.assertEqual(fasa["against_full"]["examples"], 11)
                if task in ("turns", "ruler"):
                    self.assertGreater(full["accuracy"], 0.7)
                    self.assertGreater(fasa["tasks"][0]["against_full"]["retained"]["mean"], 0.5)
                if task == "turns":
                    self.assertEqual([turn["asked"] for turn in fasa["turns"]], [1] * 5)

    def test_questions_can_be_prefilled(self):
        flags = ["--model", MODEL, "--text", RUTH, "--context", 1024, "--examples", 1,
                 "--selection", "fasa", "--fac-tokens", 64]
        done = self.assert_done("eval", "needle", *flags, "--question", "prefill", "--results",
                                self.results)
        table = done.stdout.decode().split("Results in ")
        self.assertIn("needle 1024, question prefilled: accuracy", table[0])
        self.assertIn("needle 1024, question prefilled", table[1])
        self.assert_fails(2, ["one-in-nose", "nearest: one-in-noise"], "eval", "retrieval", *flags,
                          "--tasks", "one-in-nose")
        self.assert_fails(2, ["--records", "0", "512"], "eval", "extract", *flags, "--records", 0)
        self.assert_fails(2, ["--context = 300", "allowed"], "eval", "extract", *flags[:4],
                          "--context", 300)


if __name__ == "__main__":
    main()
