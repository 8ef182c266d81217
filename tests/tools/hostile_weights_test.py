"""GGUF files, safetensors and configs of packed weights with false contents, beside valid files of
the same kind: exit code 3, a message that names the file, and little memory."""
import json
import os
import shutil
import struct
import subprocess
import sys

import gguf
from gguf import BOOL, F32, I32, TEXT, U32, U64
from support import FASA, MODEL, SOURCE, CommandTest, main

MOST_MORE_KIB = 128 * 1024  # of resident memory, above a command that opens no model
GOLDEN = SOURCE / "tests/golden"


MEASURE = """
import os, sys
child = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_measured(*arguments):
    """(exit code, standard error, peak of resident memory in KiB). A small process starts the
    command: a direct child would count this process's memory as its own."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("FASA_")}
    done = subprocess.run([sys.executable, "-S", "-c", MEASURE, FASA, *map(str, arguments)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, env=variables, check=False)
    message, _, peak = done.stderr.decode(errors="replace").rstrip("\n").rpartition("\n")
    return done.returncode, message, int(peak)


class HostileCase(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.usual_kib = run_measured("info")[2]

    def refused(self, model, parts=(), command=("generate",), flags=("--prompt", "x"),
                flag="--model"):
        code, message, peak = run_measured(*command, flag, model, *flags)
        self.assertEqual(code, 3, message)
        self.assertRegex(message, r"^fasa: error: .{10,}$")
        self.assertLess(len(message), 4000)
        for part in parts:
            self.assertIn(part, message)
        self.assertLess(peak - self.usual_kib, MOST_MORE_KIB, message)

    def all_refused(self, cases, name):
        """cases: the defect -> (bytes, part of the message...)."""
        for what, (content, *parts) in cases.items():
            with self.subTest(what=what):
                self.refused(self.write(name, content), [name, *parts])


def header(tensors, keys, *rest, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(rest)


def one_tensor(shape, kind=0, offset=0, data=b"", name="token_embd.weight", dims=None):
    """A file with the metadata of a llama, and one tensor described by the arguments."""
    whole = gguf.gguf({"general.architecture": (TEXT, "llama")}, {})
    metadata = whole[24:].rstrip(b"\0") if False else whole[24:24 + len(
        gguf.text("general.architecture")) + len(gguf.value(TEXT, "llama"))]
    entry = gguf.text(name) + struct.pack("<I", len(shape) if dims is None else dims)
    entry += b"".join(struct.pack("<Q", size) for size in shape)
    entry += struct.pack("<IQ", kind, offset)
    head = header(1, 1, metadata, entry)
    return head + bytes(-len(head) % 32) + data


class Gguf(HostileCase):
    def test_beginnings_of_files(self):
        good = gguf.of_folder(MODEL)
        self.all_refused({
            "empty": (b"",), "magic": (b"GGUF",), "seven": (b"GGUF\3\0\0",),
            "cut in counts": (good[:20],), "cut in metadata": (good[:600],),
            "cut in tensors": (good[:len(good) // 2],), "a byte short": (good[:-65],),
            "another magic": (b"GGML" + good[4:], "GGUF"),
            "version 1": (b"GGUF" + struct.pack("<I", 1) + good[8:], "version"),
            "big-endian": (b"GGUF" + struct.pack(">I", 3) + good[8:], "version"),
        }, "hostile.gguf")

    def test_counts_and_lengths(self):
        key = gguf.text("a")
        array = lambda kind, count: key + struct.pack("<IIQ", gguf.ARRAY, kind, count)
        nested = key + struct.pack("<I", gguf.ARRAY) + struct.pack("<IQ", gguf.ARRAY, 1) * 100_000
        self.all_refused({
            "tensors 2^63": (header(1 << 63, 0),), "tensors 2^64-1": (header((1 << 64) - 1, 0),),
            "tensors 2^32": (header(1 << 32, 0),),
            "tensors 100,001": (header(100_001, 0) + bytes(1 << 20), "100"),
            "keys 2^63": (header(0, 1 << 63),), "keys 2^64-1": (header(0, (1 << 64) - 1),),
            "text 2^63": (header(0, 1, struct.pack("<Q", 1 << 63)),),
            "text to the end": (header(0, 1, struct.pack("<Q", 100), b"x" * 99),),
            "array 2^61 u64": (header(0, 1, array(U64, 1 << 61)),),
            "array 2^62 f32": (header(0, 1, array(F32, 1 << 62)),),
            "array 2^60 texts": (header(0, 1, array(TEXT, 1 << 60)),),
            "arrays in arrays": (header(0, 1, nested),),
            "type 13": (header(0, 1, key + struct.pack("<I", 13)),),
            "type 2^31": (header(0, 1, key + struct.pack("<I", 1 << 31)),),
            "a boolean of 2": (header(0, 1, key + struct.pack("<IB", BOOL, 2)),),
            "a key twice": (header(0, 2, (key + struct.pack("<II", U32, 1)) * 2), "a"),
        }, "hostile.gguf")

    def test_many_empty_values(self):
        # 64 MiB of header, with values of the smallest possible size.
        count = 3_000_000
        values = b"".join(struct.pack("<QIIB", 4, i, gguf.U8, 0) for i in range(count))
        self.refused(self.write("hostile.gguf", header(0, count, values)), ["hostile.gguf"])

    def test_tensors(self):
        row = bytes(4 * 64)
        self.all_refused({
            "2^32 x 2^32": (one_tensor([1 << 32, 1 << 32], data=row),),
            "2^63": (one_tensor([1 << 63], data=row),),
            "2^62 x 4": (one_tensor([1 << 62, 4], data=row),),
            "exabytes": (one_tensor([1 << 30, 1 << 30], data=row),),
            "beyond by one row": (one_tensor([64, 2], data=row), "token_embd.weight"),
            "no elements": (one_tensor([0, 64], data=row), "token_embd.weight"),
            "five dimensions": (one_tensor([2] * 5, data=row),),
            "2^31 dimensions": (one_tensor([2], dims=1 << 31, data=row),),
            "half a block": (one_tensor([40, 1], kind=3, data=row), "token_embd.weight"),
            "an unknown type": (one_tensor([64], kind=77, data=row), "token_embd.weight"),
            "type 2^31": (one_tensor([64], kind=1 << 31, data=row), "token_embd.weight"),
            "an odd offset": (one_tensor([64], offset=8, data=row + bytes(8)),),
            "offset 2^63": (one_tensor([64], offset=1 << 63, data=row),),
            "offset 2^64-32": (one_tensor([64], offset=(1 << 64) - 32, data=row),),
            "a hole": (one_tensor([64], offset=64, data=bytes(64) + row),),
        }, "hostile.gguf")
        self.refused(self.write("hostile.gguf", gguf.gguf({}, {
            f"t{i}": ([64], 0, row) for i in range(2)}).replace(
                struct.pack("<IQ", 0, 256), struct.pack("<IQ", 0, 128))), ["hostile.gguf"])

    def test_metadata(self):
        llama = "llama."
        tokens = "tokenizer.ggml.tokens"
        good = gguf.llama_metadata(MODEL,
                                   json.loads((MODEL / "config.json").read_text()))[tokens][1]
        cases = {
            "alignment 0": {"general.alignment": (U32, 0)},
            "alignment 2^31": {"general.alignment": (U32, 1 << 31)},
            "alignment 3": {"general.alignment": (U32, 3)},
            "alignment as a text": {"general.alignment": (TEXT, "32")},
            "architecture": {"general.architecture": (TEXT, "mamba")},
            "architecture as a number": {"general.architecture": (U32, 7)},
            "no architecture": {"general.architecture": None},
            "layers as a text": {llama + "block_count": (TEXT, "4")},
            "layers 0": {llama + "block_count": (U32, 0)},
            "layers 2^31": {llama + "block_count": (U32, 1 << 31)},
            "layers beyond": {llama + "block_count": (U32, 5)},
            "layers -1": {llama + "block_count": (I32, -1)},
            "heads 0": {llama + "attention.head_count": (U32, 0)},
            "KV heads 0": {llama + "attention.head_count_kv": (U32, 0)},
            "KV heads 3": {llama + "attention.head_count_kv": (U32, 3)},
            "heads by layer": {llama + "attention.head_count": (U32, [4, 4, 2, 4])},
            "width 0": {llama + "embedding_length": (U32, 0)},
            "width 2^24": {llama + "embedding_length": (U32, 1 << 24)},
            "an odd head": {llama + "attention.key_length": (U32, 63)},
            "head 2^30": {llama + "attention.key_length": (U32, 1 << 30)},
            "theta NaN": {llama + "rope.freq_base": (F32, float("nan"))},
            "theta 0": {llama + "rope.freq_base": (F32, 0.0)},
            "theta infinite": {llama + "rope.freq_base": (F32, float("inf"))},
            "epsilon NaN": {llama + "attention.layer_norm_rms_epsilon": (F32, float("nan"))},
            "no tokens": {tokens: (TEXT, [])},
            "tokens as numbers": {tokens: (U32, list(range(256)))},
            "a token of bytes": {tokens: (TEXT, good[:255] + [b"\xff\xfe"])},
            "types beyond": {"tokenizer.ggml.token_type": (I32, [1] * 255)},
            "vocabulary": {"tokenizer.ggml.model": (TEXT, "bert")},
            "pre-tokenizer": {"tokenizer.ggml.pre": (TEXT, "no-such")},
            "scores missing": {"tokenizer.ggml.model": (TEXT, "llama")},
            "a merge of one piece": {"tokenizer.ggml.merges": (TEXT, ["ab"])},
            "a merge of unknown pieces": {"tokenizer.ggml.merges": (TEXT, ["zz qq"])},
        }
        for what, more in cases.items():
            with self.subTest(what=what):
                self.refused(self.write("hostile.gguf", gguf.of_folder(MODEL, more)),
                             ["hostile.gguf"])

    def test_bytes_as_tokens(self):
        # Values that made another loader write before the beginning of its table.
        for piece in ("<0x-1>", "<0xZZ>", "<0x100>", "<0x>"):
            tokens = ["<unk>"] + [f"<0x{i:02X}>" for i in range(254)] + [piece]
            file = self.write("hostile.gguf", gguf.of_folder(MODEL, {
                "tokenizer.ggml.model": (TEXT, "llama"), "tokenizer.ggml.tokens": (TEXT, tokens),
                "tokenizer.ggml.scores": (F32, [0.0] * 256),
                "tokenizer.ggml.token_type": (I32, [2] + [6] * 255),
                "tokenizer.ggml.unknown_token_id": (U32, 0)}))
            with self.subTest(piece=piece):
                code, message, _ = run_measured("generate", "--model", file, "--prompt", "ab",
                                                "--max-tokens", 1)
                self.assertIn(code, (0, 3), message)

    def test_templates(self):
        for what, template in (("a long loop", "{% for i in range(10**9) %}x{% endfor %}"),
                               ("deep", "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}"),
                               ("an error", "{{ raise_exception('no') }}"),
                               ("much text", "{% set x = 'y' * 10**9 %}{{ x * 10 }}"),
                               ("recursive", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")):
            with self.subTest(what=what):
                file = self.write("hostile.gguf", gguf.of_folder(MODEL, {
                    "tokenizer.chat_template": (TEXT, template)}))
                self.refused(file, flags=("--prompt", "x", "--chat", "--max-tokens", 1))


class PackedFolders(HostileCase):
    def folder_of(self, golden, change_config=None, change_header=None, change_data=None):
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        config = json.loads((GOLDEN / golden / "config.json").read_text())
        if change_config:
            config["quantization_config"].update(change_config)
        (folder / "config.json").write_text(json.dumps(config))
        data = (GOLDEN / golden / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        tensors, rest = json.loads(data[8:8 + size]), bytearray(data[8 + size:])
        if change_header:
            change_header(tensors)
        if change_data:
            change_data(tensors, rest)
        text = json.dumps(tensors).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + rest)
        return folder

    def refuses(self, folder, *parts):
        self.refused(folder, parts, flags=("--prompt-ids", self.write("ids", "1 2 3"),
                                           "--max-tokens", 1))

    def test_configs(self):
        cases = [("packed-awq", {"bits": bits}) for bits in (0, -4, 3, 1 << 31, 2.5, "4")]
        cases += [("packed-awq", {"group_size": size}) for size in (0, -2, 7, 1 << 40, None)]
        cases += [("packed-awq", {"version": "marlin9"}),
                  ("packed-awq", {"quant_method": "x" * 9999}),
                  ("packed-gptq", {"bits": 1 << 62}), ("packed-gptq", {"group_size": 1 << 62}),
                  ("packed-nf4", {"load_in_4bit": False}),
                  ("packed-nf4", {"bnb_4bit_quant_type": "int9"}),
                  ("packed-ct-8bit", {"format": "dense"}),
                  ("packed-ct-8bit", {"config_groups": {}}),
                  ("packed-ct-8bit", {"config_groups": []}), ("packed-ct-8bit", {"ignore": [7]}),
                  ("packed-ct-8bit", {"ignore": ["re:("]})]
        for golden, change in cases:
            with self.subTest(golden=golden, change=str(change)[:60]):
                self.refuses(self.folder_of(golden, change))

    def test_an_ignore_list_that_takes_for_ever(self):
        folder = self.folder_of("packed-ct-8bit", {"ignore": ["re:" + "(.*a)*" * 12 + "$!"]})
        code, message, peak = run_measured("generate", "--model", folder, "--prompt-ids",
                                           self.write("ids", "1 2 3"), "--max-tokens", 1)
        self.assertIn(code, (0, 3), message)
        self.assertLess(peak - self.usual_kib, MOST_MORE_KIB)

    def test_shapes(self):
        def of(suffix, change):
            def apply(tensors):
                for name, entry in tensors.items():
                    if name.endswith(suffix):
                        change(entry)
                        return
                self.fail(suffix)
            return apply
        wide = lambda entry: entry.update(shape=[entry["shape"][0] * entry["shape"][-1], 1])
        typed = lambda dtype: lambda entry: entry.update(dtype=dtype)
        for golden, suffix, change in (
                ("packed-awq", "qweight", wide), ("packed-awq", "qweight", typed("F32")),
                ("packed-awq", "qzeros", wide), ("packed-awq", "scales", wide),
                ("packed-gptq-act", "g_idx", typed("F32")),
                ("packed-ct-8bit", "weight_packed", wide),
                ("packed-ct-ragged", "weight_scale", wide),
                ("packed-nf4", ".weight.absmax", wide), ("packed-nf4", "quant_map", wide)):
            with self.subTest(golden=golden, suffix=suffix):
                self.refuses(self.folder_of(golden, change_header=of(suffix, change)), "model.")
        for golden, suffix in (("packed-awq", "scales"), ("packed-gptq", "qzeros"),
                               ("packed-gptq-act", "g_idx"), ("packed-ct-8bit", "weight_scale"),
                               ("packed-nf4", "absmax")):
            def drop(tensors, suffix=suffix):
                name = next(n for n in tensors if n.endswith(suffix))
                tensors[name + "_"] = tensors.pop(name)
            with self.subTest(golden=golden, missing=suffix):
                self.refuses(self.folder_of(golden, change_header=drop))

    def test_numbers_in_tensors(self):
        def fill(suffix, value):
            def apply(tensors, data):
                for name, entry in tensors.items():
                    if name.endswith(suffix):
                        begin, end = entry["data_offsets"]
                        data[begin:end] = value * ((end - begin) // len(value))
            return apply
        for golden, suffix, value in (
                ("packed-gptq-act", "g_idx", struct.pack("<i", 1 << 30)),
                ("packed-gptq-act", "g_idx", struct.pack("<i", -1)),
                ("packed-ct-act", "weight_g_idx", struct.pack("<i", 77)),
                ("packed-ct-8bit", "weight_shape", struct.pack("<q", 1 << 40)),
                ("packed-ct-8bit", "weight_shape", struct.pack("<q", -1)),
                ("packed-nf4", "bitsandbytes__nf4", b"["),
                ("packed-nf4-nested", "bitsandbytes__nf4", b"9")):
            with self.subTest(golden=golden, suffix=suffix, value=value):
                self.refuses(self.folder_of(golden, change_data=fill(suffix, value)))


if __name__ == "__main__":
    main()
