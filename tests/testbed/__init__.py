"""Trains the small models behind the tests and demos: recipes of plain texts, planted facts and
repeated passages, PyTorch and transformers, Hugging Face folders. docs/testbed.md describes it."""


class RecipeError(Exception):
    """Unusable input. The message says what was given, what is allowed and what to do."""
