"""Public vocabularies of GGUF files against the ids that their makers expect: pairs NAME.gguf.inp,
NAME.gguf.out beside NAME.gguf in build/vocabularies (tools/env vocabularies fetches them)."""
import json
import unittest

from support import SOURCE, CommandTest, main

FOLDER = SOURCE / "build/vocabularies"
# Kinds of models that fasa does not run.
OTHERS = {"bert-bge"}
# Composed here, as by the model's own tokenizer.json, and not in the expected ids.
COMPOSED = {"qwen35"}


@unittest.skipUnless(FOLDER.exists(), "no build/vocabularies: tools/env vocabularies fetches them")
class PublicVocabularies(CommandTest):
    def test_ids(self):
        files = sorted(FOLDER.glob("ggml-vocab-*.gguf"))
        checked = 0
        for file in files:
            name = file.stem.removeprefix("ggml-vocab-")
            given, wanted = (file.with_name(f"{file.name}.{end}") for end in ("inp", "out"))
            if name in OTHERS or not given.exists():
                continue
            with self.subTest(vocabulary=name):
                # Not read_text(): line ends are part of the texts.
                texts = given.read_bytes().decode().split("\n__ggml_vocab_test__\n")
                if texts[-1] == "":  # behind the last border
                    texts.pop()
                lines = self.write("lines", "".join(json.dumps(text) + "\n" for text in texts))
                done = self.assert_done("tokenize", "--model", file, "--lines", lines)
                found = [json.loads(line) for line in done.stdout.splitlines()]
                expected = [[int(number) for number in line.split()]
                            for line in wanted.read_text().splitlines()]
                self.assertEqual(len(found), len(expected))
                wrong = [text for text, one, other in zip(texts, found, expected) if one != other]
                if name in COMPOSED:
                    wrong = [text for text in wrong if text.isascii()]
                self.assertEqual(wrong, [])
                checked += 1
        self.assertGreater(checked, 10)


if __name__ == "__main__":
    main()
