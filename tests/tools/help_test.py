"""Help, manual pages and tables, as a terminal of 80 columns shows them."""
import json
import re
import subprocess

from support import FASA, MODEL, CommandTest, facts, main

COLUMNS = 80


def commands():
    text = subprocess.run([FASA, "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    listed = text.split("Commands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+)", listed, re.MULTILINE)


class Narrow(CommandTest):
    def text(self, *arguments):
        done = self.assert_done(*arguments, environment={"COLUMNS": str(COLUMNS)})
        return done.stdout.decode()

    def assert_narrow(self, text, what):
        wide = [line for line in text.splitlines() if len(line) > COLUMNS]
        self.assertEqual(wide, [], what)

    def test_every_commands_help(self):
        self.assertGreaterEqual(len(commands()), 14)
        for command in commands():
            with self.subTest(command=command):
                text = self.text(command, "--help")
                self.assert_narrow(text, command)
                self.assertEqual(text, self.text("help", command))
                whole = self.text(command, "--help-all")
                self.assert_narrow(whole, command)
                self.assertNotRegex(whole, r"INT in|FLOAT in|:\w+ in \[")

    def test_examples_have_flags_that_exist(self):
        for command in commands():
            text = self.text(command, "--help-all")
            if "Examples:\n" not in text:
                continue
            options, examples = text.split("Examples:\n")
            for flag in re.findall(r"(?<=\s)--?[a-z][a-z-]*", examples):
                self.assertIn(flag, options, command)

    def test_config_flags_are_apart(self):
        brief = self.text("generate", "--help")
        self.assertIn("--max-tokens", brief)
        self.assertNotIn("--slice-dtype", brief)
        self.assertIn("--help-all", brief)
        self.assertIn('(default: "auto")', self.text("generate", "--help-all"))

    def test_tables(self):
        prompt = self.write("prompt.txt", facts("1k")["text"])
        for arguments in (
                ("plan", "--geometry", "Llama-3.1-8B", "--gpu", "RTX 4060 Ti 16GB",
                 "--weight-bits", 4),
                ("plan", "--list"), ("info",), ("info", "--model", MODEL),
                ("profile", "--geometry", "Llama-3.2-1B", "--tokens", 4096, "--steps", 2,
                 "--warmup", 2),
                ("tune", "--geometry", "Llama-3.2-1B", "--tokens", 4096, "--steps", 2, "--trials",
                 3, "-o", self.folder / "tuned.toml"),
                ("generate", "--model", MODEL, "--prompt-file", prompt, "--max-tokens", 4,
                 "--device", "emulated", "--stats"),
                ("eval", "ppl", "--model", MODEL, "--context", 512, "--stride", 16, "--examples",
                 1, "--results", self.folder / "results")):
            with self.subTest(arguments=arguments):
                self.assert_narrow(self.text(*arguments), arguments)


class Pages(CommandTest):
    def test_every_command_has_a_manual_page(self):
        self.assert_done("pages", self.folder)
        pages = {path.name for path in (self.folder / "man1").iterdir()}
        self.assertEqual(pages, {"fasa.1"} | {f"fasa-{name}.1" for name in commands()})
        text = (self.folder / "man1/fasa-serve.1").read_text()
        self.assertIn(r"\-\-max\-sequences", text)
        self.assertTrue(text.startswith(".TH FASA\\-SERVE 1"))

    def test_completions(self):
        self.assert_done("pages", self.folder)
        bash = self.folder / "completions/fasa.bash"
        script = (f". {bash}; COMP_WORDS=(fasa pl); COMP_CWORD=1; _fasa; echo ${{COMPREPLY[@]}}; "
                  "COMP_WORDS=(fasa serve --max-s); COMP_CWORD=2; _fasa; echo ${COMPREPLY[@]}")
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.decode().split("\n")[:2],
                         ["plan", "--max-sequences --max-step-ms"])

    def test_the_version_names_commit_and_kernels(self):
        text = self.assert_done("--version").stdout.decode()
        self.assertRegex(text, r"^fasa \d+\.\d+\.\d+ \(commit \w+, kernels for \w+, ")
        version = json.loads(self.assert_done("info", "--json").stdout)["version"]
        self.assertTrue(text.startswith(f"fasa {version} "))


if __name__ == "__main__":
    main()
