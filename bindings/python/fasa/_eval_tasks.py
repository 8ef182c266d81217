"""The tasks of `python -m fasa eval` and their reports. The library makes texts and questions and
scores the answers; a model in this process or a server gives them."""
from __future__ import annotations

import sys

import tqdm

from . import UsageError
from ._studies import _eval_tasks, _EvalOptions, eval_summary

_COUNTS = {"perplexity": "tokens", "accuracy": "questions"}


class Tokenizer:
    """A tokenizer of transformers between bytes and ids, without special tokens."""

    def __init__(self, tokenizer):
        if tokenizer is None:
            raise UsageError("the model's folder has no tokenizer; eval needs one")
        self._tokenizer = tokenizer

    def encode(self, text: bytes) -> list[int]:
        return self._tokenizer(text.decode("utf-8", "replace"),
                               add_special_tokens=False)["input_ids"]

    def decode(self, ids) -> bytes:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False).encode("utf-8")


def planned_tasks(given, config, tokenizer: Tokenizer, prefills: bool):
    """The tasks for a model with that config of transformers."""
    options = _EvalOptions()
    for name in ("task", "model", "text", "context", "examples", "stride", "facts", "depths",
                 "seed", "records", "data", "tasks"):
        if (value := getattr(given, name)) is not None:
            setattr(options, name, value)
    options.prefill_questions = prefills
    return _eval_tasks(options, config.get_text_config().max_position_embeddings,
                       tokenizer.encode, tokenizer.decode)


def _summary(metric, records) -> dict:
    value, low, high, examples, counted = eval_summary(metric, records)
    return {metric: value, "interval": [low, high], "examples": examples,
            _COUNTS[metric]: counted}


def report(given, planned, record, about: dict) -> dict:
    """The JSON object of all tasks; record(task, index) runs an example."""
    tasks, everything = [], []
    for task in planned:
        records = []
        for i in tqdm.trange(task.examples, desc=task.name, file=sys.stderr, leave=False):
            records.append({"id": task.id(i), **record(task, i)})
        everything += records
        tasks.append({**_summary(task.metric, records), "task": task.name, "records": records})
    return {**_summary(planned[0].metric, everything), "task": given.task, "model": given.model,
            **about, "tasks": tasks, "notes": [note for task in planned for note in task.problems]}


def table(found: dict) -> str:
    """The report as text, a line a task."""
    lines = []
    for one in found["tasks"]:
        low, high = one["interval"]
        if "perplexity" in one:
            lines.append(f"{one['task']}: perplexity {one['perplexity']:.4f} (95 %: {low:.4f} to "
                         f"{high:.4f}); {one['examples']} examples, {one['tokens']} tokens")
        else:
            lines.append(f"{one['task']}: accuracy {100 * one['accuracy']:.1f} % (95 %: "
                         f"{100 * low:.1f} to {100 * high:.1f}); {one['examples']} examples, "
                         f"{one['questions']} questions")
    return "\n".join(lines)
