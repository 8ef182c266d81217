"""Shared by the tests of the Python package."""
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/needle-3m"
EVERYTHING = 1 << 20  # fac_tokens beyond every context: every token is attended to


@pytest.fixture(scope="session")
def text_ids():
    """The bundled model's tokens for a text: its bytes."""
    return list((ROOT / "models/texts/ruth.txt").read_bytes())


def _load(attention):
    import torch
    import transformers

    torch.set_num_threads(1)  # the model is small: more threads would wait for each other
    transformers.utils.logging.disable_progress_bar()
    return transformers.AutoModelForCausalLM.from_pretrained(
        MODEL, attn_implementation=attention, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def plain():
    """The bundled model with transformers' own attention."""
    return _load("sdpa")


@pytest.fixture(scope="session")
def model():
    """The bundled model with fasa's attention."""
    import fasa.transformers  # noqa: F401  registers the attention

    return _load("fasa")
