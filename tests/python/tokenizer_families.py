"""Small tokenizers with the settings of families, and texts that exercise them. Families whose
pipeline a class or converter of transformers defines: transformers_families.py.

Vocabularies are trained on the texts of models/texts and on fragments of other scripts."""
import functools
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "\u2581"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
            r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
SCRAPS = ("Ünïcödé naïve Äpfel Straße été cœur año\u0301 e\u0301a\u0308 Ελληνικά русский язык "
          "עברית "
          "العربية हिन्दी ไทย 日本語のテキスト 中文文本，没有空格。한국어 각 😀👍🏽👩‍👩‍👧 ①②½¼ ٠١٢ x²⁰ ﬁ Å "
          "don't I'll we've IT'S 1234567 3.14159 0x7f\r\n\r\n\t\tif (x == 1) { return; }\n"
          "  // ~~ \n")


@functools.cache
def corpus():
    texts = [(ROOT / "models/texts" / name).read_text() for name in
             ("ruth.txt", "state-of-the-union-1996.txt")]
    return [text[:12000] for text in texts] + [SCRAPS] * 3


def trained(pre_tokenizer, alphabet, size=900, limit=100_000):
    """Trains a vocabulary with at most so many characters; returns (vocabulary, merges)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False,
                                  limit_alphabet=limit)
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@functools.cache
def byte_level_pieces():
    return trained(pre_tokenizers.ByteLevel(add_prefix_space=False),
                   pre_tokenizers.ByteLevel.alphabet())


@functools.cache
def sentence_pieces():
    """A vocabulary in SentencePiece's form: <unk>, <s>, </s>, the bytes, then pieces with marks."""
    vocabulary, merges = trained(pre_tokenizers.Metaspace(), [])
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [piece for piece in vocabulary if piece not in pieces]
    return {piece: i for i, piece in enumerate(pieces)}, merges


def special(content, **settings):
    return AddedToken(content, special=True, normalized=False, **settings)


def byte_level(splits=(), use_regex=False, add_prefix_space=False, normalizer=None, ignore=False,
               first=(), tokens=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), template=None,
               post=True):
    vocabulary, merges = byte_level_pieces()
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.Split(Regex(split), "isolated") for split in splits] + list(first)
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex))
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([t if isinstance(t, AddedToken) else special(t) for t in tokens])
    if template is not None:
        ids = [(name, tokenizer.token_to_id(name)) for name in template.split() if name != "$A"]
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=template, pair=f"{template} $B",
                                          special_tokens=ids)])
    elif post:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def sentence(normalizer=None, pre_tokenizer=None, decoder=None, tokens=(), byte_fallback=True,
             fuse_unk=True, unk="<unk>", bytes_kept=256, template="<s> $A",
             specials_normalized=False, ignore=False):
    vocabulary, merges = sentence_pieces()
    dropped = {f"<0x{byte:02X}>" for byte in range(bytes_kept, 256)}
    pieces = [piece for piece in vocabulary if piece not in dropped]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=unk,
                                     fuse_unk=fuse_unk, byte_fallback=byte_fallback,
                                     ignore_merges=ignore))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder or decoders.Sequence([
        decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(content=" ", left=1)])
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=specials_normalized)
                          for name in ("<unk>", "<s>", "</s>")])
    tokenizer.add_tokens(list(tokens))
    ids = [(name, tokenizer.token_to_id(name)) for name in template.split() if name != "$A"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=f"{template} $B:1", special_tokens=ids)
    return tokenizer


def marks(prepend=True):
    steps = [normalizers.Prepend(MARK)] if prepend else []
    return normalizers.Sequence(steps + [normalizers.Replace(" ", MARK)])


def families():
    """All tokenizers: name -> tokenizer."""
    phi3 = [special(name, rstrip=True) for name in
            ("<|user|>", "<|assistant|>", "<|end|>", "<|system|>")]
    blanks = [AddedToken(" " * count, normalized=True, special=False) for count in range(2, 9)]
    deepseek = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
                AddedToken("<｜User｜>", normalized=True, special=False),
                AddedToken("<｜Assistant｜>", normalized=True, special=False),
                AddedToken("<|EOT|>", normalized=True, special=True),
                AddedToken("<｜fim▁hole｜>", normalized=True, special=False)]
    odd = ["<|endoftext|>", special("<left>", lstrip=True), special("<right>", rstrip=True),
           special("<both>", lstrip=True, rstrip=True), special("<end", lstrip=True),
           AddedToken("word", single_word=True, normalized=False),
           AddedToken("einWort", single_word=True, normalized=True),
           AddedToken(" the", normalized=False), AddedToken("café", normalized=True),
           AddedToken("\t", normalized=False)]
    return {
        "gpt-2": byte_level(use_regex=True, tokens=["<|endoftext|>"]),
        "gpt-2 prefix": byte_level(use_regex=True, add_prefix_space=True),
        "llama-3": byte_level([LLAMA3], ignore=True, template="<|endoftext|> $A"),
        "phi-4": byte_level([LLAMA3]),
        "nfd": byte_level([QWEN2], normalizer=normalizers.NFD(), tokens=odd),
        "deepseek": byte_level(DEEPSEEK, tokens=deepseek, normalizer=normalizers.Sequence([]),
                               template="<｜begin▁of▁sentence｜> $A"),
        "neox": byte_level(use_regex=True, normalizer=normalizers.NFC(),
                           tokens=["<|endoftext|>", "<|padding|>"] + blanks,
                           add_prefix_space=False),
        "starcoder": byte_level(first=[pre_tokenizers.Digits(individual_digits=True)],
                                use_regex=True, tokens=["<|endoftext|>", "<fim_prefix>"]),
        "digits": byte_level(first=[pre_tokenizers.Digits(individual_digits=False)],
                             use_regex=True),
        "punctuation": byte_level(first=[pre_tokenizers.Punctuation("contiguous"),
                                         pre_tokenizers.Digits(individual_digits=True)]),
        "odd tokens": byte_level([LLAMA3], tokens=odd, post=False),
        "odd tokens normalized": byte_level([LLAMA3], tokens=odd, normalizer=normalizers.NFC()),
        "llama-2": sentence(marks()),
        "mistral": sentence(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first",
                                                                   split=False)),
        "metaspace always": sentence(
            pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
            decoder=decoders.Metaspace(prepend_scheme="always")),
        "metaspace never": sentence(
            pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never", split=True),
            decoder=decoders.Metaspace(prepend_scheme="never")),
        "metaspace first split": sentence(
            normalizer=normalizers.Strip(),
            pre_tokenizer=pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex("[,.]"), "removed"),
                pre_tokenizers.Metaspace(prepend_scheme="first", split=True)])),
        "phi-3": sentence(marks(), tokens=phi3),
        "llama-2 normalized specials": sentence(marks(), specials_normalized=True),
        "unknown": sentence(marks(), byte_fallback=False),
        "unknown apart": sentence(marks(), byte_fallback=False, fuse_unk=False),
        "unknown none": sentence(marks(), byte_fallback=False, unk=None),
        "some bytes": sentence(marks(), bytes_kept=200),
        "some bytes apart": sentence(marks(), bytes_kept=200, fuse_unk=False, ignore=True),
        "no decoder steps": sentence(marks(False), decoder=decoders.Fuse()),
        "strip both": sentence(
            normalizers.Sequence([normalizers.Strip(left=True, right=True),
                                  normalizers.Replace(Regex(r"\s+"), " "), marks()]),
            decoder=decoders.Sequence([decoders.Replace(Regex("[\u2581_]"), " "),
                                       decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(content=" ", left=2)])),
        "merged with next": byte_level(first=[
            pre_tokenizers.Split("\n", "merged_with_next"),
            pre_tokenizers.Split(Regex(r"\w+"), "isolated", invert=True),
            pre_tokenizers.Split(Regex("e|(?=x)"), "contiguous"),
            pre_tokenizers.Split("q", "removed")]),
    }


def letters():
    return [range(0x20, 0x7f), range(0xa0, 0x250), range(0x300, 0x370), range(0x370, 0x530),
            range(0x5d0, 0x5eb), range(0x620, 0x670), range(0x900, 0x980), range(0xac00, 0xd7a4),
            range(0x1100, 0x1200), range(0x2000, 0x2070), range(0x2150, 0x2190),
            range(0x3000, 0x3100), range(0x4e00, 0x9fff), range(0xf900, 0xfb50),
            range(0x1d400, 0x1d800), range(0x1f300, 0x1f700), range(0x20000, 0x2a000)]


class Texts:
    """Random texts: corpus words, white space, special tokens spelt out, characters of all
    scripts."""

    def __init__(self, tokenizer, seed):
        self.random = random.Random(seed)
        self.words = " ".join(corpus()[:2]).split()[:4000] + SCRAPS.split()
        self.tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self.scripts = letters()

    def character(self):
        if self.random.random() < 0.15:
            point = self.random.randrange(0x110000)
            return chr(point) if not 0xd800 <= point < 0xe000 else "\ufffd"
        script = self.random.choice(self.scripts)
        return chr(self.random.choice(script))

    def part(self):
        kind = self.random.random()
        if kind < 0.35:
            return self.random.choice(self.words)
        if kind < 0.6:
            blanks = " " if self.random.random() < 0.6 else " \n\t\r\u00a0\u3000\u2028\u200d"
            return "".join(self.random.choices(blanks, k=self.random.choice((1, 1, 1, 2, 3, 5))))
        if kind < 0.68 and self.tokens:
            token = self.random.choice(self.tokens)
            return (token if self.random.random() < 0.8
                    else token[:self.random.randrange(len(token))])
        if kind < 0.75:
            return str(self.random.randrange(10 ** self.random.randrange(1, 9)))
        if kind < 0.82:
            return "".join(self.random.choices("!?.,;:'\"()[]{}<>|/\\@#$%^&*-_=+~`", k=2))
        return "".join(self.character() for _ in range(self.random.choice((1, 1, 2, 4))))

    def next(self):
        return "".join(self.part() for _ in range(self.random.choice((1, 2, 4, 8, 16))))
