"""GGUF files against the folder that they were made from: every command that opens a model."""
import json
import os
import pathlib
import shutil
import unittest

import gguf
from serve_test import Server
from support import MODEL, CommandTest, main, run

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")
HAS_SERVE = b" serve " in run("--help").stdout
PROMPT = "And it came to pass in the days when the judges ruled, that"


class GgufCase(CommandTest):
    def setUp(self):
        super().setUp()
        self.file = self.write("needle.gguf", gguf.of_folder(MODEL, {
            "tokenizer.chat_template": (gguf.TEXT, TEMPLATE)}))
        self.model = self.copy_model()
        (self.model / "chat_template.jinja").write_text(TEMPLATE)

    def from_both(self, command, *arguments, model_flag="--model", **options):
        """Standard output of a command on the file, after checking that the folder gives the
        same."""
        results = [self.assert_done(*command, model_flag, model, *arguments, **options).stdout
                   for model in (self.file, self.model)]
        self.assertEqual(*results)
        self.assertNotEqual(results[0], b"")
        return results[0].decode()


class Commands(GgufCase):
    def test_generate(self):
        self.from_both(["generate"], "--prompt", PROMPT, "--max-tokens", 12)
        self.from_both(["generate"], "--prompt", PROMPT, "--chat", "--max-tokens", 12)

    def test_chat(self):
        self.from_both(["chat"], "--max-tokens", 8, "--system", "S", input=b"first?\nsecond?\n")

    def test_texts(self):
        context = self.write("context.json", json.dumps(
            {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": True}))
        self.assertEqual(self.from_both(["template"], "--context", context),
                         "[user] x\n[assistant] ")
        self.from_both(["tokenize"], "--prompt", PROMPT)

    def test_eval_names_weights_that_are_rounded(self):
        def table(*flags):
            return self.assert_done("eval", "ppl", "--model", self.file, "--selection", "fasa",
                                    "--context", 256, "--examples", 1, "--one-pass", "--results",
                                    self.folder / "results", *flags).stdout.decode()
        plain = table()
        rounded = table("--weights", "int4", "--weight-group", 32)
        self.assertNotIn("int4", plain)
        self.assertIn("int4/32", rounded)
        files = list((self.folder / "results").glob("*.jsonl"))
        self.assertEqual(len(files), 2, files)  # neither resumed the other's

    def test_the_map_lies_beside_the_file(self):
        shutil.copy(MODEL / "fc_map.json", self.folder / "needle.fc_map.json")
        self.from_both(["generate"], "--prompt", PROMPT, "--max-tokens", 8, "--slice", "lean",
                       "--fac-tokens", 32)

    @unittest.skipUnless(HAS_SERVE, "this build has no fasa serve")
    def test_serve(self):
        server = Server(self, model=self.file)
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "first?"}], "max_tokens": 8,
            "temperature": 0})
        self.assertEqual(status, 200, body)
        generated = self.assert_done("generate", "--model", self.model, "--chat", "--prompt",
                                     "first?", "--max-tokens", 8, "--fac-tokens", 32).stdout
        self.assertEqual(json.loads(body)["choices"][0]["message"]["content"], generated.decode())
        self.assertEqual(json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"],
                         "needle")

    def test_info(self):
        done = self.assert_done("info", "--model", self.file, "--json")
        self.assertEqual(json.loads(done.stdout)["model"]["layers"], 4)


class Metadata(GgufCase):
    def made(self, more):
        return self.write("other.gguf", gguf.of_folder(MODEL, more))

    def sampling(self, more):
        done = self.assert_done("generate", "--model", self.made(more), "--prompt", PROMPT,
                                "--max-tokens", 1, "--json")
        return json.loads(done.stdout)["sampling"]

    def test_how_a_model_is_sampled(self):
        self.assertEqual(self.sampling({})["temperature"], 0)
        found = self.sampling({"general.sampling.temp": (gguf.F32, 0.5),
                               "general.sampling.top_k": (gguf.I32, 7),
                               "general.sampling.penalty_repeat": (gguf.F32, 1.25)})
        self.assertEqual((found["temperature"], found["top_k"], found["repetition_penalty"]),
                         (0.5, 7, 1.25))
        self.assertEqual(self.sampling({"general.sampling.temp": (gguf.F32, 0),
                                        "general.sampling.top_k": (gguf.I32, -1)})["top_k"], 0)
        self.assertEqual(self.sampling({"general.sampling.top_p": (gguf.F32, 0.5)})["temperature"],
                         1)
        odd = self.sampling({"general.sampling.top_p": (gguf.F32, 7),
                             "general.sampling.min_p": (gguf.F32, float("nan")),
                             "general.sampling.top_k": (gguf.F32, 40),
                             "general.sampling.penalty_repeat": (gguf.F32, 0),
                             "general.sampling.temp": (gguf.TEXT, "0.5")})
        self.assertEqual((odd["top_p"], odd["min_p"], odd["top_k"], odd["repetition_penalty"],
                          odd["temperature"]), (1, 0, 40, 1, 0.5))

    def test_how_text_is_cut(self):
        """The merges allowed by the named pre-tokenizer: no merge crosses its borders."""
        pairs = [("1", "2"), ("12", "3"), ("123", "4"), ("o", "W"), ("t", "'"), ("R", "e"),
                 ("e", "!")]
        pieces = gguf.llama_metadata(MODEL, json.loads((MODEL / "config.json").read_text()))[
            "tokenizer.ggml.tokens"][1] + [a + b for a, b in pairs]
        for name, merged in (("gpt-2", {"1234", "oW", "Re"}), ("llama-bpe", {"123", "oW", "Re"}),
                             ("qwen2", {"oW", "Re"}), ("tekken", {"Re"}),
                             ("gpt-4o", {"123", "t'", "Re"})):
            file = self.made({"tokenizer.ggml.pre": (gguf.TEXT, name),
                              "tokenizer.ggml.tokens": (gguf.TEXT, pieces),
                              "tokenizer.ggml.token_type": (gguf.I32, [1] * len(pieces)),
                              "tokenizer.ggml.merges": (gguf.TEXT, [f"{a} {b}" for a, b in pairs])})
            done = self.assert_done("tokenize", "--model", file, "--prompt", "it's1234helloWoRe!",
                                    "--json")
            found = {pieces[number] for number in json.loads(done.stdout)["ids"]}
            self.assertEqual({piece for piece in found if len(piece) > 1}, merged, name)

    def test_templates_with_names(self):
        file = self.made({"tokenizer.chat_template": (gguf.TEXT, "usual"),
                          "tokenizer.chat_templates": (gguf.TEXT, ["other"]),
                          "tokenizer.chat_template.other": (gguf.TEXT, "named")})
        context = self.write("context.json", '{"messages": []}')
        command = ["template", "--model", file, "--context", context]
        self.assertEqual(self.assert_done(*command).stdout, b"usual")
        self.assertEqual(self.assert_done(*command, "--template", "other").stdout, b"named")

    def test_what_is_missing_is_said(self):
        no_template = self.made({})
        self.assert_fails(3, ["other.gguf", "no chat template"], "chat", "--model", no_template)
        no_tokens = self.made({"tokenizer.ggml.model": None})
        self.assert_fails(3, ["other.gguf", "no tokenizer"], "tokenize", "--model", no_tokens,
                          "--prompt", "x")
        self.assert_fails(2, ["no tokenizer", "--prompt-ids"], "generate", "--model", no_tokens,
                          "--prompt", "x")


class Types(GgufCase):
    def made(self, kind, name):
        """The model with one tensor of another type."""
        config = json.loads((MODEL / "config.json").read_text())
        tensors = gguf.llama_tensors(MODEL, config)
        tensors[name] = (tensors[name][0], kind, bytes(96))
        return self.write("other.gguf", gguf.gguf(gguf.llama_metadata(MODEL, config), tensors))

    def test_one_that_is_not_read_is_named_with_those_that_are(self):
        name = "blk.0.attn_q.weight"
        for kind, text in ((16, "IQ2_XXS"), (34, "TQ1_0"), (40, "NVFP4"), (15, "Q8_K"), (26, "I32"),
                           (137, "IQ2_K (of ik_llama.cpp)"), (999, "999 (of another engine)")):
            file = self.made(kind, name)
            self.assert_fails(3, ["other.gguf", name, f"type {text},", "Q4_K, IQ4_NL"],
                              "generate", "--model", file, "--prompt", "x", "--max-tokens", 1)
        self.assert_done("tokenize", "--model", file, "--prompt", "x")
        self.assert_done("info", "--model", file)


class Flags(GgufCase):
    def test_weights_are_rounded(self):
        ids = self.write("ids.json", json.dumps(list(range(40, 90))))
        def found(*flags):
            done = self.assert_done("generate", "--model", MODEL, "--prompt-ids", ids,
                                    "--max-tokens", 2, "--json", "--device", "emulated", *flags)
            return json.loads(done.stdout)
        plain = found("--dtype", "bf16")
        packed = found("--dtype", "bf16", "--weights", "int4", "--weight-group", 32)
        int8 = found("--dtype", "bf16", "--weights", "int8")
        self.assertEqual(packed["config"]["weights"], {"format": "int4", "group": 32,
                                                       "lm_head": "auto", "activations": "model",
                                                       "experts": "device"})
        memory = [run_["memory"]["weight_bytes"] for run_ in (plain, int8, packed)]
        self.assertGreater(0.6 * memory[0], memory[1])
        self.assertGreater(0.6 * memory[1], memory[2])

    def test_a_config_file_says_it_too(self):
        config = self.write("c.toml", '[weights]\nformat = "int8"\nlm_head = "as-is"\n')
        done = self.assert_done("config", "--config", config)
        self.assertEqual(json.loads(done.stdout)["weights"]["lm_head"], "as-is")

    def test_other_values_are_refused(self):
        for flag, value, allowed in (("--weights", "int3", "as-is, int8, int4"),
                                     ("--weight-group", "48", "32, 64, 128"),
                                     ("--lm-head", "int4", "auto, as-is, int8"),
                                     ("--activations", "int4", "model, int8")):
            self.assert_fails(2, [flag, value, allowed], "chat", "--model", MODEL, flag, value)


def real_file():
    """SmolLM2-135M-Instruct in Q4_1, as left by `fasa demo`."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "fasa/SmolLM2-135M-Instruct.Q4_1.gguf"


@unittest.skipUnless(real_file().exists(), "no SmolLM2: `fasa demo` fetches it")
class RealModel(CommandTest):
    QUESTION = "What is the capital of France?"

    def test_chat(self):
        done = self.assert_done("chat", "--model", real_file(), "--max-tokens", 24,
                                "--temperature", 0, input=self.QUESTION.encode() + b"\n")
        self.assertIn("Paris", done.stdout.decode())

    @unittest.skipUnless(HAS_SERVE, "this build has no fasa serve")
    def test_serve(self):
        server = Server(self, "--max-context", 1024, model=real_file())
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": self.QUESTION}], "max_tokens": 24,
            "temperature": 0})
        self.assertEqual(status, 200, body)
        self.assertIn("Paris", json.loads(body)["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
