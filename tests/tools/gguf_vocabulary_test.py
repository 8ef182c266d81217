"""Vocabularies of GGUF files: their kinds and faults, and the tokens that end an answer."""
import json

import gguf
from published_files import byte_alphabet
from support import MODEL, CommandTest, main

PRE, KIND = "tokenizer.ggml.pre", "tokenizer.ggml.model"
MARK = "q\u0301"  # no composed form
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "<|im_start|>assistant\n")


def spelt(text):
    """A text in the alphabet of bytes."""
    return "".join(byte_alphabet()[byte] for byte in text.encode())


class VocabularyCase(CommandTest):
    def vocabulary(self, tokens, more=None, architecture="llama", types=None):
        """A file with a vocabulary and hardly anything else."""
        keys = {"general.architecture": (gguf.TEXT, architecture), KIND: (gguf.TEXT, "gpt2"),
                PRE: (gguf.TEXT, "gpt-2"), "tokenizer.ggml.tokens": (gguf.TEXT, tokens),
                "tokenizer.ggml.token_type": (gguf.I32, types or [1] * len(tokens)),
                "tokenizer.ggml.merges": (gguf.TEXT, []), **(more or {})}
        return self.write("v.gguf", gguf.gguf(
            {key: value for key, value in keys.items() if value is not None}, {}))

    def pieces(self, file, text, *flags):
        done = self.assert_done("tokenize", "--model", file, "--prompt", text, "--json", *flags)
        return json.loads(done.stdout)["pieces"]

    def decoded(self, file, ids, *flags):
        self.write("ids.json", json.dumps(ids))
        return self.assert_done("tokenize", "--model", file, "--decode", "--prompt-ids",
                                self.folder / "ids.json", *flags).stdout.decode()


class Kinds(VocabularyCase):
    def test_letters_and_marks_by_name(self):
        first, second = spelt(MARK)[:2], spelt(MARK)
        merges = [f"q {first[1]}", f"{first} {second[2]}"]
        for name, pieces in (("qwen35", [second]), ("qwen2", list(second)),
                             ("deepseek-v3", [second]), ("dbrx", list(second))):
            file = self.vocabulary(byte_alphabet() + [first, second], {
                PRE: (gguf.TEXT, name), "tokenizer.ggml.merges": (gguf.TEXT, merges)})
            self.assertEqual(self.pieces(file, MARK), pieces, name)

    def test_gemma4(self):
        words = ["\u2581", "a", "b", "\n", "\n\n", "\u2581a", "ab"]
        tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "</s>", "<|tool_response>"] + [
            f"<0x{byte:02X}>" for byte in range(256)] + words
        keys = {KIND: (gguf.TEXT, "gemma4"), PRE: None,
                "tokenizer.ggml.scores": (gguf.F32, [0.0] * len(tokens)),
                "tokenizer.ggml.merges": (gguf.TEXT, ["\n \n", "\u2581 a", "a b"]),
                "tokenizer.ggml.bos_token_id": (gguf.U32, 2),
                "tokenizer.ggml.unknown_token_id": (gguf.U32, 3),
                "tokenizer.ggml.add_bos_token": (gguf.BOOL, False)}
        types = [3, 1, 3, 3, 1, 1] + [6] * 256 + [1] * len(words)
        file = self.vocabulary(tokens, keys, "gemma4", types)
        self.assertEqual(self.pieces(file, "a ab\n\n\nb", "--add-special"),
                         ["<bos>", "a", "\u2581a", "b", "\n\n", "\n", "b"])
        self.assertEqual(self.pieces(file, "\u00e9"), ["<0xC3>", "<0xA9>"])
        self.assertEqual(self.decoded(file, [tokens.index(one) for one in (
            "\u2581a", "\n\n", "<0xC3>", "<0xA9>")]), " a\n\n\u00e9")
        # Ends by their spelling are controls, but </s> beside <|tool_response> is a text.
        ids = [tokens.index(one) for one in ("a", "<eos>", "</s>", "<|tool_response>")]
        self.assertEqual(self.decoded(file, ids, "--skip-special"), "a</s>")

    def test_no_name_is_a_warning_that_says_how_to_repair_it(self):
        file = self.vocabulary(byte_alphabet(), {PRE: None})
        done = self.assert_done("tokenize", "--model", file, "--prompt", "a1")
        self.assertIn("tokenizer.ggml.pre is missing", done.stderr.decode())
        self.assertIn("--pre NAME", done.stderr.decode())
        done = self.assert_done("tokenize", "--model", file, "--prompt", "a1", "--pre", "qwen2")
        self.assertEqual(done.stderr, b"")
        file = self.vocabulary(byte_alphabet(), {PRE: (gguf.TEXT, "default")})
        done = self.assert_done("tokenize", "--model", file, "--prompt", "a1")
        self.assertIn("is \"default\"", done.stderr.decode())

    def test_pre_where_it_cannot_apply(self):
        file = self.vocabulary(byte_alphabet())
        self.assert_fails(2, ["--pre nosuch", "qwen2"], "tokenize", "--model", file, "--prompt",
                          "a", "--pre", "nosuch")
        self.assert_fails(2, ["--pre qwen2", "GGUF"], "tokenize", "--model", MODEL, "--prompt", "a",
                          "--pre", "qwen2")
        file = self.vocabulary(byte_alphabet(), {KIND: (gguf.TEXT, "llama")})
        self.assert_fails(2, ["--pre qwen2", "llama"], "tokenize", "--model", file, "--prompt", "a",
                          "--pre", "qwen2")

    def test_other_kinds_are_named(self):
        for kind in ("none", "no_vocab"):
            file = self.vocabulary(byte_alphabet(), {KIND: (gguf.TEXT, kind)})
            self.assert_fails(3, ["no tokenizer"], "tokenize", "--model", file, "--prompt", "a")
        for key, value in ((KIND, "bert"), (PRE, "kimi-k2")):
            file = self.vocabulary(byte_alphabet(), {key: (gguf.TEXT, value)})
            self.assert_fails(3, [key, f'"{value}"', "allowed: "], "tokenize", "--model", file,
                              "--prompt", "a")


class Faults(VocabularyCase):
    def test_texts_that_occur_twice_or_not_at_all(self):
        tokens = byte_alphabet() + ["ab", "", "ab", "", "[EMPTY_257]"]
        file = self.vocabulary(tokens, {"tokenizer.ggml.merges": (gguf.TEXT, ["a b"])})
        done = self.assert_done("tokenize", "--model", file, "--prompt", "abab", "--json")
        self.assertEqual(json.loads(done.stdout)["ids"], [256, 256])
        self.assertEqual(self.decoded(file, [256, 258, 97, 257]), "ababa[EMPTY_257]")

    def test_ids_out_of_range_are_warnings(self):
        keys = {f"tokenizer.ggml.{kind}_token_id": (gguf.U32, number) for kind, number in
                (("bos", 256), ("eos", 4294967295), ("padding", 300), ("unknown", 256))}
        keys["tokenizer.ggml.eos_token_ids"] = (gguf.I32, [5, 999])
        keys["tokenizer.ggml.add_bos_token"] = (gguf.BOOL, True)
        file = self.vocabulary(byte_alphabet(), keys)
        done = self.assert_done("tokenize", "--model", file, "--prompt", "a", "--add-special")
        self.assertEqual(len(done.stdout.splitlines()), 1)
        for words in ("bos_token_id names token 256; allowed: 0 to 255",
                      "eos_token_id names token 4294967295", "eos_token_ids names token 999",
                      "padding_token_id names token 300", "unknown_token_id names token 256"):
            self.assertIn(words, done.stderr.decode())

    def test_phi3_takes_white_space_behind_special_tokens(self):
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + [
            "\u2581", "H", "i", "<|endoftext|>", "<|user|>", "<|end|>"]
        types = [2, 3, 4] + [6] * 256 + [1] * 3 + [3] * 3
        keys = {KIND: (gguf.TEXT, "llama"), "general.name": (gguf.TEXT, "Phi3"),
                "tokenizer.ggml.scores": (gguf.F32, [0.0] * len(tokens))}
        text = "<|user|>\nHi<|end|>\n<|endoftext|>\n"
        stripped = ["<|user|>", "\u2581", "H", "i", "<|end|>", "<|endoftext|>", "\u2581", "<0x0A>"]
        for architecture, name, pieces in (
                ("phi3", "Phi3", stripped), ("phi3", "Phi 3.5 Mini", stripped),
                ("llama", "my phi-3 tune", stripped),
                ("llama", "Other", ["<|user|>", "\u2581", "<0x0A>", "H", "i", "<|end|>", "\u2581",
                                    "<0x0A>", "<|endoftext|>", "\u2581", "<0x0A>"])):
            keys["general.name"] = (gguf.TEXT, name)
            file = self.vocabulary(tokens, keys, architecture, types)
            self.assertEqual(self.pieces(file, text), pieces, name)

    def test_borders_of_messages_are_shown(self):
        tokens = byte_alphabet() + ["<|channel|>", "<|message|>", "<|other|>"]
        file = self.vocabulary(tokens, types=[1] * 256 + [3] * 3)
        self.assertEqual(self.decoded(file, [256, 97, 257, 258], "--skip-special"),
                         "<|channel|>a<|message|>")


class Ends(VocabularyCase):
    def model(self, names, kind=3, more=None):
        """The bundled model with more tokens."""
        config = json.loads((MODEL / "config.json").read_text())
        metadata = gguf.llama_metadata(MODEL, config)
        tokens = metadata["tokenizer.ggml.tokens"][1] + names
        metadata |= {"tokenizer.ggml.tokens": (gguf.TEXT, tokens),
                     "tokenizer.ggml.token_type": (gguf.I32, [1] * 256 + [kind] * len(names)),
                     "tokenizer.chat_template": (gguf.TEXT, CHATML), **(more or {})}
        tensors = gguf.llama_tensors(MODEL, config)
        for name in ("token_embd.weight", "output.weight"):
            shape, form, data = tensors[name]
            tensors[name] = ([len(tokens), shape[1]], form, data + bytes(2 * shape[1] * len(names)))
        metadata = {key: value for key, value in metadata.items() if value is not None}
        return self.write("ends.gguf", gguf.gguf(metadata, tensors))

    def end(self, model, token, *flags):
        done = self.assert_done("generate", "--model", model, "--chat", "--prompt", "Hi",
                                "--max-tokens", 2, "--json", "--logit-bias", f"{token}:1000",
                                *flags)
        return json.loads(done.stdout)["end"]

    def ends(self, model):
        done = self.assert_done("info", "--model", model, "--json")
        return [end["id"] for end in json.loads(done.stdout)["model"]["ends"]]

    def test_tokens_that_no_key_names(self):
        names = ["<|im_start|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "[e~["]
        eos = {"tokenizer.ggml.eos_token_id": (gguf.U32, 65)}
        for kind in (3, 1):
            model = self.model(names, kind, eos)
            self.assertEqual(self.ends(model), [65, 257, 258, 259, 260, 261])
            self.assertEqual(self.end(model, 257), "end_of_sequence")
            self.assertEqual(self.end(model, 260), "end_of_sequence")
            self.assertEqual(self.end(model, 256), "max_tokens")
            self.assertIn("<|im_end|>", self.pieces(model, "a<|im_end|>"))
        text = self.assert_done("info", "--model", model).stdout.decode()
        self.assertIn("An answer ends at: 65 A, 257 <|im_end|>, 258 <|end|>", text)

    def test_tokens_that_others_keep_from_ending(self):
        names = ["<|end|>", "<|return|>", "<|call|>", "</s>", "<|tool_response>"]
        model = self.model(names, more={"tokenizer.ggml.eos_token_id": (gguf.U32, 257)})
        self.assertEqual(self.ends(model), [257, 258, 260])
        self.assertEqual(self.end(model, 256), "max_tokens")
        none = {"tokenizer.ggml.eos_token_id": None}
        for names, ends in ((["<|end|>", "<|return|>", "</s>"], [256, 257, 258]),
                            (["<|end|>", "<|calls|>", "<|flush|>"], [257, 258])):
            self.assertEqual(self.ends(self.model(names, more=none)), ends)

    def test_keys_with_several_ids(self):
        model = self.model([], more={"tokenizer.ggml.eos_token_id": None,
                                     "tokenizer.ggml.eos_token_ids": (gguf.I32, [65, 70, -1]),
                                     "tokenizer.ggml.eom_token_id": (gguf.U32, 71)})
        self.assertEqual(self.ends(model), [65, 70, 71])
        self.assertEqual(self.end(model, 70), "end_of_sequence")

    def test_suppressed_tokens_are_never_sampled(self):
        model = self.model([], more={"tokenizer.ggml.suppress_tokens": (gguf.I32, [65, 9999])})
        done = self.assert_done("generate", "--model", model, "--prompt", "Hi", "--max-tokens", 3,
                                "--json", "--logit-bias", "65:1000")
        self.assertNotIn(65, json.loads(done.stdout)["tokens"])

    def test_a_folder_ends_at_the_token_of_its_tokenizer_config(self):
        folder = self.copy_model()
        (folder / "chat_template.jinja").write_text(CHATML)
        self.assertEqual(self.end(folder, 65), "max_tokens")
        self.replace(folder, "tokenizer_config.json", json.dumps({"eos_token": "A"}))
        self.assertEqual(self.end(folder, 65), "end_of_sequence")
        self.assertIn(65, self.ends(folder))
        tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
        tokenizer["added_tokens"] = [
            {"id": 256 + i, "content": text, "special": special, "single_word": False,
             "lstrip": False, "rstrip": False, "normalized": False}
            for i, (text, special) in enumerate((("<|im_end|>", True), ("<|eot_id|>", False)))]
        self.replace(folder, "tokenizer.json", json.dumps(tokenizer))
        self.assertEqual(self.ends(folder)[-2:], [65, 256])

    def test_a_file_of_defaults_never_keeps_a_folder_from_opening(self):
        folder = self.copy_model()
        for text, words in (('{"do_sample": true, "top_k": -1}', "top_k = -1; allowed: "),
                            ('{"eos_token_id": [65, null]}', "allowed: token ids"),
                            ('{"top_p": NaN, "eos_token_id": 65.0}', "65 is taken as an id"),
                            ("{", "the file is ignored"), ("[" * 100, "the file is ignored")):
            self.replace(folder, "generation_config.json", text)
            done = self.assert_done("generate", "--model", folder, "--prompt", "Hi", "--max-tokens",
                                    1)
            self.assertEqual(done.stderr.decode().count(words), 1, text)
            if "65" in text:
                self.assertEqual(self.ends(folder)[:1], [65])


if __name__ == "__main__":
    main()
