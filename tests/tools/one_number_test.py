"""plan, profile and tune give one time for one question, to one percent."""
import json

from support import CommandTest, main

QUESTION = ("--geometry", "Llama-3.1-8B", "--tokens", "128k")


class OneNumber(CommandTest):
    def answers(self, *machine):
        def ask(command, *flags):
            return json.loads(self.assert_done(command, *QUESTION, *machine, *flags,
                                               "--json").stdout)
        option = next(o for o in ask("plan")["options"] if o["preset"] == "fasa-m"
                      and o["configured"])
        planned = 1e3 / option["tokens_per_second"]
        profile = ask("profile", "--steps", 16, "--no-advice")
        tuned = ask("tune", "--trials", 1)["best"]
        self.assertFalse(profile["warmup_rises"])
        self.assertAlmostEqual(tuned["tpot_ms"], profile["tpot_ms"], places=6)
        self.assertLess(abs(planned / tuned["tpot_ms"] - 1), 0.01, (machine, planned, tuned))

    def test_a_common_card(self):
        self.answers("--gpu", "RTX 4060 Ti 16GB")

    def test_a_fast_card(self):
        self.answers("--gpu", "H100 PCIe")


if __name__ == "__main__":
    main()
