"""Errors for bad input: the exit code, the location, the allowed values; standard output stays
empty."""
import json
import os
import shutil
import struct
import subprocess
import sys

from support import FASA, MODEL, SOURCE, CommandTest, main, run


class UsageErrors(CommandTest):
    def generate_fails(self, code, parts, *arguments, **options):
        return self.assert_fails(code, parts, "generate", "--model", MODEL, *arguments, **options)

    def test_unknown_names_suggest_the_nearest(self):
        self.assert_fails(2, ["unknown command generat (nearest: generate)"], "generat")
        self.assert_fails(2, [])
        self.generate_fails(2, ["unknown argument --fac-token (nearest: --fac-tokens)"],
                            "--prompt", "x", "--fac-token", "128")
        self.generate_fails(2, ["unknown argument stray"], "--prompt", "x", "stray")
        # All words of an option, among others.
        self.generate_fails(2, ["unknown argument --prefetch-depth (nearest: --depth)"],
                            "--prompt", "x", "--prefetch-depth", 1)
        done = run("config", environment={"FASA_PREFETCH_DEPTH": "1"})
        self.assertIn(b"FASA_PREFETCH_DEPTH is not an option (nearest: FASA_DEPTH)", done.stderr)

    def test_a_closed_pipe_ends_the_command_of_a_wheel_without_a_word(self):
        package = self.folder / "fasa"
        (package / "bin").mkdir(parents=True)
        shutil.copy(SOURCE / "bindings/python/fasa/_program.py", package)
        (package / "bin/fasa").symlink_to(FASA)
        for program in (f"{sys.executable} -c 'import _program; _program.main()'", FASA):
            script = f"{program} generate --model {MODEL} --prompt x --max-tokens 300 | head -c 20"
            done = subprocess.run(["bash", "-c", script], cwd=package, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.stderr, b"", program)
            self.assertEqual(len(done.stdout), 20)

    def test_help_and_version(self):
        for arguments in (["--help"], ["generate", "--help"], ["--version"]):
            done = self.assert_done(*arguments)
            self.assertIn(b"fasa", done.stdout.lower())
        text = self.assert_done("generate", "--help-all").stdout.decode()
        for flag in ("--fac-tokens", "--device-memory", "--slice-dtype", "--max-tokens", "--json"):
            self.assertIn(flag, text)

    def test_the_prompt(self):
        self.generate_fails(2, ["0 prompts", "--prompt-file"])
        self.generate_fails(2, ["2 prompts"], "--prompt", "x", "--prompt-file", "y")
        self.generate_fails(2, ["the prompt is empty"], "--prompt", "")
        empty = self.write("empty.txt", "")
        self.generate_fails(2, ["empty.txt", "empty"], "--prompt-file", empty)
        self.generate_fails(3, ["/nonexistent", "cannot be read"], "--prompt-file", "/nonexistent")
        self.generate_fails(3, ["cannot be read"], "--prompt-file", self.folder)

    def test_token_ids(self):
        def ids(text):
            return self.write("ids.txt", text)
        self.generate_fails(3, ["ids.txt", "token 1", "256", "0 to 255"], "--prompt-ids",
                            ids("[1, 256]"))
        self.generate_fails(3, ["token 0", "-1"], "--prompt-ids", ids("-1 5"))
        self.generate_fails(3, ["token 2", "abc", "integers"], "--prompt-ids", ids("1,2,abc"))
        self.generate_fails(3, ["token 0", "1.5"], "--prompt-ids", ids("[1.5]"))
        self.generate_fails(3, ["ids.txt", "invalid JSON at byte"], "--prompt-ids", ids("[1, 2"))
        self.generate_fails(3, ["ids.txt", "invalid JSON"], "--prompt-ids", ids("[1e999]"))
        self.generate_fails(3, ["99999999999999999999"], "--prompt-ids",
                            ids("99999999999999999999"))
        self.generate_fails(2, ["empty"], "--prompt-ids", ids("[]"))
        self.generate_fails(2, ["empty"], "--prompt-ids", ids(" \n"))

    def test_random_models_and_prompts(self):
        self.assert_fails(2, ["--model DIR or --geometry NAME"], "generate", "--prompt", "x")
        self.generate_fails(2, ["one of them"], "--geometry", "Llama-3.1-8B", "--prompt", "x")
        self.assert_fails(2, ["Llama-3.1-8B"], "generate", "--geometry", "lama-3.1-8b",
                          "--random-prompt", 4)
        self.assert_fails(2, ["Qwen3.5-9B", "config.json"], "generate", "--geometry", "Qwen3.5-9B",
                          "--random-prompt", 4)
        self.generate_fails(2, ["--random-prompt"], "--random-prompt", 4, "--prompt", "x")
        self.generate_fails(2, ["--random-prompt = 0"], "--random-prompt", 0)
        self.assert_done("generate", "--model", MODEL, "--random-prompt", 9, "--max-tokens", 1)

    def test_positions(self):
        long_prompt = self.write("long.txt", "x" * 8193)
        self.generate_fails(2, ["8192", "--allow-long"], "--prompt-file", long_prompt,
                            "--max-tokens", 1)
        self.generate_fails(2, ["8192"], "--prompt", "x", "--max-tokens", 8192)
        done = self.assert_done("generate", "--model", MODEL, "--prompt", "x", "--max-tokens", 2,
                                "--allow-long")
        self.assertNotIn(b"warning", done.stderr)

    def test_values_of_flags(self):
        for flag, value in (("--max-tokens", "-1"), ("--max-tokens", "many"), ("--top-p", "0"),
                            ("--top-p", "1.5"), ("--temperature", "-1"), ("--top-k", "-1"),
                            ("--prefill-chunk", "0"), ("--dtype", "f64"), ("--dtype", "f16"),
                            ("--device", "cuda:x"), ("--device", "gpu"), ("--threads", "-1"),
                            ("--fac-tokens", "-1"), ("--fac-tokens", "20"), ("--fac-tokens", "1.5"),
                            ("--hot-rows", "-1"), ("--tip-chunks", "33"), ("--tip-chunks", "0"),
                            ("--slice", "thin"), ("--slice-dtype", "int3"), ("--preset", "fast"),
                            ("--device-memory", "6 Gigs"), ("--row-dtype", "int3"),
                            ("--dense-layers", "4"),
                            ("--numa", "77"), ("--streams", "0"), ("--bandwidth", "fast")):
            with self.subTest(flag=flag, value=value):
                message = self.generate_fails(2, [], "--prompt", "x", f"{flag}={value}")
                self.assertIn(value, message)

    def test_numbers_and_sizes_say_what_is_allowed(self):
        for flag in ("--max-tokens", "--prefill-chunk"):
            self.generate_fails(2, [f"{flag} = 80x", "allowed: a number", "128k"], "--prompt", "x",
                                flag, "80x")
        self.generate_fails(2, ["did you mean 8GiB?"], "--prompt", "x", "--device-memory", "8")
        done = run("plan", "--geometry", "Llama-3.2-1B", "--vram", "8")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"did you mean 8GiB?", done.stderr)

    def test_128k_is_a_number_of_tokens(self):
        done = self.assert_done("plan", "--geometry", "Llama-3.1-8B", "--device", "emulated",
                                "--tokens", "128k", "--fac-tokens", "1k", "--json")
        plan = json.loads(done.stdout)
        self.assertEqual(plan["tokens"], 131072)
        self.assertEqual(plan["config"]["selection"]["fac_tokens"], 1024)

    def test_a_gpu_that_cannot_be_there(self):
        done = run("generate", "--model", MODEL, "--prompt", "x", "--device", "cuda:77")
        without = b"this build has no CUDA device" in done.stderr
        self.assertEqual(done.returncode, 2 if without else 5)
        self.assertIn(b"cuda:77", done.stderr)
        self.assertEqual(done.stdout, b"")

    def test_lists_with_one_entry_per_layer(self):
        self.generate_fails(2, ["selection.fac_tokens", "array of 2", "(4)"], "--prompt", "x",
                            "--fac-tokens", "100,200")

    def test_variables(self):
        self.generate_fails(2, ["FASA_FAC_TOKENS", "-1", "allowed"], "--prompt", "x",
                            environment={"FASA_FAC_TOKENS": "-1"})
        self.generate_fails(2, ["FASA_TARGET", "avx1024"], "--prompt", "x",
                            environment={"FASA_TARGET": "avx1024"})

    def test_config_files(self):
        for text, parts in (
                ("[selection]\nfac_tokens = -1\n",
                 ["c.toml:2: selection.fac_tokens = -1: allowed"]),
                ("[memory]\ndevice_memory = \"6 Gigs\"\n", ["c.toml:2", "6 Gigs", "6GiB"]),
                ("\n[selection]\nfac_token = 3\n",
                 ["c.toml:3", "fac_token", "nearest: fac_tokens"]),
                ("[prefetch]\ndepth = 99\n", ["c.toml:2: prefetch.depth = 99", "0 to 4"]),
                ("[device]\nthreads = \"two\"\n", ["c.toml:2", "\"two\"", "0 to 1024"]),
                ("preset = [", ["c.toml:1", "not TOML"])):
            with self.subTest(text=text):
                self.generate_fails(2, parts, "--prompt", "x", "--config",
                                    self.write("c.toml", text))
        self.generate_fails(2, ["cannot be read"], "--prompt", "x", "--config", "/nonexistent.toml")

    def test_a_closed_output_is_no_success(self):
        with open("/dev/full", "wb") as full:
            code = subprocess.run([FASA, "config"], stdout=full, stderr=subprocess.DEVNULL,
                                  check=False).returncode
        self.assertNotEqual(code, 0)


class BudgetErrors(CommandTest):
    def test_a_device_budget_that_does_not_suffice_says_what_is_needed(self):
        for size in ("1MB", "13MB"):  # less than the weights, less than the rest
            self.assert_fails(4, ["device_memory", "MiB"], "generate", "--model", MODEL, "--prompt",
                              "x" * 4000, "--device", "emulated", "--device-memory", size)

    def test_a_host_budget_that_does_not_suffice(self):
        self.assert_fails(4, ["host_memory"], "generate", "--model", MODEL, "--prompt", "x" * 4000,
                          "--device", "emulated", "--host-memory", "1MB")


class ModelErrors(CommandTest):
    def model_fails(self, parts, folder, *arguments):
        return self.assert_fails(3, parts, "generate", "--model", folder, "--prompt", "x",
                                 "--max-tokens", 1, *arguments)

    def test_folders(self):
        self.model_fails(["/nonexistent"], "/nonexistent")
        self.model_fails(["config.json"], self.folder)

    def test_config_json(self):
        config = json.loads((MODEL / "config.json").read_text())
        for name, change, part in (("type", {"model_type": "mamba"}, "mamba"),
                                   ("layers", {"num_hidden_layers": 5}, "model.layers.4"),
                                   ("heads", {"num_key_value_heads": 3}, "num_"),
                                   ("hidden", {"hidden_size": 512}, "")):
            with self.subTest(name=name):
                folder = self.copy_model(name)
                self.replace(folder, "config.json", json.dumps(config | change))
                self.model_fails([part], folder)
        folder = self.copy_model("broken")
        self.replace(folder, "config.json", "{")
        self.model_fails(["config.json"], folder)

    def test_messages_do_not_cut_characters(self):
        document = json.loads((MODEL / "tokenizer.json").read_text())
        for shift in range(2):
            document["pre_tokenizer"] = {"type": "Split", "behavior": "Isolated", "invert": False,
                                         "pattern": {"Regex": "a" * shift + "[z-a]" + "é" * 500}}
            self.write("tokenizer.json", json.dumps(document))
            done = run("tokenize", "--model", self.folder, "--prompt", "a")
            self.assertEqual(done.returncode, 3)
            self.assertIn("éé", done.stderr.decode())  # valid UTF-8

    def test_safetensors(self):
        whole = (MODEL / "model.safetensors").read_bytes()
        header_size = struct.unpack("<Q", whole[:8])[0]
        header = json.loads(whole[8:8 + header_size])

        def with_header(changed):
            text = json.dumps(changed).encode()
            return struct.pack("<Q", len(text)) + text + whole[8 + header_size:]

        name = next(n for n in header if n.endswith("k_proj.weight"))
        beyond, shape, dtype = (json.loads(json.dumps(header)) for _ in range(3))
        missing = {("other" if n == name else n): entry for n, entry in header.items()}
        beyond[name]["data_offsets"][1] = 1 << 40
        shape[name]["shape"] = [1, 1]
        dtype[name]["dtype"] = "F99"
        for what, content in (("truncated", whole[:len(whole) // 2]),
                              ("empty", b""),
                              ("header_2_60", struct.pack("<Q", 1 << 60) + whole[8:]),
                              ("beyond", with_header(beyond)),
                              ("shape", with_header(shape)),
                              ("dtype", with_header(dtype)),
                              ("missing", with_header(missing))):
            with self.subTest(what=what):
                folder = self.copy_model(what)
                self.replace(folder, "model.safetensors", content)
                message = self.model_fails([], folder)
                if what in ("beyond", "shape", "dtype", "missing"):
                    self.assertIn(name, message)
                else:
                    self.assertIn("model.safetensors", message)

    def test_maps(self):
        for what, content in (("nothing", ""), ("list", "[]"), ("schema", '{"schema": 99}'),
                              ("cut", '{"schema": 1,')):
            with self.subTest(what=what):
                path = self.write("map.json", content)
                self.model_fails(["map.json"], MODEL, "--slice", "paper", "--map", path)
        self.model_fails(["/nonexistent"], MODEL, "--slice", "lean", "--map", "/nonexistent")


class HostileFiles(CommandTest):
    """Whatever file a path names, the command ends with an error that gives the location and what
    is allowed."""
    LEVELS = 200_000

    def fails(self, code, parts, *arguments):
        return self.assert_fails(code, parts, *arguments, timeout=60)

    def test_json_of_many_levels(self):
        deep = "[" * self.LEVELS + "]" * self.LEVELS
        parts = ["byte", "65 deep", "allowed: 64"]
        for name, key in (("config.json", "model_type"), ("needle.json", "fact")):
            with self.subTest(name=name):
                folder = self.copy_model(name)
                self.replace(folder, name, f'{{"{key}": {deep}}}')
                command = ["eval", "needle", "--results", self.folder / "results"] \
                    if name == "needle.json" else ["generate", "--prompt", "x"]
                self.fails(3, [name, *parts], *command, "--model", folder)
        folder = self.copy_model("tokenizer")
        self.replace(folder, "tokenizer.json", f'{{"model": {deep}}}')
        self.fails(3, ["tokenizer.json", "64 levels"], "generate", "--model", folder, "--prompt",
                   "x")
        folder = self.copy_model("index")
        self.replace(folder, "model.safetensors.index.json", f'{{"weight_map": {deep}}}')
        self.fails(3, ["index.json", *parts], "generate", "--model", folder, "--prompt", "x")
        folder = self.copy_model("header")
        text = f'{{"a": {deep}}}'.encode()
        self.replace(folder, "model.safetensors", struct.pack("<Q", len(text)) + text)
        self.fails(3, ["model.safetensors", *parts], "generate", "--model", folder, "--prompt", "x")
        base = ("generate", "--model", MODEL)
        self.fails(3, ["map.json", *parts], *base, "--prompt", "x", "--slice", "paper", "--map",
                   self.write("map.json", f'{{"schema": {deep}}}'))
        self.fails(3, ["ids.json", *parts], *base, "--prompt-ids", self.write("ids.json", deep))

    def test_toml_of_many_levels(self):
        for text in ("a = " + "[" * self.LEVELS, "[" + ".".join("a" * self.LEVELS) + "]\n",
                     ".".join("a" * self.LEVELS) + " = 1\n"):
            self.fails(2, ["c.toml"], "generate", "--model", MODEL, "--prompt", "x", "--config",
                       self.write("c.toml", text))

    def test_pipes_and_devices_in_the_place_of_files(self):
        for name in ("config.json", "generation_config.json", "tokenizer.json", "needle.json",
                     "model.safetensors", "model.safetensors.index.json"):
            with self.subTest(name=name):
                folder = self.copy_model(name)
                (folder / name).unlink(missing_ok=True)
                os.mkfifo(folder / name)
                command = ["eval", "needle", "--results", self.folder / "results"] \
                    if name == "needle.json" else ["generate", "--prompt", "x"]
                self.fails(3, [name], *command, "--model", folder)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        base = ("generate", "--model", MODEL)
        for path, part in ((fifo, "named pipe"), ("/dev/zero", "device"), ("/dev/tty", ""),
                           (self.folder, "folder")):
            for flag in ("--prompt-file", "--prompt-ids"):
                self.fails(3, [str(path), "cannot be read", part], *base, flag, path)
            self.fails(3, [str(path), part], *base, "--prompt", "x", "--slice", "lean", "--map",
                       path)
            self.fails(2, [str(path), part], *base, "--prompt", "x", "--config", path)
            self.fails(3, [str(path), part], "eval", "ppl", "--model", MODEL, "--text", path,
                       "--results", self.folder / "results")
            self.fails(3, [str(path), part], "calibrate", "--model", MODEL, "--text", path, "-o",
                       self.folder / "map.json")

    def test_prompts_through_the_shells_pipes(self):
        read, write = os.pipe()
        os.write(write, b"In the beginning")
        os.close(write)
        done = self.assert_done("generate", "--model", MODEL, "--max-tokens", 1, "--prompt-file",
                                f"/dev/fd/{read}", pass_fds=[read])
        os.close(read)
        same = self.assert_done("generate", "--model", MODEL, "--max-tokens", 1, "--prompt",
                                "In the beginning")
        self.assertEqual(done.stdout, same.stdout)
        done = self.assert_done("generate", "--model", MODEL, "--max-tokens", 1, "--prompt-file",
                                "/dev/stdin", input=b"In the beginning")
        self.assertEqual(done.stdout, same.stdout)

    def test_files_too_large(self):
        for name in ("config.json", "tokenizer.json"):
            folder = self.copy_model(name)
            self.replace(folder, name, b"")
            os.truncate(folder / name, 1 << 40)
            self.fails(3, [name, "1.00 TiB", "at most"], "generate", "--model", folder, "--prompt",
                       "x")
        large = self.write("large.txt", b"")
        os.truncate(large, 1 << 40)
        self.fails(3, ["large.txt", "at most"], "generate", "--model", MODEL, "--prompt-file",
                   large)


if __name__ == "__main__":
    main()
