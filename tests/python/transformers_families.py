"""Small tokenizers as transformers' own classes and converters make them, by family."""
import base64
import collections
import functools
import json
import pathlib
import tempfile

from tokenizer_families import MARK, corpus, special, trained
from tokenizers import AddedToken, Regex, pre_tokenizers, processors
from transformers import (CohereTokenizer, GemmaTokenizer, GPT2Tokenizer, Qwen2Tokenizer,
                          Qwen3_5Tokenizer)
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode
from transformers.integrations.mistral.tokenizer import MistralConverter

# The words of o200k, which gpt_oss has.
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# As TokenizersBackend._patch_mistral_regex has it.
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Line ends follow no other sign.
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|"
        r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ["<|im_start|>", "<|im_end|>"]


class RanksConverter(TikTokenConverter):
    """`vocab_file` is the ranks themselves, {bytes: rank}."""
    load_tiktoken_bpe = staticmethod(lambda ranks: ranks)


def frequent(count):
    """The corpus's most frequent characters. The trainer's own choice among equals is random."""
    counts = collections.Counter("".join(corpus()).replace(" ", MARK))
    return sorted(counts, key=lambda char: (-counts[char], char))[:count]


class Pieces:
    """The vocabularies of one size."""

    def __init__(self, size=900):
        vocabulary, _ = trained(pre_tokenizers.ByteLevel(add_prefix_space=False),
                                pre_tokenizers.ByteLevel.alphabet(), size)
        byte_of = {char: byte for byte, char in bytes_to_unicode().items()}
        ordered = sorted(vocabulary, key=vocabulary.get)
        self.ranks = {bytes(byte_of[c] for c in piece): i for i, piece in enumerate(ordered)}
        # All ways to make a piece, as converters find them.
        self.byte_level = RanksConverter(self.ranks).extract_vocab_merges_from_model(self.ranks)
        self.sentence = trained(pre_tokenizers.Metaspace(), frequent(size // 3), size,
                                limit=size // 3)

    def gemma(self, first):
        """The vocabulary: these tokens, the bytes, then pieces with marks."""
        pieces = first + [f"<0x{byte:02X}>" for byte in range(256)]
        known = set(pieces)
        pieces += [piece for piece in self.sentence[0] if piece not in known]
        return {piece: i for i, piece in enumerate(pieces)}, self.sentence[1]

    def tekken(self, specials):
        """A tekken.json's text."""
        return json.dumps({
            "config": {"pattern": TEKKEN, "default_vocab_size": len(self.ranks) + len(specials),
                       "default_num_special_tokens": len(specials)},
            "special_tokens": [{"rank": i, "token_str": text} for i, text in enumerate(specials)],
            "vocab": [{"rank": rank, "token_bytes": base64.b64encode(piece).decode()}
                      for piece, rank in self.ranks.items()]})


def gpt2_like(pieces, cls, tokens=(), **settings):
    vocabulary, merges = pieces.byte_level
    made = cls(vocab=dict(vocabulary), merges=list(merges), **settings)
    made.add_tokens([special(token) for token in tokens])
    return made.backend_tokenizer


def gemma(pieces):
    vocabulary, merges = pieces.gemma(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    made = GemmaTokenizer(vocab=vocabulary, merges=merges, add_bos_token=True)
    made.add_tokens([special("<start_of_turn>"), special("<end_of_turn>"), special("<|turn>"),
                     special("<turn|>")])
    made.add_tokens([AddedToken(text, normalized=False)
                     for text in ("\n\n", "\n", MARK * 2, "<b>")])
    return made.backend_tokenizer


def tekken(pieces):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tekken.json"
        path.write_text(pieces.tekken(["<unk>", "<s>", "</s>", "[INST]", "[/INST]",
                                       "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]", "<pad>",
                                       "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]"]))
        return MistralConverter(str(path)).converted()


def ranked(pieces, tokens, **settings):
    return RanksConverter(pieces.ranks, extra_special_tokens=tokens, **settings).converted()


def glm(pieces):
    """Every text begins with two tokens."""
    made = ranked(pieces, ["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>",
                           "<|observation|>"])
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="[gMASK]:0 <sop>:0 $A:0", pair="[gMASK]:0 <sop>:0 $A:0 $B:1",
            special_tokens=[(name, made.token_to_id(name)) for name in ("[gMASK]", "<sop>")])])
    return made


def starcoder(pieces):
    """GPT2Tokenizer with digits alone, as the family's tokenizer.json sets."""
    made = gpt2_like(pieces, GPT2Tokenizer, ["<fim_prefix>", "<fim_suffix>"])
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return made


@functools.cache
def transformers_families(size=900):
    """model_type -> tokenizer. Others with the same pipeline: qwen2_moe and qwen3_next (qwen2),
    gemma4 (gemma3), mistral3 (ministral3), olmo3 (llama-3's words, as glm4 without its prefix),
    exaone4 (gpt2)."""
    pieces = Pieces(size)
    return {
        "qwen2": gpt2_like(pieces, Qwen2Tokenizer, CHATML),
        "qwen3_5": gpt2_like(pieces, Qwen3_5Tokenizer, [*CHATML, "<think>", "</think>"]),
        "gemma3": gemma(pieces),
        "ministral3": tekken(pieces),
        "gpt_oss": ranked(pieces, ["<|startoftext|>", "<|endoftext|>", "<|channel|>", "<|start|>",
                                   "<|end|>", "<|message|>"], pattern=O200K),
        "glm4": glm(pieces),
        "seed_oss": ranked(pieces, ["<seed:bos>", "<seed:eos>", "<seed:think>"], pattern=SEED),
        "cohere2": gpt2_like(pieces, CohereTokenizer, ["<|START_OF_TURN_TOKEN|>"],
                             add_bos_token=True),
        "starcoder2": starcoder(pieces),
        "gpt2": gpt2_like(pieces, GPT2Tokenizer),
    }
