"""End to end: the bundled model's answer is the same over devices and settings; fields of the
JSON."""
import json
import re
import subprocess

from support import FASA, MODEL, SOURCE, CommandTest, facts, main


class Answers(CommandTest):
    def ask(self, name, question, *flags, tokens=6):
        text = facts(name)
        prompt = self.write("prompt.txt", text["text"] + question["prompt_suffix"])
        return self.generate_json("--prompt-file", prompt, "--max-tokens", tokens, *flags)

    def check_answers(self, *flags):
        questions = facts("1k")["questions"]
        self.assertEqual(len(questions), 4)
        for question in questions:
            result = self.ask("1k", question, *flags)
            self.assertEqual(result["text"], question["answer"] + ".")

    def test_full(self):
        self.check_answers("--preset", "full")

    def test_fasa_m_on_the_emulated_device(self):
        self.check_answers("--preset", "fasa-m", "--fac-tokens", 128, "--device", "emulated")

    def test_the_text_is_the_same_wherever_it_runs(self):
        question = facts("1k")["questions"][1]
        expected = self.ask("1k", question, "--fac-tokens", 64, tokens=24)
        for flags in (("--device", "cpu", "--threads", 1),
                      ("--device", "emulated", "--hot-rows", 0),
                      ("--device", "emulated", "--hot-rows", 40),
                      ("--device", "emulated", "--hot-rows", 4096),
                      ("--device", "emulated", "--streams", 1),
                      ("--device", "emulated", "--streams", 4),
                      ("--device", "emulated", "--depth", 0),
                      ("--device", "emulated", "--depth", 1),
                      ("--device", "emulated", "--depth", 2, "--hot-rows", 100),
                      ("--device", "emulated", "--predictor", "none"),
                      ("--device", "emulated", "--predictor", "runners-up", "--depth", 1),
                      ("--device", "emulated", "--preset", "fasa-c"),
                      ("--device", "emulated", "--prefill-chunk", 100),
                      ("--device", "emulated", "--bandwidth", "1GB/s", "--latency", "50us")):
            with self.subTest(flags=flags):
                result = self.ask("1k", question, "--fac-tokens", 64, *flags, tokens=24)
                self.assertEqual(result["tokens"], expected["tokens"])

    def test_all_tokens_selected_is_full(self):
        question = facts("1k")["questions"][0]
        full = self.ask("1k", question, "--preset", "full")
        for tokens in ("1.0", "100000"):
            self.assertEqual(self.ask("1k", question, "--fac-tokens", tokens)["tokens"],
                             full["tokens"])

    def test_a_missing_map_is_made_from_the_prompt(self):
        folder = self.copy_model()
        (folder / "fc_map.json").unlink(missing_ok=True)
        prompt = self.write("prompt.txt", facts("1k")["text"])
        done = self.assert_done("generate", "--model", folder, "--prompt-file", prompt, "--slice",
                                "lean", "--max-tokens", 2, "--json")
        self.assertIn("fc_map.json does not exist", done.stderr.decode())
        result = json.loads(done.stdout)
        self.assertGreater(result["map_seconds"], 0)
        self.assertEqual(list(folder.glob("fc_map*")), [])


class Output(CommandTest):
    def test_json_has_every_field(self):
        result = self.generate_json("--prompt", "x" * 300, "--max-tokens", 4, "--device",
                                    "emulated", "--fac-tokens", 32, "--top-k", 3)
        self.assertLessEqual(len(result["tokens"]), 4)
        self.assertEqual(result["prefill"]["tokens"], 300)
        self.assertEqual(result["clock"], "virtual")
        for place, key in (("prefill", "seconds"), ("prefill", "wall_seconds"),
                           ("decode", "seconds"), ("decode", "tokens"), ("decode", "tpot_ms"),
                           ("decode", "wall_seconds"), ("memory", "device_kv_bytes"),
                           ("memory", "device_peak_bytes"), ("memory", "host_kv_bytes"),
                           ("memory", "full_kv_bytes"), ("fetch", "rows_per_step"),
                           ("fetch", "bytes_per_step")):
            self.assertGreater(result[place][key], 0, f"{place}.{key}")
        self.assertLessEqual(result["fetch"]["hit_rate"], 1)
        memory = result["memory"]
        self.assertEqual(memory["full_kv_bytes"], 2 * 2 * 64 * 2 * 4 * memory["cache_tokens"])
        self.assertGreaterEqual(memory["device_peak_bytes"], memory["device_kv_bytes"])
        self.assertEqual(result["config"]["selection"]["fac_tokens"], 32)
        self.assertEqual(result["config"]["device"]["name"], "emulated")
        steps = result["decode"]["tokens"]
        self.assertEqual(len(result["decode"]["step_ms"]), steps)
        # Counters are read after the last step.
        self.assertAlmostEqual(sum(result["decode"]["step_ms"]),
                               1e3 * result["decode"]["seconds"], delta=0.02)
        self.assertAlmostEqual(result["decode"]["tpot_ms"],
                               result["decode"]["seconds"] * 1e3 / steps)

    def test_fetches_by_cause(self):
        flags = ("--prompt", "In the beginning God created the heaven and the earth. " * 12,
                 "--max-tokens", 12, "--device", "emulated", "--fac-tokens", 64, "--bandwidth",
                 "100MB/s")
        ahead = self.generate_json(*flags, "--depth", 1)["fetch"]
        self.assertGreater(ahead["bytes"]["prefetch"], 0)
        self.assertGreater(ahead["bytes"]["write_back"], 0)
        for key in ("accuracy", "coverage"):
            self.assertGreater(ahead["prefetch"][key], 0)
            self.assertLess(ahead["prefetch"][key], 1)
        never = self.generate_json(*flags, "--depth", 0)["fetch"]
        self.assertEqual(never["bytes"]["prefetch"], 0)
        self.assertEqual(never["prefetch"]["coverage"], 0)
        self.assertLess(ahead["bytes"]["miss"], never["bytes"]["miss"])
        text = self.assert_done("generate", "--model", MODEL, *flags, "--depth", 1, "--stats")
        self.assertIn(b"fetched ahead per step", text.stdout)

    def test_the_cpu_device_keeps_one_tier_and_wall_time(self):
        result = self.generate_json("--prompt", "In the beginning", "--max-tokens", 4, "--device",
                                    "cpu")
        self.assertEqual(result["clock"], "wall")
        self.assertNotIn("wall_seconds", result["prefill"])
        self.assertEqual(result["fetch"]["rows_per_step"], 0)
        self.assertEqual(result["fetch"]["hit_rate"], 1)
        self.assertEqual(result["memory"]["host_kv_bytes"], 0)

    def test_plain_output_is_the_text_byte_for_byte(self):
        arguments = ("--prompt", "And God said", "--max-tokens", 12)
        plain = self.assert_done("generate", "--model", MODEL, *arguments)
        result = self.generate_json(*arguments)
        self.assertEqual(plain.stdout, bytes(result["tokens"]))  # id = byte
        self.assertEqual(result["text"].encode(), plain.stdout)
        self.assertFalse(result["text_lossy"])

    def test_bytes_that_are_no_utf8_are_replaced_and_said_so(self):
        # Half a character: whether or not the model completes it, the JSON stays valid.
        result = self.generate_json("--prompt-ids", self.write("ids", "10 63 206"),
                                    "--max-tokens", 1, "--temperature", 5, "--seed", 3)
        # A character that the model completes belongs to its text; otherwise the prompt's half does
        # not.
        text = bytes([206, *result["tokens"]]).decode(errors="replace").removeprefix("\ufffd")
        self.assertEqual(result["text"], text)
        self.assertEqual(result["text_lossy"], "\ufffd" in text)

    def test_prompt_ids_equal_their_text(self):
        text = "And the earth was without form"
        by_text = self.generate_json("--prompt", text, "--max-tokens", 8)
        for ids in (json.dumps(list(text.encode())), " ".join(map(str, text.encode()))):
            by_ids = self.generate_json("--prompt-ids", self.write("ids", ids), "--max-tokens", 8)
            self.assertEqual(by_ids["tokens"], by_text["tokens"])

    def test_prompt_files_are_taken_byte_for_byte(self):
        content = b"a\r\n\x00b\n"
        result = self.generate_json("--prompt-file", self.write("p", content), "--max-tokens", 1)
        self.assertEqual(result["prefill"]["tokens"], len(content))
        # Invalid UTF-8 is read as U+FFFD, which takes three bytes.
        result = self.generate_json("--prompt-file", self.write("p", b"a\xffb"), "--max-tokens", 1)
        self.assertEqual(result["prefill"]["tokens"], 5)

    def test_sampling_depends_on_the_seed_alone(self):
        def sample(seed):
            return self.generate_json("--prompt", "And", "--max-tokens", 16, "--temperature", 1.5,
                                      "--seed", seed)["tokens"]
        self.assertEqual(sample(1), sample(1))
        self.assertNotEqual(sample(1), sample(2))

    def test_the_table_fits_100_columns(self):
        done = self.assert_done("generate", "--model", MODEL, "--prompt", "And God", "--max-tokens",
                                3, "--stats", "--device", "emulated")
        lines = done.stdout.decode(errors="replace").splitlines()
        self.assertTrue(any("KV bytes on the device" in line for line in lines))
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_more_memory_is_not_called_less(self):
        done = self.assert_done("generate", "--model", MODEL, "--prompt", "In the beginning",
                                "--max-tokens", 8, "--stats", "--device", "emulated")
        line = next(line for line in done.stdout.decode(errors="replace").splitlines()
                    if "KV bytes on the device" in line)
        self.assertRegex(line, r"needed, [1-9][\d.]*x as much as full KV")
        self.assertNotIn("smaller", line)

    def test_nothing_but_errors_on_standard_error_without_a_terminal(self):
        done = self.assert_done("generate", "--model", MODEL, "--prompt", "And", "--max-tokens", 2)
        self.assertEqual(done.stderr, b"")


class Sources(CommandTest):
    def effective(self, *arguments, **options):
        return json.loads(self.assert_done("config", *arguments, **options).stdout)

    def test_flags_win_over_variables_over_the_file(self):
        file = self.write("c.toml", "preset = \"full\"\n[selection]\nsinks = 1\nrecent = 2\n")
        config = self.effective("--config", file, "--recent", 9,
                                environment={"FASA_RECENT": "5", "FASA_DEVICE": "emulated"})
        self.assertEqual(config["preset"], "full")
        self.assertEqual(config["selection"]["kind"], "full")
        self.assertEqual(config["placement"]["rows"], "device")
        self.assertEqual(config["selection"]["sinks"], 1)
        self.assertEqual(config["selection"]["recent"], 9)
        self.assertEqual(config["device"]["name"], "emulated")

    def test_the_file_governs_a_generation(self):
        file = self.write("c.toml", "[device]\nname = \"emulated\"\n[placement]\nhot_rows = 7\n")
        result = self.generate_json("--prompt", "x", "--max-tokens", 1, "--config", file)
        self.assertEqual(result["device"], "emulated")
        self.assertEqual(result["config"]["placement"]["hot_rows"], 7)


class Info(CommandTest):
    def test_machine_and_model(self):
        info = json.loads(self.assert_done("info", "--json", "--model", MODEL).stdout)
        self.assertGreaterEqual(info["topology"]["cores"], 1)
        self.assertGreaterEqual(len(info["topology"]["nodes"]), 1)
        self.assertEqual(info["devices"][:2], ["cpu", "emulated"])
        self.assertEqual(info["auto"]["device"] == "cpu", info["auto"]["reason"] != "")
        self.assertIn("portable", info["targets"])
        self.assertIn(info["target"], info["targets"])
        model = info["model"]
        self.assertEqual((model["layers"], model["kv_heads"], model["chunks"]), (4, 2, 32))
        self.assertEqual(model["full_kv_bytes_per_token"], 2048)
        cost = {(p["preset"], p["slice"]): p for p in model["presets"]}
        default = cost["fasa-m", "default"]
        self.assertEqual((default["tip_chunks"], default["slice_dtype"]), (32, "int2"))
        self.assertGreater(2048 / default["device_bytes_per_token"], 7)
        self.assertGreater(2048 / cost["fasa-m", "lean"]["device_bytes_per_token"], 24)
        self.assertEqual(cost["full", "default"]["host_bytes_per_token"], 0)

    def test_a_model_with_a_part_for_images(self):
        folder = SOURCE / "tests" / "golden" / "gemma3-vision"
        model = json.loads(self.assert_done("info", "--json", "--model", folder).stdout)["model"]
        self.assertEqual(model["type"], "gemma3_text")
        self.assertEqual(set(model["unread_parts"]), {"vision_tower", "multi_modal_projector"})
        text = self.assert_done("info", "--model", folder).stdout
        count = model["unread_parts"]["vision_tower"]
        self.assertIn(f"Not read: vision_tower ({count} tensors)".encode(), text)

    def test_for_people(self):
        text = self.assert_done("info", "--model", MODEL).stdout.decode()
        self.assertIn("oneDNN", text)
        self.assertIn("device 'auto' uses", text)
        self.assertIn("fasa-m", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        subprocess.run([FASA, "info"], check=True, stdout=subprocess.DEVNULL)


class LongContexts(CommandTest):
    def test_a_context_of_noise_is_the_same_on_every_device(self):
        flags = ("--random-context", 3000, "--max-tokens", 4, "--logit-bias", "0:-inf")
        emulated = self.generate_json("--device", "emulated", *flags)
        self.assertEqual(emulated["memory"]["cache_tokens"], 3004)
        self.assertEqual(emulated["prefill"]["tokens"], 1)
        self.assertEqual(emulated["decode"]["tokens"], 3)
        self.assertIsNone(emulated["memory"]["host_rows_share_bytes"])
        self.assertEqual(self.generate_json("--device", "cpu", *flags)["tokens"],
                         emulated["tokens"])

    def test_random_weights_in_the_model_of_a_config(self):
        for config in ("qwen3-5", "gemma4"):
            folder = SOURCE / "tests/golden" / config
            done = self.assert_done("generate", "--geometry", folder, "--random-context", 300,
                                    "--max-tokens", 3, "--json")
            self.assertEqual(json.loads(done.stdout)["memory"]["cache_tokens"], 303)

    def test_fit_gives_up_what_it_takes_and_says_so(self):
        flags = ("generate", "--model", MODEL, "--random-context", 7000, "--max-tokens", 100,
                 "--logit-bias", "0:-inf", "--device", "emulated", "--json", "--fit")
        def fitted(size):
            done = self.assert_done(*flags, "--device-memory", size)
            said = [line for line in done.stderr.decode().splitlines() if "--fit: " in line]
            return said, json.loads(done.stdout)
        said, roomy = fitted("64MiB")
        self.assertEqual(len(said), 1, said)
        needed = float(re.search(r"--fit: ([0-9.]+) MiB", said[0])[1]) * 2**20
        less = int(needed) - 500_000
        said, fewer = fitted(less)
        self.assertIn("hot rows", said[0])
        self.assertLessEqual(fewer["memory"]["device_peak_bytes"], less)
        self.assertEqual(fewer["config"]["weights"]["lm_head"], "int8")
        self.assertEqual(fewer["memory"]["cache_tokens"], roomy["memory"]["cache_tokens"])
        self.assert_fails(4, ["device_memory", "7002 tokens", "hot rows: 0"], *flags,
                          "--device-memory", "8MiB")


if __name__ == "__main__":
    main()
