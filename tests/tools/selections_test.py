"""Baselines and variants end to end: their answers on the cpu, and their errors on other
devices."""
from support import MODEL, CommandTest, facts, main

BASELINES = ("oracle", "streaming", "snapkv", "h2o", "rkv", "quest", "sparq")


class Selections(CommandTest):
    def ask(self, *flags, tokens=6):
        text = facts("1k")
        self.question = text["questions"][0]
        prompt = self.write("prompt.txt", text["text"] + self.question["prompt_suffix"])
        return self.generate_json("--prompt-file", prompt, "--max-tokens", tokens, "--device",
                                  "cpu", *flags)

    def test_everything_selected_is_full(self):
        full = self.ask("--selection", "full")
        for name in BASELINES:
            with self.subTest(selection=name):
                result = self.ask("--selection", name, "--fac-tokens", 4096)
                self.assertEqual(result["text"], full["text"])
                self.assertEqual(result["config"]["selection"]["kind"], name)

    def test_what_sees_the_query_answers(self):
        for flags in (("--selection", "oracle"), ("--selection", "sparq")):
            with self.subTest(flags=flags):
                result = self.ask("--fac-tokens", 128, *flags)
                self.assertEqual(result["text"], self.question["answer"] + ".")

    def test_a_window_does_not(self):
        result = self.ask("--selection", "streaming", "--fac-tokens", 64)
        self.assertNotEqual(result["text"], self.question["answer"] + ".")

    def test_elsewhere_than_on_the_cpu(self):
        self.assert_fails(2, ["--selection", "cpu device"], "generate", "--model", MODEL,
                          "--prompt", "x", "--device", "emulated", "--selection", "quest")

    def test_bad_values(self):
        self.assert_fails(2, ["--selection", "rkv, quest"], "generate", "--model", MODEL,
                          "--prompt", "x", "--selection", "best")


if __name__ == "__main__":
    main()
