"""A runtime over NumPy: a prompt by exact attention, then steps that attend to the best tokens."""
import fasa
import numpy as np

LAYERS, KV_HEADS, QUERY_HEADS, DIM = 2, 2, 8, 64
PROMPT, STEPS = 8000, 16

rng = np.random.default_rng(0)


def new(tokens, heads):
    """What a model's projections would give."""
    return rng.standard_normal((tokens, heads, DIM), dtype=np.float32)


geometry = fasa.Geometry(layers=LAYERS, kv_heads=KV_HEADS, query_heads=QUERY_HEADS, head_dim=DIM)
config = fasa.Config(device="emulated", device_memory="64MiB", fac_tokens=128)
runtime = fasa.Runtime(geometry, config, row_dtype="f32")
sequence = runtime.sequence()

for tokens in [PROMPT] + [1] * STEPS:
    runtime.begin_step([(sequence, tokens)])
    for layer in range(LAYERS):
        runtime.append(layer, new(tokens, KV_HEADS), new(tokens, KV_HEADS))
        out = runtime.attend(layer, new(tokens, QUERY_HEADS))  # [tokens, query_heads, head_dim]
    runtime.end_step()

print(f"{len(sequence)} tokens, output of the last step {out.shape}")
print("memory:", runtime.memory())
print("metrics:", runtime.metrics())
