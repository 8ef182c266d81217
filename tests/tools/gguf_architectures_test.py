"""GGUF files of the golden models, whose folders' logits are compared with transformers' elsewhere:
each file gives the folder's answers, in every layout that its architecture's files have."""
import json
import math
import struct
import unittest

import gguf
import gguf_convert
from gguf import BOOL, F32, GGML_F32, I32, TEXT, U32
from support import MODEL, SOURCE, CommandTest, main

GOLDEN = SOURCE / "tests/golden"
SAME = 2e-5  # of log-probabilities


class GoldenCase(CommandTest):
    def answer(self, model, *flags):
        """Ids and log-probabilities of a few tokens after a prompt longer than all windows."""
        ids = self.write("ids.json", json.dumps([(7 * i * i + 3 * i) % 60 for i in range(48)]))
        done = self.assert_done("generate", "--model", model, "--prompt-ids", ids, "--max-tokens",
                                3, "--json", "--logprobs", 5, *flags)
        return json.loads(done.stdout)["logprobs"]

    def assert_same(self, one, other, what=""):
        self.assertEqual([token["id"] for token in one], [token["id"] for token in other], what)
        for a, b in zip(one, other):
            for top_a, top_b in zip(a["top"], b["top"]):
                self.assertAlmostEqual(top_a["logprob"], top_b["logprob"], delta=SAME, msg=what)

    def file(self, metadata, tensors, name="model.gguf"):
        return self.write(name, gguf.gguf(metadata, tensors))

    def packed(self, name):
        return gguf_convert.read((GOLDEN / f"packed-gguf-{name}" / "model.gguf").read_bytes())


class Architectures(GoldenCase):
    FOLDERS = ("glm4", "glm4-moe", "cohere2", "exaone4", "exaone4-full", "seed-oss", "starcoder2",
               "phi", "gpt-neox", "gpt-neox-sequential", "ernie", "ernie-mha-biases", "stablelm",
               "stablelm-parallel", "bloom", "bloom-heads", "mpt", "deepseek-v2",
               "deepseek-v2-moe", "deepseek-v2-moe-groups", "deepseek-v2-yarn", "mixtral")
    # Fields of the folder's config that files cannot say, as the file has them.
    UNSAID = {"deepseek-v2": {"num_experts_per_tok": 1},
              "deepseek-v2-yarn": {"num_experts_per_tok": 1}}

    def changed_folder(self, name, changed):
        """A golden folder with a changed config."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "model.safetensors").symlink_to(GOLDEN / name / "model.safetensors")
        config = {**json.loads((GOLDEN / name / "config.json").read_text()), **changed}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_files_answer_as_folders(self):
        for name in self.FOLDERS:
            with self.subTest(name):
                metadata, tensors = gguf_convert.convert(GOLDEN / name, self.UNSAID.get(name))
                changed = {}
                if name == "deepseek-v2-yarn":  # stored is one of two factors
                    changed = {"rope_parameters": {**json.loads(
                        (GOLDEN / name / "config.json").read_text())["rope_parameters"],
                        "mscale": 0.8}}
                model = self.changed_folder(name, changed) if changed else GOLDEN / name
                self.assert_same(self.answer(self.file(metadata, tensors)), self.answer(model),
                                 name)

    def test_layers_with_and_without_experts(self):
        changed = {"use_sliding_window": False, "layer_types": ["full_attention"] * 3}
        folder = self.changed_folder("qwen2-moe", changed)
        metadata, tensors = gguf_convert.convert(GOLDEN / "qwen2-moe", changed)
        expected = self.answer(folder)
        self.assert_same(self.answer(self.file(metadata, tensors)), expected)
        self.assert_same(self.answer(self.file(metadata, squeezed(tensors))), expected)
        fused, shapes = dict(tensors), {}
        for layer in (0, 2):  # gate and up in one tensor
            pair = [fused.pop(f"blk.{layer}.ffn_{part}_exps.weight") for part in ("gate", "up")]
            count, rows, width = pair[0][0]
            size = 4 * rows * width
            shapes = [count, 2 * rows, width]
            fused[f"blk.{layer}.ffn_gate_up_exps.weight"] = (shapes, GGML_F32, b"".join(
                one[2][i * size:(i + 1) * size] for i in range(count) for one in pair))
        self.assert_same(self.answer(self.file(metadata, fused)), expected)

    def test_mixtral_of_2023(self):
        metadata, tensors = gguf_convert.convert(GOLDEN / "mixtral", one_by_one=True)
        self.assertIn("blk.1.ffn_gate.3.weight", tensors)
        self.assert_same(self.answer(self.file(metadata, tensors)),
                         self.answer(GOLDEN / "mixtral"))

    def test_latent_attention_taken_apart(self):
        metadata, tensors = gguf_convert.convert(GOLDEN / "deepseek-v2-moe")
        config = json.loads((GOLDEN / "deepseek-v2-moe" / "config.json").read_text())
        heads, latent = config["num_attention_heads"], config["kv_lora_rank"]
        plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
        for name in [name for name in tensors if "attn_kv_b" in name]:
            _, _, data = tensors.pop(name)
            numbers = struct.unpack(f"<{len(data) // 4}f", data)
            rows = gguf_convert.rows([heads * (plain + value), latent], numbers)
            keys, values = [], []
            for head in range(heads):
                own = rows[head * (plain + value):(head + 1) * (plain + value)]
                keys += [own[i][j] for j in range(latent) for i in range(plain)]
                values += gguf_convert.flat(own[plain:])
            gguf_convert.add(tensors, name.replace("kv_b", "k_b"), [heads, latent, plain], keys)
            gguf_convert.add(tensors, name.replace("kv_b", "v_b"), [heads, value, latent], values)
        metadata |= {"deepseek2.attention.head_count_kv": (U32, 1),
                     "deepseek2.attention.key_length_mla":
                         metadata["deepseek2.attention.key_length"],
                     "deepseek2.attention.value_length_mla":
                         metadata["deepseek2.attention.value_length"],
                     "deepseek2.attention.key_length":
                         (U32, latent + config["qk_rope_head_dim"]),
                     "deepseek2.attention.value_length": (U32, latent)}
        self.assert_same(self.answer(self.file(metadata, tensors)),
                         self.answer(GOLDEN / "deepseek-v2-moe"))


def squeezed(tensors):
    """As ggml writes them: without leading lengths of 1."""
    return {name: (shape[1:] if len(shape) > 1 and shape[0] == 1 else shape, kind, data)
            for name, (shape, kind, data) in tensors.items()}


class Layouts(GoldenCase):
    def test_quantised_again(self):
        for name in ("qwen35moe", "qwen3next", "gemma4-moe"):
            metadata, tensors = self.packed(name)
            expected = self.answer(self.file(metadata, tensors))
            self.assert_same(self.answer(self.file(metadata, squeezed(tensors))), expected, name)

    def test_linear_attention_in_one_tensor(self):
        """qwen3next's older files: rows by key head, of its query, key, values and z."""
        metadata, tensors = self.packed("qwen3next")
        expected = self.answer(self.file(metadata, tensors))
        heads = metadata["qwen3next.ssm.group_count"][1]
        key = metadata["qwen3next.ssm.state_size"][1]
        value = metadata["qwen3next.ssm.inner_size"][1] // heads
        for layer in (0, 2):
            (_, kind, qkv), (_, _, gate) = (tensors.pop(f"blk.{layer}.{part}.weight")
                                            for part in ("attn_qkv", "attn_gate"))
            rows = heads * (2 * key + 2 * value)
            size = (len(qkv) + len(gate)) // rows
            stored = b""
            for head in range(heads):
                for data, first, count in ((qkv, head * key, key),
                                           (qkv, (heads + head) * key, key),
                                           (qkv, 2 * heads * key + head * value, value),
                                           (gate, head * value, value)):
                    stored += data[first * size:(first + count) * size]
            width = metadata["qwen3next.embedding_length"][1]
            tensors[f"blk.{layer}.ssm_in.weight"] = ([rows, width], kind, stored)
        self.assert_same(self.answer(self.file(metadata, tensors)), expected)

    def test_queries_keys_and_values_in_one_tensor(self):
        for name in ("seed-oss", "mixtral"):  # with biases; in rotary pairs
            metadata, tensors = gguf_convert.convert(GOLDEN / name)
            for layer in range(2):
                for kind in ("weight", "bias"):
                    own = [tensors.pop(f"blk.{layer}.attn_{part}.{kind}", None) for part in "qkv"]
                    if own[0]:
                        tensors[f"blk.{layer}.attn_qkv.{kind}"] = (
                            [sum(shape[0] for shape, _, _ in own), *own[0][0][1:]], GGML_F32,
                            b"".join(data for _, _, data in own))
            self.assert_same(self.answer(self.file(metadata, tensors)),
                             self.answer(GOLDEN / name), name)

    def test_numbers_per_layer(self):
        metadata, tensors = self.packed("llama")
        expected = self.answer(self.file(metadata, tensors))
        layers = metadata["llama.block_count"][1]
        for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
            kind, value = metadata[f"llama.{key}"]
            changed = {**metadata, f"llama.{key}": (I32, [value] * layers)}
            self.assert_same(self.answer(self.file(changed, tensors)), expected, key)
            changed[f"llama.{key}"] = (I32, [value] * (layers - 1) + [2 * value])
            self.assert_fails(3, [key, "the same number for all layers"], "info", "--model",
                              self.file(changed, tensors))
        metadata, tensors = self.packed("olmo3")
        expected = self.answer(self.file(metadata, tensors))
        key = "olmo2.attention.sliding_window_pattern"
        for given in ((U32, [1, 0]), (I32, [1, 0, 1]), (U32, 2)):
            self.assert_same(self.answer(self.file({**metadata, key: given}, tensors)), expected)

    def test_layers_of_multi_token_prediction(self):
        """They may be counted, and may be left out of the file though the key is there."""
        metadata, tensors = self.packed("qwen35")
        expected = self.answer(self.file(metadata, tensors))
        layers = metadata["qwen35.block_count"][1]
        more = {f"blk.{layers}.{name.split('.', 2)[2]}": tensor for name, tensor in tensors.items()
                if name.startswith("blk.1.")}
        more[f"blk.{layers}.nextn.eh_proj.weight"] = ([64, 128], GGML_F32, bytes(4 * 64 * 128))
        key = {"qwen35.nextn_predict_layers": (U32, 1)}
        counted = {"qwen35.block_count": (U32, layers + 1)}
        for keys, extra in (({**key, **counted}, more), (key, more), (counted, more), ({}, more),
                            ({**key, **counted}, {}), (key, {})):
            file = self.file({**metadata, **keys}, {**tensors, **extra})
            self.assert_same(self.answer(file), expected, str(keys))

    def test_tensors_of_other_parts(self):
        metadata, tensors = self.packed("mistral3")
        expected = self.answer(self.file(metadata, tensors))
        extra = {name: ([8, 8], GGML_F32, bytes(256))
                 for name in ("v.blk.0.attn_q.weight", "v.patch_embd.weight", "mm.0.weight",
                              "a.blk.0.attn_k.weight")}
        file = self.file({**metadata, "mistral3.vision.block_count": (U32, 1)},
                         {**tensors, **extra})
        self.assert_same(self.answer(file), expected)
        told = self.assert_done("info", "--model", file).stdout.decode()
        for part in ("v (2 tensors)", "mm (1 tensors)", "a (1 tensors)"):
            self.assertEqual(told.count(f"Not read: {part}"), 1, told)

    def test_a_llama_with_windows(self):
        metadata, tensors = self.packed("llama")
        without = self.answer(self.file(metadata, tensors))
        metadata["llama.attention.sliding_window"] = (U32, 20)
        told = json.loads(self.assert_done("info", "--json", "--model",
                                           self.file(metadata, tensors)).stdout)
        self.assertEqual(told["model"]["windows"][0], 20)
        windowed = self.answer(self.file(metadata, tensors))
        self.assertNotAlmostEqual(windowed[0]["logprob"], without[0]["logprob"], delta=SAME)


class Keys(GoldenCase):
    def test_keys_with_an_effect_are_refused(self):
        metadata, tensors = self.packed("llama")
        for key, value, harmless in (("attention.clamp_kqv", (F32, 8), (F32, 0)),
                                     ("attention.causal", (BOOL, False), (BOOL, True)),
                                     ("logit_scale", (F32, 0.5), (F32, 1)),
                                     ("attn_logit_softcapping", (F32, 50), (F32, 0))):
            self.assert_fails(3, [f"llama.{key}", "allowed"], "info", "--model",
                              self.file({**metadata, f"llama.{key}": value}, tensors))
            self.assert_done("info", "--model",
                             self.file({**metadata, f"llama.{key}": harmless}, tensors))

    def test_unknown_keys_are_told(self):
        metadata, tensors = self.packed("llama")
        told = self.assert_done("info", "--model", self.file(
            {**metadata, "llama.attention.new_thing": (U32, 1), "general.name": (TEXT, "x"),
             "llama.vocab_size": (U32, 64)}, tensors)).stdout.decode()
        self.assertIn("llama.attention.new_thing", told)
        self.assertNotIn("vocab_size", told)
        self.assertNotIn("general.name", told)

    def test_types_that_cannot_run_are_told(self):
        metadata, tensors = self.packed("llama")
        iq1_s = 19
        name = "blk.0.ffn_up.weight"
        shape, _, data = tensors[name]
        told = self.assert_done("info", "--model", self.file(
            metadata, {**tensors, name: (shape, iq1_s, data)})).stderr.decode()
        self.assertIn(f"tensor {name} has type IQ1_S", told)
        self.assertIn("the model cannot run", told)


class Rotation(GoldenCase):
    """Keys of rotation against the folder's rope_scaling."""
    YARN = {"type": (TEXT, "yarn"), "factor": (F32, 4), "original_context_length": (U32, 2048)}
    FOLDER_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}

    def setUp(self):
        super().setUp()
        self.config = json.loads((MODEL / "config.json").read_text())
        self.metadata = gguf.llama_metadata(MODEL, self.config)
        self.tensors = gguf.llama_tensors(MODEL, self.config)

    def of_file(self, keys, tensors=None):
        metadata = {**self.metadata, **{f"llama.rope.{key}": value for key, value in keys.items()}}
        return self.file(metadata, {**self.tensors, **(tensors or {})})

    def scaling(self, **keys):
        return self.of_file({f"scaling.{key}": value for key, value in keys.items()})

    def of_folder(self, scaling):
        folder = self.copy_model(f"folder{len(list(self.folder.iterdir()))}")
        self.replace(folder, "config.json", json.dumps({**self.config, "rope_scaling": scaling}))
        return folder

    def divisors(self, numbers):
        return {"rope_freqs.weight": ([len(numbers)], GGML_F32,
                                      struct.pack(f"<{len(numbers)}f", *numbers))}

    def test_linear(self):
        expected = self.answer(self.of_folder({"type": "linear", "factor": 4.0}))
        for keys in ({"scaling.type": (TEXT, "linear"), "scaling.factor": (F32, 4)},
                     {"scaling.factor": (F32, 4)}, {"scale_linear": (F32, 4)}):
            self.assert_same(self.answer(self.of_file(keys)), expected, str(keys))
        none = self.answer(MODEL)
        self.assertNotAlmostEqual(none[0]["logprob"], expected[0]["logprob"], delta=SAME)
        self.assert_same(self.answer(self.scaling(type=(TEXT, "none"), factor=(F32, 4))), none)

    def test_yarn(self):
        for keys, more in (({}, {}), ({"yarn_beta_fast": (F32, 16)}, {"beta_fast": 16.0}),
                           ({"yarn_beta_slow": (F32, 2)}, {"beta_slow": 2.0}),
                           ({"yarn_attn_factor": (F32, 0.5)}, {"attention_factor": 0.5}),
                           ({"yarn_log_multiplier": (F32, 1)}, {"attention_factor": 1.0}),
                           ({"yarn_log_multiplier": (F32, 0.5)},
                            {"mscale": 1.0, "mscale_all_dim": 0.5}),
                           ({"yarn_attn_factor": (F32, 0.5), "attn_factor": (F32, 0.5)},
                            {"attention_factor": 0.25}), ({"yarn_ext_factor": (F32, -1)}, {})):
            self.assert_same(self.answer(self.scaling(**{**self.YARN, **keys})),
                             self.answer(self.of_folder({**self.FOLDER_YARN, **more})), str(keys))

    def test_divisors(self):
        theta, dims = self.config["rope_theta"], self.config["head_dim"]
        for original in (4096, 32768):
            llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": original}
            numbers = []
            for pair in range(dims // 2):
                turns = original * theta ** (-2 * pair / dims) / (2 * math.pi)
                smooth = min(max((turns - 1) / 3, 0), 1)
                numbers.append(1 / ((1 - smooth) / 8 + smooth))
            file = self.of_file({}, self.divisors(numbers))
            self.assert_same(self.answer(file), self.answer(self.of_folder(llama3)), original)
        linear = self.answer(self.of_folder({"type": "linear", "factor": 3.0}))
        self.assert_same(self.answer(self.of_file({}, self.divisors([3] * (dims // 2)))), linear)
        both = self.of_file({"scaling.factor": (F32, 2)}, self.divisors([1.5] * (dims // 2)))
        self.assert_same(self.answer(both), linear)

    def test_what_is_refused(self):
        for keys, parts in (({**self.YARN, "yarn_ext_factor": (F32, 0.5)},
                             ["yarn_ext_factor", "0.5"]),
                            ({"alpha": (F32, 1000)}, ["scaling.alpha"]),
                            ({"attn_factor": (F32, 2)}, ["attn_factor"]),
                            ({"type": (TEXT, "new")}, ["scaling.type", '"new"', "yarn"]),
                            ({"type": (TEXT, "linear")}, ["scaling.factor"]),
                            ({"factor": (F32, 0)}, ["scaling.factor"])):
            self.assert_fails(3, ["llama.rope", *parts], "info", "--model", self.scaling(**keys))

    def test_contexts(self):
        """What the original context becomes, unless the file says more."""
        for length, expected in ((2048, 8192), (16384, 16384)):
            self.metadata["llama.context_length"] = (U32, length)
            told = json.loads(self.assert_done("info", "--json", "--model",
                                               self.scaling(**self.YARN)).stdout)
            self.assertEqual(told["model"]["max_positions"], expected)


class OtherKinds(GoldenCase):
    def test_files_that_are_no_models(self):
        metadata, tensors = self.packed("llama")
        for keys, text in (({"general.architecture": (TEXT, "clip")}, "projector"),
                           ({"general.type": (TEXT, "mmproj")}, "projector"),
                           ({"general.type": (TEXT, "adapter")}, "LoRA adapter"),
                           ({"general.type": (TEXT, "imatrix")}, "importance matrix"),
                           ({"general.architecture": (TEXT, "new")}, '= "new"; allowed: llama')):
            self.assert_fails(3, [text], "info", "--model",
                              self.file({**metadata, **keys}, tensors))
        self.assert_fails(3, ["no tensors"], "info", "--model", self.file(metadata, {}))
        tensors["blk.0.extra.weight"] = ([4, 4], GGML_F32, bytes(64))
        told = self.assert_fails(3, ["blk.0.extra.weight", "the metadata"], "generate", "--model",
                                 self.file(metadata, tensors), "--prompt-ids",
                                 self.write("ids.json", "[1]"))
        self.assertNotIn("config.json", told)

    def test_other_formats(self):
        for data, text in ((b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
                           (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
                           (b"version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS"),
                           (b"<!DOCTYPE html>", "HTML"), (b"tjgg" + bytes(60), "GGML")):
            self.assert_fails(3, ["x.gguf", text], "info", "--model", self.write("x.gguf", data))
        (self.folder / "empty").mkdir()
        self.assert_fails(3, ["neither config.json nor a GGUF file"], "info", "--model",
                          self.folder / "empty")


class Parts(GoldenCase):
    def setUp(self):
        super().setUp()
        config = json.loads((MODEL / "config.json").read_text())
        self.metadata = gguf.llama_metadata(MODEL, config)
        self.tensors = gguf.llama_tensors(MODEL, config)
        names = list(self.tensors)
        self.groups = [[], names[:9], names[9:]]

    def parts(self, stem="x", **options):
        return gguf_convert.in_parts(self.folder, stem, self.groups, self.metadata, self.tensors,
                                     **options)

    def test_any_part_opens_the_whole(self):
        whole = self.file(self.metadata, self.tensors)
        for groups in (self.groups, [*self.groups[1:]]):
            self.groups = groups
            for path in self.parts(stem=f"of{len(groups)}"):
                for command in (["generate", "--prompt", "In", "--max-tokens", 4],
                                ["tokenize", "--prompt", "In the"]):
                    expected, found = (self.assert_done(*command, "--model", model).stdout
                                       for model in (whole, path))
                    self.assertEqual(found.replace(bytes(path), bytes(whole)), expected)
                self.assert_done("plan", "--tokens", 500, "--model", path)
                self.assertIn(b"3.1 M parameters", self.assert_done("info", "--model", path).stdout)

    def test_missing_parts_are_named(self):
        for missing in range(3):
            paths = self.parts()
            paths[missing].unlink()
            self.assert_fails(3, [str(paths[missing]), f"part {missing + 1} of 3"], "info",
                              "--model", paths[0 if missing else 1])

    def test_parts_that_disagree(self):
        paths = self.parts()
        self.parts(stem="y", count=2)
        for number in (1, 2):
            paths[number].write_bytes(
                (self.folder / paths[number].name.replace("x-", "y-")).read_bytes())
            self.assert_fails(3, [paths[number].name, "split.count", "= 2"], "info", "--model",
                              paths[0])
            self.parts()
        paths[1].write_bytes(paths[2].read_bytes())
        self.assert_fails(3, [paths[1].name, "split.no"], "info", "--model", paths[0])
        paths = self.parts()
        self.groups[2] = self.groups[2][1:]
        paths[2].write_bytes(self.parts(stem="z")[2].read_bytes())
        self.assert_fails(3, ["split.tensors.count"], "info", "--model", paths[0])

    def test_a_part_with_another_name(self):
        path = self.parts()[1]
        path.rename(self.folder / "renamed.gguf")
        self.assert_fails(3, ["renamed.gguf", "part 2 of 3", "-00002-of-00003.gguf"], "info",
                          "--model", self.folder / "renamed.gguf")

    def test_folders(self):
        self.parts()
        expected = self.answer(self.folder / "x-00002-of-00003.gguf")
        (self.folder / "mmproj-x.gguf").write_bytes(b"GGUF")
        self.assert_same(self.answer(self.folder), expected)
        self.file(self.metadata, self.tensors, "other.gguf")
        self.assert_fails(3, ["2 GGUF models", "other.gguf", "x-00001-of-00003.gguf"], "info",
                          "--model", self.folder)


if __name__ == "__main__":
    main()
