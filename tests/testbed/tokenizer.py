"""tokenizer.json of a model whose token ids are bytes: BPE without merges."""
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def characters():
    """The character that byte-level tokenizers use for each byte: the byte itself if it is
    printable, else the next unused one from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def byte_tokenizer():
    vocabulary = {character: byte for byte, character in enumerate(characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                                       use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                           use_regex=False)
    return tokenizer
