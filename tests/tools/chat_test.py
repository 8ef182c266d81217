"""fasa chat and fasa template through pipes; generate's chat and sampling flags."""
import json
import os
import pty
import signal
import subprocess
import time

from support import FASA, SOURCE, CommandTest, main, run

TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant] {% endif %}")


class ChatCase(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = self.copy_model()
        (self.model / "chat_template.jinja").write_text(TEMPLATE)

    def chat(self, lines, *arguments, code=0):
        done = run("chat", "--model", self.model, "--max-tokens", 8, *arguments,
                   input="".join(line + "\n" for line in lines).encode())
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()


class Chat(ChatCase):
    def test_a_conversation_and_its_commands(self):
        saved = self.folder / "saved.json"
        out, err = self.chat(["first?", "second?", "/fork", "third?", "/undo", "/stats",
                              f"/save {saved}", "/fork 1", "/nothing", "/help", "/quit", "never"],
                             "--system", "S")
        self.assertIn("(branch 2 of 2; /fork 1 returns to the previous one)", err)
        self.assertIn("(branch 1 of 2)", err)
        self.assertIn("/nothing is not a command", err)
        self.assertIn("KV bytes on the host", out)
        self.assertIn("/save FILE", out)
        self.assertNotIn("never", out + err)
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual([message["role"] for message in messages],
                         ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(messages[3]["content"], "second?")
        # fasa template reads the saved conversation, and a single question gives the same answer.
        prompt = self.assert_done("template", "--model", self.model, "--context", saved).stdout
        self.assertTrue(prompt.startswith(b"[system] S\n[user] first?\n[assistant] "))
        alone, _ = self.chat(["first?"], "--system", "S")
        self.assertEqual(alone, messages[2]["content"] + "\n")
        generated = self.assert_done("generate", "--model", self.model, "--chat", "--system", "S",
                                     "--prompt", "first?", "--max-tokens", 8).stdout.decode()
        self.assertEqual(generated, messages[2]["content"])

    def test_a_turn_prefills_what_is_new(self):
        lines = [line for _ in range(3) for line in ("What is it?", "/stats")]
        out, _ = self.chat(lines)
        counts = [line for line in out.splitlines() if line.startswith("last prompt")]
        prompts = [int(line.split()[2]) for line in counts]
        new = [int(line.split()[4]) for line in counts]
        self.assertEqual(new[0], prompts[0])
        # A byte is a token: the answer's last token, which is not in the cache, and the frame.
        frame = len("\n[user] What is it?\n[assistant] ") + 1
        self.assertEqual(new[1:], [frame, frame])

    def test_files_and_questions_with_a_slash(self):
        text = self.write("text.txt", "A long text.")
        saved = self.folder / "saved.json"
        self.chat([f"/read {text}", "Who?", "//slash", f"/save {saved}"])
        messages = json.loads(saved.read_text())["messages"]
        self.assertEqual(messages[0]["content"], "A long text.\n\nWho?")
        self.assertEqual(messages[2]["content"], "/slash")

    def test_a_bad_line_ends_nothing(self):
        out, err = self.chat(["/undo", "/fork x", "/save", "/read /does/not/exist", "x" * 9000,
                              "fine"])
        self.assertEqual(err.count("fasa: error:"), 5, err)
        self.assertTrue(out.strip())

    def test_an_interrupt_stops_the_answer_alone(self):
        process = subprocess.Popen([FASA, "chat", "--model", self.model, "--max-tokens", "6000",
                                    "--logit-bias", "0:-inf"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdin.write(b"first\n")
        process.stdin.flush()
        self.assertTrue(os.read(process.stdout.fileno(), 1))  # the answer has begun
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"/stats\n", timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(b"(stopped)", err)
        self.assertIn(b"tokens in the cache", out)

    def test_longrope_takes_what_the_context_needs(self):
        """A short set that changes nothing, and a long one that changes the answer."""
        config = json.loads((self.model / "config.json").read_text())
        pairs = config["head_dim"] // 2
        self.replace(self.model, "config.json", json.dumps({
            **config, "original_max_position_embeddings": 256,
            "rope_scaling": {"type": "longrope", "attention_factor": 1.0,
                             "short_factor": [1.0] * pairs, "long_factor": [16.0] * pairs}}))
        plain = self.copy_model("plain")
        question = ["A question that says more than a word or two, at least?"]
        (plain / "chat_template.jinja").write_text(TEMPLATE)
        expected = run("chat", "--model", plain, "--max-tokens", 8,
                       input=(question[0] + "\n").encode()).stdout.decode()
        short, err = self.chat(question, "--max-context", 256)
        self.assertIn("longrope: the short factors", err)
        self.assertEqual(short, expected)
        other, err = self.chat(question)
        self.assertIn("longrope: the long factors; --max-context of at most 256", err)
        self.assertNotEqual(other, expected)
        for tokens, which in (8, "short"), (300, "long"):
            done = self.assert_done("generate", "--model", self.model, "--prompt", "a",
                                    "--max-tokens", tokens)
            self.assertIn(f"longrope: the {which} factors".encode(), done.stderr)
        done = self.assert_done("eval", "ppl", "--model", self.model, "--text",
                                SOURCE / "models/texts/ruth.txt", "--context", 128, "--results",
                                self.folder / "results", "--examples", 1)
        self.assertIn(b"longrope: the short factors", done.stderr)

    def test_a_context_ends_where_it_is_said_to(self):
        _, err = self.chat(["x" * 60, "y" * 60], "--max-context", 64)
        self.assertIn("its context ends after 64", err)
        self.chat([], "--max-context", 1, code=2)

    def test_an_interrupt_while_the_prompt_is_read_is_answered_at_once(self):
        text = self.write("long.txt", "And Ruth said, " * 500)
        terminal, its = pty.openpty()
        self.addCleanup(os.close, terminal)
        process = subprocess.Popen([FASA, "chat", "--model", self.model, "--prefill-chunk", "16"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=its)
        os.close(its)
        process.stdin.write(f"/read {text}\nWho?\n".encode())
        process.stdin.flush()
        seen = b""
        while b"reading the prompt [" not in seen:
            seen += os.read(terminal, 1 << 16)
        self.assertIn(b"reading the prompt: the first step", seen)
        process.send_signal(signal.SIGINT)
        while b"(stopped before the answer began)" not in seen:
            seen += os.read(terminal, 1 << 16)
        self.assertIn(b"(stopping after this step)", seen)
        process.communicate(b"/quit\n", timeout=120)
        self.assertEqual(process.returncode, 0)

    def test_the_usual_limits_of_sampling(self):
        def drawn(*arguments):
            chat = (*arguments, "--seed", 1, "--temperature", 1.5)
            return self.chat(["What is it?", "And then?"], *chat)[0]
        usual = drawn()
        self.assertEqual(drawn("--top-p", 0.95, "--min-p", 0.05), usual)
        self.assertNotEqual(drawn("--top-p", 1, "--min-p", 0), usual)
        self.replace(self.model, "generation_config.json", json.dumps(
            {"do_sample": True, "temperature": 1.5, "top_k": 200}))
        self.assertEqual(drawn(), drawn("--top-p", 1, "--min-p", 0))  # the file states a limit

    def test_what_it_needs(self):
        (self.model / "chat_template.jinja").unlink()
        self.assert_fails(3, ["no chat template was found", "fasa generate"], "chat", "--model",
                          self.model)
        self.assert_fails(3, ["OWNER/NAME", "no such folder", "downloads no models"], "chat",
                          "--model", "OWNER/NAME")
        (self.model / "tokenizer.json").unlink()
        self.assert_fails(3, ["tokenizer.json"], "chat", "--model", self.model)


class Template(ChatCase):
    def test_what_is_printed(self):
        context = self.write("c.json", json.dumps({
            "messages": [{"role": "user", "content": "<|x|> ä"}], "add_generation_prompt": True}))
        arguments = ["template", "--model", self.model, "--context", context]
        self.assertEqual(self.assert_done(*arguments).stdout.decode(),
                         "[user] <|x|> ä\n[assistant] ")
        parts = json.loads(self.assert_done(*arguments, "--json").stdout)["parts"]
        self.assertEqual(parts, [{"from": "template", "text": "[user] "},
                                 {"from": "user", "text": "<|x|> ä"},
                                 {"from": "template", "text": "\n[assistant] "}])

    def test_the_clock(self):
        self.replace(self.model, "chat_template.jinja", "{{ strftime_now('%Y-%m-%d %H:%M') }}")
        context = self.write("c.json", "{}")
        arguments = ["template", "--model", self.model, "--context", context]

        def shown(*more, **options):
            return self.assert_done(*arguments, *more, **options).stdout
        self.assertEqual(shown("--now", "2026-11-22"), b"2026-11-22 00:00")
        self.assertEqual(shown("--now", "2026-11-22T18:30"), b"2026-11-22 18:30")
        self.assertEqual(shown(environment={"SOURCE_DATE_EPOCH": "86400"}), b"1970-01-02 00:00")
        self.assertEqual(shown()[:4].decode(), time.strftime("%Y"))
        self.assert_fails(2, ["--now"], *arguments, "--now", "tomorrow")
        self.assert_fails(2, ["SOURCE_DATE_EPOCH"], *arguments,
                          environment={"SOURCE_DATE_EPOCH": "x"})

    def test_errors_say_where(self):
        context = self.write("c.json", "{}")
        self.replace(self.model, "chat_template.jinja", "\n {{ raise_exception('no roles') }}")
        self.assert_fails(3, ["chat_template.jinja:2:20: no roles"], "template", "--model",
                          self.model, "--context", context)
        self.assert_fails(3, ["invalid JSON"], "template", "--model", self.model, "--context",
                          self.write("bad.json", "{"))
        self.assert_fails(3, ["none.json: the file cannot be read"], "template", "--model",
                          self.model, "--context", self.folder / "none.json")


class Sampling(ChatCase):
    def generate(self, *arguments):
        done = self.assert_done("generate", "--model", self.model, "--json", "--prompt",
                                "In the beginning", "--max-tokens", 24, *arguments)
        return json.loads(done.stdout)

    def test_a_seed_makes_a_run_repeatable(self):
        sampled = ["--temperature", 1.5, "--min-p", 0.02, "--seed", 7]
        self.assertEqual(self.generate(*sampled)["tokens"], self.generate(*sampled)["tokens"])
        self.assertNotEqual(self.generate(*sampled)["tokens"],
                            self.generate(*sampled[:-1], 8)["tokens"])

    def test_the_file_is_the_default_and_flags_win(self):
        self.replace(self.model, "generation_config.json", json.dumps(
            {"eos_token_id": [0, 257], "do_sample": True, "temperature": 0.5, "top_k": 5}))
        sampling = self.generate()["sampling"]
        self.assertEqual((sampling["temperature"], sampling["top_k"]), (0.5, 5))
        sampling = self.generate("--temperature", 0)["sampling"]
        self.assertEqual((sampling["temperature"], sampling["top_k"]), (0, 5))

    def test_where_an_answer_ends(self):
        text = self.generate()["text"]
        stop = text[5:8]
        stopped = self.generate("--stop", stop, "--stop", "not there")
        self.assertEqual(stopped["end"], "stop_string")
        self.assertEqual(stopped["text"], text[:text.index(stop)])
        streamed = self.assert_done("generate", "--model", self.model, "--prompt",
                                    "In the beginning", "--max-tokens", 24, "--stop", stop).stdout
        self.assertEqual(streamed.decode(), stopped["text"])
        self.assertEqual(self.generate()["end"], "max_tokens")

    def test_bias_and_logprobs(self):
        plain = self.generate("--logprobs", 2)
        first = plain["logprobs"][0]
        self.assertEqual(len(plain["logprobs"]), len(plain["tokens"]))
        self.assertEqual(first["id"], plain["tokens"][0])
        self.assertEqual(first["top"][0], {"id": first["id"], "logprob": first["logprob"]})
        self.assertLess(first["logprob"], 0)
        biased = self.generate("--logit-bias", f"{first['id']}:-inf", "--logit-bias", "300:1")
        self.assertEqual(biased["tokens"][0], first["top"][1]["id"])

    def test_impossible_flags(self):
        for flags in (["--min-p", 2], ["--logit-bias", "x"], ["--logprobs", -1], ["--stop", ""],
                      ["--system", "x"], ["--repetition-penalty", 0]):
            self.assert_fails(2, [flags[0].strip("-").split("-")[0]], "generate", "--model",
                              self.model, "--prompt", "x", *flags)


if __name__ == "__main__":
    main()
