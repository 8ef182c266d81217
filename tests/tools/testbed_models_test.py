"""The small trained models: facts recalled with all tokens, and with a small budget."""
import json

from support import SOURCE, CommandTest, main

RUTH = SOURCE / "models/texts/ruth.txt"


class TestbedModels(CommandTest):
    def needle(self, model, *flags):
        done = self.assert_done("eval", "needle", "--model", SOURCE / "models" / model, "--text",
                                RUTH, "--context", 512, "--examples", 8, "--results",
                                self.folder / "results", "--json", *flags)
        return json.loads(done.stdout)["accuracy"]

    def test_a_small_budget_keeps_what_they_recall(self):
        for model in ("pairs-400k", "partial-400k", "alibi-400k"):
            with self.subTest(model=model):
                whole = self.needle(model, "--selection", "full")
                self.assertGreaterEqual(whole, 0.5)
                small = self.needle(model, "--selection", "fasa", "--fac-tokens", 64)
                self.assertGreaterEqual(small, whole)
                if model.startswith("alibi"):
                    continue  # needs only fasa and full
                # A window of as many tokens contains hardly any of the facts.
                window = self.needle(model, "--selection", "streaming", "--fac-tokens", 64)
                self.assertLess(window, whole / 2)

    def test_calibrate_keeps_distant_attention_in_half_a_slice(self):
        for model in ("pairs-400k", "partial-400k", "alibi-400k"):
            with self.subTest(model=model):
                path = self.folder / f"{model}.json"
                self.assert_done("calibrate", "--model", SOURCE / "models" / model, "-o", path,
                                 "--text", RUTH, "--tokens", 1024, "--queries", 12)
                heads = sum(json.loads(path.read_text())["heads"], [])
                kept = [head["distant_attention_kept"][len(head["chunks"]) // 2] for head in heads]
                self.assertGreaterEqual(sum(kept) / len(kept), 0.8)


if __name__ == "__main__":
    main()
