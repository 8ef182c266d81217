"""llama.cpp's attention over a long context, through llama-cpp-python's plain C calls.

The model has two layers of 8 KV x 4 query heads, head_dim 128, random weights, and is narrow beside
that. Half of what a token takes over the long context more than over a short one is a layer's
attention. The long context is one block of tokens stored repeatedly: read times do not depend on
the contents, and no prompt of that length has to be processed.
"""
import ctypes
import pathlib
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

LAYERS, KV_HEADS, QUERY_HEADS, DIM = 2, 8, 32, 128
WIDTH, VOCABULARY = 256, 64
BLOCK = 256  # tokens, the length that counts as short
FLASH_ATTENTION = 1
KV_TYPES = {"f16": 1, "q8_0": 8}


@llama_cpp.llama_log_callback
def _quiet(*_):
    """Silences llama.cpp's log."""


def write_model(path, positions):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(positions)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(QUERY_HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(DIM)
    writer.add_value_length(DIM)
    writer.add_rope_dimension_count(DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")
    random = np.random.default_rng(0)

    def add(name, *shape):
        values = (random.standard_normal(shape) / np.sqrt(shape[-1]) if len(shape) > 1
                  else np.ones(shape))
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    add("token_embd", VOCABULARY, WIDTH)
    add("output_norm", WIDTH)
    add("output", VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm", WIDTH)
        add(f"blk.{layer}.attn_q", QUERY_HEADS * DIM, WIDTH)
        add(f"blk.{layer}.attn_k", KV_HEADS * DIM, WIDTH)
        add(f"blk.{layer}.attn_v", KV_HEADS * DIM, WIDTH)
        add(f"blk.{layer}.attn_output", WIDTH, QUERY_HEADS * DIM)
        add(f"blk.{layer}.ffn_norm", WIDTH)
        for part in ("gate", "up", "down"):
            add(f"blk.{layer}.ffn_{part}", WIDTH, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _require(ok, what):
    if not ok:
        raise RuntimeError(f"llama.cpp: {what} failed")


class Context:
    """One context of the model, with `blocks` times the same tokens in its first sequence."""

    def __init__(self, model, blocks, threads, kv="f16"):
        settings = llama_cpp.llama_context_default_params()
        settings.type_k = settings.type_v = KV_TYPES[kv]
        settings.n_ctx = (blocks + 1) * BLOCK
        settings.n_batch = settings.n_ubatch = BLOCK
        settings.n_seq_max = 2
        settings.kv_unified = True
        settings.n_threads = settings.n_threads_batch = threads
        settings.flash_attn_type = FLASH_ATTENTION
        self.context = llama_cpp.llama_init_from_model(model, settings)
        _require(self.context, "making a context")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(BLOCK, 0, 1)
        self.decode(range(BLOCK), 0)
        self._repeat(blocks - 1)

    def decode(self, tokens, first):
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token % VOCABULARY
            self.batch.pos[i] = first + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = i + 1 == len(tokens)
        _require(llama_cpp.llama_decode(self.context, self.batch) == 0, "a step")
        llama_cpp.llama_synchronize(self.context)

    def _repeat(self, times):
        size = llama_cpp.llama_state_seq_get_size(self.context, 0)
        state = (ctypes.c_uint8 * size)()
        _require(llama_cpp.llama_state_seq_get_data(self.context, state, size, 0),
                 "reading a state")
        for _ in range(times):
            _require(llama_cpp.llama_state_seq_set_data(self.context, state, size, 1),
                     "storing a block")
            llama_cpp.llama_memory_seq_cp(self.memory, 1, 0, -1, -1)
            llama_cpp.llama_memory_seq_rm(self.memory, 1, -1, -1)

    def token_seconds(self):
        """Seconds of one token over the stored context. It is removed again: the length stays."""
        start = time.perf_counter()
        self.decode([1], BLOCK)
        seconds = time.perf_counter() - start
        llama_cpp.llama_memory_seq_rm(self.memory, 0, BLOCK, -1)
        return seconds


class LlamaCpp:
    def __init__(self, tokens, threads):
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.gguf")
            write_model(path, tokens + 2 * BLOCK)
            settings = llama_cpp.llama_model_default_params()
            settings.use_mmap = False
            self.model = llama_cpp.llama_model_load_from_file(bytes(path), settings)
        _require(self.model, "loading the model")
        self.long = Context(self.model, tokens // BLOCK, threads)
        self.short = Context(self.model, 1, threads)

    def turn(self):
        """Seconds of a layer's attention beyond the short context's."""
        self.short.token_seconds()  # starts the threads
        short = self.short.token_seconds()
        return (self.long.token_seconds() - short) / LAYERS
