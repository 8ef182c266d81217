"""The tasks `ppl` and `needle` of `fasa eval`, for any model that transformers loads. The library
makes prompts and questions; a transformers model running on fasa answers them."""
from __future__ import annotations

import copy
import inspect
import math
import sys

import torch
import tqdm

from . import UsageError
from ._core import _Needle, _Perplexity, eval_summary
from .transformers import Cache
from .transformers._enable import reading_prompt

TASKS = ("ppl", "needle")
_CHUNK = 512  # prefill tokens per step, as in `fasa eval`
_SLACK = 4  # tokens of an answer beside its value: blanks before it, its end mark
_COUNTS = {"perplexity": "tokens", "accuracy": "questions"}


class Decode:
    """One sequence: a prompt prefilled with full attention, then decoded tokens with the
    selection."""

    def __init__(self, model, config, cache=None):
        self._model, self._config = model, config
        self._cache = cache if cache is not None else Cache(model, config)
        keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._last = {"logits_to_keep": 1} if keeps else {}

    def fork(self) -> Decode:
        return Decode(self._model, self._config, copy.deepcopy(self._cache))

    def prefill(self, ids) -> None:
        with reading_prompt(self._model):
            for first in range(0, len(ids), _CHUNK):
                self._run(ids[first:first + _CHUNK])

    def step(self, token: int) -> torch.Tensor:
        """Decodes the token; returns the logits after it, [vocabulary]."""
        return self._run([token])

    def _run(self, ids) -> torch.Tensor:
        with torch.inference_mode():
            found = self._model(torch.tensor([ids]), past_key_values=self._cache, **self._last)
        return found.logits[0, -1]


class Tokenizer:
    """A tokenizer of transformers between bytes and ids, without special tokens."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text: bytes) -> list[int]:
        return self._tokenizer(text.decode("utf-8", "replace"),
                               add_special_tokens=False)["input_ids"]

    def decode(self, ids) -> bytes:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False).encode("utf-8")


def _perplexity_record(task, index: int, decode: Decode, stride: int) -> dict:
    file, first, ids = task.example(index)
    prefilled = len(ids) - 1 - stride
    decode.prefill(ids[:prefilled])
    loss = 0.0
    for now, following in zip(ids[prefilled:-1], ids[prefilled + 1:]):
        loss -= torch.log_softmax(decode.step(now).double(), 0)[following].item()
    return {"text": file, "first": first, "tokens": stride,
            "nll": loss if loss == loss else math.inf}


def _needle_record(task, index: int, decode: Decode, tokenizer: Tokenizer) -> dict:
    text, questions = task.example(index)
    decode.prefill(text)
    records = []
    for question, expected, depth in questions:
        run, most = decode.fork(), len(tokenizer.encode(expected.encode())) + _SLACK
        for token in tokenizer.encode(question.encode()):
            logits = run.step(token)
        ids = [int(logits.argmax())]
        while len(ids) < most and not task.is_complete(tokenizer.decode(ids)):
            ids.append(int(run.step(ids[-1]).argmax()))
        answer = tokenizer.decode(ids)
        records.append({"depth": depth, "question": question, "expected": expected,
                        "answer": answer.decode("utf-8", "replace"),
                        "right": task.is_right(answer, expected)})
    return {"tokens": len(text), "questions": records, "right": sum(r["right"] for r in records),
            "asked": len(records)}


def _planned(given, model, tokenizer: Tokenizer, context: int):
    """(task, number of examples, function of index and Decode that returns a record)."""
    most = model.config.get_text_config().max_position_embeddings
    base = (tokenizer.encode, tokenizer.decode, given.model, given.text, most)
    if given.task == "needle":
        task = _Needle(*base, context=context, facts=given.facts, depths=given.depths or [],
                       examples=given.examples, seed=given.seed)
        return task, task.examples, lambda i, decode: _needle_record(task, i, decode, tokenizer)
    stride = max(1, context // 4) if given.stride is None else given.stride
    task = _Perplexity(*base, context=context, stride=stride)
    if (given.examples or 1) > task.examples:
        raise UsageError(f"--examples = {given.examples}: allowed: 1 to {task.examples}, the "
                         "number of windows in the texts")
    return (task, min(given.examples or 16, task.examples),
            lambda i, decode: _perplexity_record(task, i, decode, stride))


def _summary(metric, records) -> dict:
    value, low, high, examples, counted = eval_summary(metric, records)
    return {metric: value, "interval": [low, high], "examples": examples,
            _COUNTS[metric]: counted}


def evaluate(model, tokenizer, config, given) -> dict:
    """The JSON object of `fasa eval --json`, with the records of each task."""
    if given.task not in TASKS:
        raise UsageError(f'unknown task "{given.task}"; allowed: {", ".join(TASKS)} (fasa eval has '
                         "more)")
    if given.examples is not None and given.examples < 1:
        raise UsageError(f"--examples = {given.examples}: allowed: 1 or more")
    if tokenizer is None:
        raise UsageError("the model's folder has no tokenizer; eval needs one")
    most = model.config.get_text_config().max_position_embeddings
    plans = [_planned(given, model, Tokenizer(tokenizer), context)
             for context in given.context or [min(4096, most)]]
    Cache(model, config)  # refuses an unsupported model before any work
    model.set_attn_implementation("fasa")
    tasks, everything = [], []
    for task, examples, record_of in plans:
        records = [{"id": task.id(i), **record_of(i, Decode(model, config))}
                   for i in tqdm.trange(examples, desc=task.name, file=sys.stderr, leave=False)]
        everything += records
        tasks.append({**_summary(task.metric, records), "task": task.name, "records": records})
    return {**_summary(plans[0][0].metric, everything), "task": given.task, "model": given.model,
            "config": config.to_dict(), "tasks": tasks}


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
