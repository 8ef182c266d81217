"""Files as published: a small file for each header in published/ opens, tokenizes, generates, and
ends its turn. A new header needs no code."""
import json

import gguf
import published_files
from support import SOURCE, CommandTest, main

HEADERS = sorted((SOURCE / "tests/tools/published").glob("*.json"))
# Pre-tokenizers that split numbers into digits.
SINGLE_DIGITS = {"qwen2", "qwen35", "tekken", "deepseek-r1-qwen", "refact", "smollm",
                 "deepseek-llm", "starcoder", "command-r", "exaone", "seed-coder"}
ADD_BOS = {"llama-bpe", "tekken"}


class Published(CommandTest):
    def write_parts(self, name, metadata, tensors):
        """-> the first of two files."""
        names = list(tensors)
        for part, own in enumerate((names[:len(names) // 2], names[len(names) // 2:])):
            split = {"split.no": (gguf.U16, part), "split.count": (gguf.U16, 2),
                     "split.tensors.count": (gguf.I32, len(names))}
            keys = {**metadata, **split} if part == 0 else split
            self.write(f"{name}-0000{part + 1}-of-00002.gguf",
                       gguf.gguf(keys, {tensor: tensors[tensor] for tensor in own}))
        return self.folder / f"{name}-00001-of-00002.gguf"

    def write_file(self, name, header):
        metadata, tensors, vocabulary = published_files.small_file(header)
        if metadata.get("split.count", (0, 0))[1] > 1:
            return self.write_parts(name, metadata, tensors), vocabulary
        return self.write(f"{name}.gguf", gguf.gguf(metadata, tensors)), vocabulary

    def check_ends(self, file, header):
        done = self.assert_done("info", "--model", file, "--json")
        ends = json.loads(done.stdout)["model"]["ends"]
        self.assertEqual({end["text"] for end in ends}, set(header["ends"]))

    def check_tokens(self, file, header):
        text = f"{header['begin']}user\nhello 123!! e\u0301{header['turn']}"
        done = self.assert_done("tokenize", "--model", file, "--add-special", "--json", "--prompt",
                                text)
        pieces = json.loads(done.stdout)["pieces"]
        values = {key: entry[1] for key, entry in header["kv"].items() if len(entry) > 1}
        kind, pre = values["tokenizer.ggml.model"], values.get("tokenizer.ggml.pre")
        adds_bos = values.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre in ADD_BOS)
        before = []
        if kind == "gemma4" or (adds_bos and pre != "glm4"):
            bos = header["tokens"][str(values["tokenizer.ggml.bos_token_id"])]
            before = [bos if isinstance(bos, str) else bos[0]]
        self.assertEqual(pieces[:len(before) + 1], [*before, header["begin"]])
        self.assertEqual(pieces[-1], header["turn"])
        self.assertIn("hello", pieces)
        number = ["1", "2", "3"] if kind == "gpt2" and pre in SINGLE_DIGITS else ["123"]
        self.assertEqual([piece for piece in pieces if set(piece) & set("123")], number)

    def check_answers(self, file, header, vocabulary):
        chat = ["--chat"] if "tokenizer.chat_template" in header["kv"] else []

        def answer(token):
            done = self.assert_done("generate", "--model", file, *chat, "--prompt", "hello",
                                    "--max-tokens", 3, "--json", "--logit-bias",
                                    f"{vocabulary.texts.index(token)}:1000")
            return json.loads(done.stdout)
        found = answer("a")
        self.assertEqual((found["text"], found["end"]), ("aaa", "max_tokens"))
        found = answer(header["turn"])
        self.assertEqual((found["tokens"], found["end"]), ([], "end_of_sequence"))

    def test_headers(self):
        self.assertGreater(len(HEADERS), 40)
        for path in HEADERS:
            header = json.loads(path.read_text())
            with self.subTest(header=path.stem):
                file, vocabulary = self.write_file(path.stem, header)
                if "error" in header:
                    self.assert_fails(3, header["error"], "generate", "--model", file, "--prompt",
                                      "hello")
                else:
                    self.check_ends(file, header)
                    self.check_tokens(file, header)
                    self.check_answers(file, header, vocabulary)


if __name__ == "__main__":
    main()
