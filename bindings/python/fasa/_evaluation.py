"""The tasks of `fasa eval`, for any model that transformers loads. The library makes texts and
questions and scores the answers; a transformers model running on fasa gives them."""
from __future__ import annotations

import copy
import inspect
import math

import torch

from . import UsageError
from ._eval_tasks import Tokenizer, planned_tasks, report
from .transformers import Cache
from .transformers._prompt import reading_prompt

_CHUNK = 512  # prefill tokens per step, as in `fasa eval`


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

    def prefill(self, ids) -> torch.Tensor | None:
        """Returns the logits after the last id, [vocabulary]."""
        logits = None
        with reading_prompt(self._model):
            for first in range(0, len(ids), _CHUNK):
                logits = self._run(ids[first:first + _CHUNK])
        return logits

    def step(self, token: int) -> torch.Tensor:
        """Decodes the token; returns the logits after it, [vocabulary]."""
        return self._run([token])

    def _run(self, ids) -> torch.Tensor:
        with torch.inference_mode():
            found = self._model(torch.tensor([ids]), past_key_values=self._cache, **self._last)
        return found.logits[0, -1]


def _perplexity_record(task, index: int, decode: Decode) -> dict:
    record, ids = task.window(index)
    prefilled = len(ids) - 1 - record["tokens"]
    decode.prefill(ids[:prefilled])
    loss = 0.0
    for now, following in zip(ids[prefilled:-1], ids[prefilled + 1:]):
        loss -= torch.log_softmax(decode.step(now).double(), 0)[following].item()
    return {**record, "nll": loss if loss == loss else math.inf}


def _answer(logits, run: Decode, most: int, ends, tokenizer: Tokenizer, is_complete) -> bytes:
    """Decodes greedily, as `fasa eval` does."""
    ids, answer = [], b""
    while (token := int(logits.argmax())) not in ends:
        ids.append(token)
        answer = tokenizer.decode(ids)
        if len(ids) >= most or is_complete(answer):
            break
        logits = run.step(token)
    return answer


def _question_record(task, index: int, decode: Decode, tokenizer: Tokenizer, ends,
                     prefills: bool) -> dict:
    text, questions = task.questions(index)
    decode.prefill(text)
    answers = []
    for number, (question, right, most) in enumerate(questions):
        run = decode if task.turns else decode.fork()
        if prefills:
            logits = run.prefill(question)
        else:
            for token in question:
                logits = run.step(token)
        answering = run.fork() if task.turns else run
        answers.append(_answer(logits, answering, most, ends, tokenizer,
                               lambda answer, number=number: task.is_complete(number, answer)))
        if task.turns:
            for token in right:
                run.step(token)
    return task.record(index, answers)


def _ends(model) -> set[int]:
    ends = model.generation_config.eos_token_id
    return set(ends if isinstance(ends, list) else [ends])


def evaluate(model, tokenizer, config, given) -> dict:
    """The JSON object of `fasa eval --json`, with the records of each task."""
    coder, ends = Tokenizer(tokenizer), _ends(model)
    prefills = given.question == "prefill"
    planned = planned_tasks(given, model.config, coder, prefills)
    Cache(model, config)  # refuses an unsupported model before any work
    model.set_attn_implementation("fasa")

    def record(task, index):
        decode = Decode(model, config)
        if not task.asks:
            return _perplexity_record(task, index, decode)
        return _question_record(task, index, decode, coder, ends, prefills)

    return report(given, planned, record, {"config": config.to_dict()})
