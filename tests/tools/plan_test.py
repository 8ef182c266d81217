"""fasa plan, as a user runs it."""
import json
import shlex
import unittest

from support import MODEL, SOURCE, CommandTest, main, run

GPU = ("--gpu", "rtx-4060-ti-16gb")


class Plan(CommandTest):
    def plan(self, *arguments, **options):
        done = self.assert_done("plan", "--json", *arguments, **options)
        return json.loads(done.stdout)

    def option(self, plan, preset):
        return next(o for o in plan["options"] if o["preset"] == preset and o["configured"])

    def test_a_named_geometry_on_a_named_gpu(self):
        plan = self.plan("--geometry", "llama-3.1-8b", *GPU, "--weight-bits", 4)
        self.assertEqual(plan["model"]["name"], "Llama-3.1-8B")
        self.assertEqual(plan["tokens"], 131072)
        self.assertEqual(plan["machine"]["name"], "RTX 4060 Ti 16GB")
        self.assertEqual(plan["machine"]["memory_bandwidth"], 288e9)
        self.assertAlmostEqual(plan["machine"]["link_bandwidth"] / 12.6e9, 1, places=2)
        fasa_m, fasa_c, full = (self.option(plan, p) for p in ("fasa-m", "fasa-c", "full"))
        self.assertTrue(fasa_m["fits"])
        self.assertFalse(fasa_c["fits"] or full["fits"])
        self.assertEqual(full["kv"]["device_row_bytes"], 16 << 30)
        self.assertEqual(fasa_m["host_bytes"], 16 << 30)
        self.assertEqual(fasa_m["slice_dtype"], "int2")
        self.assertIsNone(full["slice_dtype"])
        for key in ("attention", "with_weights"):
            terms = fasa_m["predicted"][key]
            parts = [v for k, v in terms.items()
                     if k.endswith("_ms") and k not in ("tpot_ms", "transfer_ms")]
            self.assertAlmostEqual(sum(parts), terms["tpot_ms"], places=9)
        self.assertLess(fasa_c["predicted"]["attention"]["tpot_ms"],
                        full["predicted"]["attention"]["tpot_ms"])
        slices = {(o["tip_chunks"], o["slice_dtype"]) for o in plan["options"]}
        self.assertLessEqual({(64, "int2"), (32, "int2"), (16, "bf16"), (64, "int4"), (64, "int8")},
                             slices)
        self.assertEqual(plan["recommended"]["preset"], "fasa-m")
        # hot_rows = auto may take more than is reserved, and stays auto.
        self.assertGreater(fasa_m["extra_hot_rows"], 2 * fasa_m["hot_rows"])
        self.assertGreater(fasa_m["extra_bytes"], 0)
        self.assertIn('hot_rows = "auto"', plan["recommended"]["toml"])

    def test_the_recommendation_is_a_config_file(self):
        plan = self.plan("--geometry", "Qwen2.5-7B", *GPU, "--weight-bits", 8, "--fac-tokens", 512)
        path = self.write("plan.toml", plan["recommended"]["toml"])
        config = json.loads(self.assert_done("config", "--config", path).stdout)
        self.assertEqual(config["preset"], plan["recommended"]["preset"])
        self.assertEqual(config["selection"]["fac_tokens"], 512)

    def test_prefetch_is_counted_where_it_pays(self):
        def recommended(*arguments):
            plan = self.plan("--geometry", "llama-3.1-8b", *GPU, "--weight-bits", 4,
                             # with one head group and no codes only predictions hide a fetch
                             "--head-groups", 1, "--low-bit-tokens", 0, *arguments)
            path = self.write("plan.toml", plan["recommended"]["toml"])
            config = json.loads(self.assert_done("config", "--config", path).stdout)
            return self.option(plan, "fasa-m"), config["prefetch"]
        foreseen = ("--coverage", 1, "--fac-tokens", 2048, "--hot-rows", 8192)
        option, prefetch = recommended(*foreseen)
        # The runtime decides by what it counts.
        self.assertEqual((prefetch["depth"], prefetch["predictor"]), ("auto", "auto"))
        self.assertAlmostEqual(1e3 / option["tokens_per_second"],
                         option["predicted_with_prefetch"]["with_weights"]["tpot_ms"])
        for key in ("attention", "with_weights"):
            self.assertLess(option["predicted_with_prefetch"][key]["tpot_ms"],
                            option["predicted"][key]["tpot_ms"])
            self.assertGreater(option["predicted_with_prefetch"][key]["transfer_hidden"],
                               option["predicted"][key]["transfer_hidden"])
        option, prefetch = recommended("--coverage", 0, "--fac-tokens", 256)
        self.assertAlmostEqual(1e3 / option["tokens_per_second"],
                         option["predicted"]["with_weights"]["tpot_ms"])
        # Options set by the user are not changed.
        self.assertEqual(recommended("--depth", 3, "--coverage", 0.05)[1]["depth"], 3)

    def test_a_model_folder_needs_no_weights(self):
        folder = self.copy_model()
        (folder / "model.safetensors").unlink()
        plan = self.plan("--model", folder, *GPU)
        self.assertEqual(plan["model"]["max_positions"], 8192)
        self.assertEqual(plan["tokens"], 8192)
        plan = self.plan("--model", folder, *GPU, "--tokens", 300)
        self.assertEqual(plan["recommended"]["preset"], "full")

    def test_bytes_are_those_of_a_run(self):
        # A plan's device memory equals the device's count when the same command runs.
        packed = SOURCE / "tests/golden/packed-gguf-llama/model.gguf"
        for model, flags in ((MODEL, ()), (MODEL, ("--weights", "int8")),
                             (MODEL, ("--weights", "int4", "--weight-group", 32)),
                             (MODEL, ("--lm-head", "int8", "--weights", "int4")), (packed, ())):
            with self.subTest(model=model.name, flags=flags):
                machine = ("--device", "emulated", "--hot-rows", 64, "--depth", 0)
                ids = self.write("ids", " ".join(str(i % 60) for i in range(223)))
                done = self.assert_done("generate", "--model", model, "--prompt-ids", ids,
                                        "--max-tokens", 1, "--json",
                                        *machine, *flags)
                memory = json.loads(done.stdout)["memory"]
                plan = self.plan("--model", model, "--tokens", 224, *machine, *flags)
                self.assertEqual(plan["weight_bytes"], memory["weight_bytes"])
                option = self.option(plan, "fasa-m")
                self.assertLess(abs(option["device_bytes"] / memory["device_peak_bytes"] - 1), 0.01,
                                (option["device_bytes"], memory["device_peak_bytes"]))

    def test_experts_lie_on_either_side(self):
        model = SOURCE / "tests/golden/packed-gguf-qwen3moe/model.gguf"
        ids = self.write("ids", " ".join(str(i % 60) for i in range(40)))
        plans = {}
        for place in ("device", "host"):
            flags = ("--device", "emulated", "--depth", 0, "--experts", place)
            plan = plans[place] = self.plan("--model", model, "--tokens", 41, *flags)
            done = self.assert_done("generate", "--model", model, "--prompt-ids", ids,
                                    "--max-tokens", 1, "--json", *flags)
            memory = json.loads(done.stdout)["memory"]
            self.assertEqual(plan["weight_bytes"], memory["weight_bytes"])
            on_device, on_host = plan["experts"]
            self.assertEqual((on_device["place"], on_host["place"]), ("device", "host"))
            self.assertEqual(plan["weight_bytes"] + plan["host_weight_bytes"],
                             on_device["device_weight_bytes"])
            self.assertGreater(on_host["read_ms"], on_device["read_ms"])
        self.assertEqual(plans["device"]["host_weight_bytes"], 0)
        self.assertEqual(plans["host"]["host_weight_bytes"],
                         plans["host"]["experts"][1]["host_weight_bytes"])
        self.assertEqual(self.plan("--model", MODEL, "--device", "emulated")["experts"], [])
        self.assert_fails(2, ["device, host"], "plan", "--model", model, "--experts", "disk")

    def test_this_machine(self):
        plan = self.plan("--model", MODEL, "--tokens", 1000)
        self.assertTrue(plan["machine"]["unified"])
        self.assertGreater(plan["machine"]["memory_bandwidth"], 1e8)
        self.assertEqual({o["preset"] for o in plan["options"]}, {"full", "fasa-c"})

    def test_an_accelerator_by_its_figures(self):
        plan = self.plan("--geometry", "Llama-3.2-1B", "--vram", "6GiB", "--memory-bandwidth",
                         "200GB/s", "--link-bandwidth", "8GB/s")
        self.assertEqual(plan["machine"]["memory_bytes"], 6 << 30)
        self.assertEqual(plan["machine"]["memory_bandwidth"], 200e9)
        self.assertEqual(plan["machine"]["link_bandwidth"], 8e9)
        emulated = self.plan("--geometry", "Llama-3.2-1B", "--device", "emulated")
        self.assertIsNone(emulated["machine"]["memory_bytes"])
        self.assertIsNone(self.option(emulated, "full")["longest_context"])

    def test_the_tables_fit_100_columns(self):
        for arguments in (("--geometry", "Llama-3.1-405B", *GPU), ("--list",),
                          ("--geometry", "Llama-3.1-8B", *GPU, "--weight-bits", 4),
                          ("--geometry", "Llama-3.2-1B", "--device", "emulated"),
                          ("--model", "qwen3-moe", *GPU),
                          ("--geometry", "Llama-3.1-8B", "--gpu", "h200", "--tokens", 2**31 - 1,
                           "--allow-long")):
            with self.subTest(arguments=arguments):
                done = run("plan", *arguments, cwd=SOURCE / "tests/golden")
                self.assertIn(done.returncode, (0, 4))  # 4: nothing fits
                text = done.stdout.decode()
                self.assertLessEqual(max(len(line) for line in text.splitlines()), 100)
                self.assertNotIn("nan", text)

    def test_nothing_fits(self):
        done = run("plan", "--geometry", "Llama-3.1-70B", *GPU)
        self.assertEqual(done.returncode, 4)
        self.assertIn(b"No preset fits", done.stdout)
        self.assertRegex(done.stdout, rb"alone take [\d.]+ GiB of 15.50 GiB")
        plan = json.loads(run("plan", "--json", "--geometry", "Llama-3.1-70B", *GPU).stdout)
        self.assertIsNone(plan["recommended"])
        self.assertEqual(self.option(plan, "fasa-m")["longest_context"], 0)
        done = run("plan", "--geometry", "Llama-3.1-8B", "--gpu", "RTX 4060", "--weight-bits", 8)
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stdout.replace(b"\n", b" "),
                         rb"--weight-bits 4 takes [\d.]+ GiB of 7.50 GiB and fits")

    def test_the_rows_can_be_typed(self):
        plan = self.plan("--geometry", "llama-3.1-8b", *GPU)
        self.assertEqual(plan["weight_bits"], 4)
        usual = [o for o in plan["options"] if o["usual"]]
        self.assertEqual([o["name"] for o in usual],
                         ["full", "default, fasa-c", "default", "fine", "lean"])
        for option, kl in zip(usual, [0, 0.0074, 0.0074, 0.0006, None]):
            self.assertEqual(option["kl"] and round(option["kl"], 4), kl)
        self.assertTrue(usual[2]["kl_extrapolated"])
        shorter = self.plan("--geometry", "llama-3.1-8b", "--tokens", "16k", *GPU)
        option = self.option(shorter, "fasa-m")
        self.assertFalse(option["kl_extrapolated"])
        self.assertAlmostEqual(option["kl"], 0.0003, 4)
        for option in plan["options"]:
            text = option["set"].replace(", slice = ", "\n[selection]\nslice = ")
            if not text.startswith("preset"):
                text = "[selection]\n" + text
            text = text.replace(", slice_dtype", "\nslice_dtype").replace(", low_bit", "\nlow_bit")
            config = json.loads(self.assert_done(
                "config", "--config", self.write("row.toml", text)).stdout)
            self.assertEqual(config["preset"], option["preset"], text)
        text = self.assert_done("plan", "--geometry", "llama-3.1-8b", *GPU).stdout.decode()
        self.assertNotIn("paper", text.split("--all shows")[0])
        every = self.assert_done("plan", "--all", "--geometry", "llama-3.1-8b", *GPU)
        self.assertIn("paper", every.stdout.decode())

    def test_the_command_can_be_pasted(self):
        path = self.folder / "plan.toml"
        arguments = ("plan", "--model", MODEL, *GPU, "--tokens", "4k", "-o", path)
        for columns in ("60", "80", "100"):
            text = self.assert_done(*arguments, environment={"COLUMNS": columns}).stdout.decode()
            command = text[text.index("  fasa serve"):]
            words = shlex.split(command.replace("\\\n", " "))
            self.assertEqual(words, ["fasa", "serve", "--model", str(MODEL), "--config", str(path),
                                     "--max-context", "4096"])
        self.assert_done("config", "--config", path)
        shown = self.assert_done(*arguments[:-2], environment={"COLUMNS": "60"}).stdout.decode()
        toml = shown[shown.index("# fasa plan"):shown.index("It is served by")]
        self.assertEqual(toml.strip(), path.read_text().strip())

    def test_paragraphs_are_wrapped_once(self):
        for columns in (60, 80, 100):
            text = self.assert_done("plan", "--geometry", "Llama-3.1-8B", *GPU,
                                    environment={"COLUMNS": str(columns)}).stdout.decode()
            notes = text[text.index("Assumed"):text.index("Recommended")]
            lines = [line for line in notes.splitlines() if line]
            self.assertTrue(all(not line.startswith(" ") for line in lines), notes)
            for line, following in zip(lines, lines[1:]):
                short = len(line) + 1 + len(following.split()[0]) <= columns
                self.assertTrue(not short or line.endswith("."), (line, following))

    def test_the_lists(self):
        lists = json.loads(self.assert_done("plan", "--list", "--json").stdout)
        names = [gpu["name"] for gpu in lists["gpus"]]
        self.assertTrue({"RTX 3060", "RTX 4090", "RTX 5090", "A10", "L4", "L40S", "A100 40GB",
                         "A100 80GB", "H100 SXM", "H200"} <= set(names))
        self.assertIn("Llama-3.1-8B", [g["name"] for g in lists["geometries"]])


class BadInput(CommandTest):
    def fails(self, parts, *arguments, code=2, **options):
        return self.assert_fails(code, parts, "plan", *arguments, **options)

    def test_names(self):
        self.fails(["RTX 4061", "nearest", "RTX 4060"], "--geometry", "Llama-3.1-8B", "--gpu",
                   "RTX 4061")
        self.fails(["RTX 4060 Ti 8GB", "RTX 4060 Ti 16GB"], "--geometry", "Llama-3.1-8B", "--gpu",
                   "4060ti")
        self.fails(["Lama-3.1-8B", "nearest", "Llama-3.1-8B"], "--geometry", "Lama-3.1-8B", *GPU)
        self.fails(["FASA_GPU", "device.gpu"], "--geometry", "Llama-3.1-8B",
                   environment={"FASA_GPU": "voodoo2"})

    def test_what_to_plan_for(self):
        self.fails(["--model", "--geometry"], *GPU)
        self.fails(["one of them"], "--geometry", "Llama-3.1-8B", "--model", MODEL, *GPU)
        self.fails(["/nonexistent"], "--model", "/nonexistent", *GPU, code=3)

    def test_tokens(self):
        for tokens in (0, -5, 131073):
            self.fails([f"--tokens = {tokens}", "1 to 131072"], "--geometry", "Llama-3.1-8B", *GPU,
                       "--tokens", tokens)
        self.fails(["1 to 2147483647"], "--geometry", "Llama-3.1-8B", *GPU, "--tokens", 2**31,
                   "--allow-long")

    def test_figures(self):
        for flag, value in (("--link-bandwidth", "0GB/s"), ("--link-bandwidth", "fast"),
                            ("--memory-bandwidth", "0GB/s"), ("--memory-bandwidth", "-1GB/s"),
                            ("--vram", "0"), ("--vram", "much"), ("--weight-bits", "3"),
                            ("--overlap", "1.5"), ("--coverage", "-1"), ("--bandwidth", "0GB/s"),
                            ("--hot-rows", "-1"), ("--fac-tokens", "7")):
            with self.subTest(flag=flag, value=value):
                message = self.fails(["allowed"], "--geometry", "Llama-3.1-8B", *GPU,
                                     f"{flag}={value}")
                self.assertIn(value, message)

    def test_configs_that_do_not_fit_the_model(self):
        self.fails(["dense_layers", "0 to 31"], "--geometry", "Llama-3.1-8B", *GPU,
                   "--dense-layers", 32)
        self.fails(["--tokns", "--tokens"], "--geometry", "Llama-3.1-8B", "--tokns", 5)


if __name__ == "__main__":
    main()
