"""The tasks of evaluations: the library makes prompts and questions; a transformers model running
on fasa answers them."""
from __future__ import annotations

import copy
import inspect
import math
import pathlib
from dataclasses import dataclass, field
from typing import Callable

import torch

from . import UsageError
from ._core import _LongBench, _Math, _Needle, _Perplexity, _Sampler, data_sets
from .transformers import Cache
from .transformers._enable import reading_prompt

_CHUNK = 512  # prefill tokens per step, as in `fasa eval`
_SLACK = 4  # tokens of an answer beside its value: blanks before it, its end mark
# LongBench tasks whose prompts are never wrapped in a chat template, as in its authors' code: the
# model continues the text.
_PLAIN = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0  # 0 = greedy
    top_p: float = 1.0
    seed: int = 1


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

    def prefill(self, ids) -> torch.Tensor:
        """Returns the logits after the last token, [vocabulary]."""
        with reading_prompt(self._model):
            for first in range(0, len(ids), _CHUNK):
                logits = self._run(ids[first:first + _CHUNK])
        return logits

    def answer(self, prompt, most: int, sampling: Sampling) -> list[int]:
        """Generates up to `most` tokens after the prompt, without the end token."""
        sampler = _Sampler(sampling.temperature, sampling.top_p, sampling.seed)
        logits, ids = self.prefill(prompt), []
        while (token := sampler.next(logits.float().numpy())) not in self._ends():
            ids.append(token)
            if len(ids) == most:
                break
            logits = self.step(token)
        return ids

    def reply(self, question, most: int, enough: Callable[[bytes], bool], tokenizer) -> bytes:
        """Decodes `question`, then generates greedily up to `most` tokens or until `enough`
        holds."""
        for token in question:
            logits = self.step(token)
        ids = [int(logits.argmax())]
        while len(ids) < most and not enough(tokenizer.decode(ids)):
            ids.append(int(self.step(ids[-1]).argmax()))
        return tokenizer.decode(ids)

    def _ends(self) -> list[int]:
        ends = self._model.generation_config.eos_token_id
        return ends if isinstance(ends, list) else [ends]

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

    def chat(self, text: bytes) -> list[int]:
        """A user's message and the beginning of the answer, by the chat template."""
        if self._tokenizer.chat_template is None:
            raise UsageError("--chat: the model's folder has no chat template")
        return self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text.decode("utf-8", "replace")}],
            add_generation_prompt=True, return_dict=True)["input_ids"]


def perplexity_record(task, index: int, decode: Decode, stride: int) -> dict:
    file, first, ids = task.example(index)
    prefilled = len(ids) - 1 - stride
    decode.prefill(ids[:prefilled])
    loss = 0.0
    for now, following in zip(ids[prefilled:-1], ids[prefilled + 1:]):
        loss -= torch.log_softmax(decode.step(now).double(), 0)[following].item()
    return {"text": file, "first": first, "tokens": stride,
            "nll": loss if loss == loss else math.inf}


def needle_record(task, index: int, decode: Decode, tokenizer: Tokenizer) -> dict:
    text, questions = task.example(index)
    decode.prefill(text)
    records = []
    for question, expected, depth in questions:
        answer = _answer(task, tokenizer, decode.fork(), question, expected)
        records.append({"depth": depth, "question": question, "expected": expected,
                        "answer": answer.decode("utf-8", "replace"),
                        "right": task.is_right(answer, expected)})
    return {"tokens": len(text), "questions": records, "right": sum(r["right"] for r in records),
            "asked": len(records)}


def _answer(task, tokenizer, decode, question, expected) -> bytes:
    most = len(tokenizer.encode(expected.encode())) + _SLACK
    return decode.reply(tokenizer.encode(question.encode()), most, task.is_complete, tokenizer)


def longbench_record(task, index: int, decode: Decode, tokenizer: Tokenizer, chat: bool) -> dict:
    if chat and task.name not in _PLAIN:
        reserved = len(tokenizer.chat(b""))
        prompt = tokenizer.chat(tokenizer.decode(task.example(index, reserved)))
    else:
        prompt = task.example(index)
    answer = decode.answer(prompt, task.answer_tokens, Sampling())
    return task.record(index, len(prompt), tokenizer.decode(answer))


def math_record(task, index: int, decode: Decode, tokenizer: Tokenizer, given,
                context: int) -> dict:
    text = task.example(index).encode()
    prompt = tokenizer.chat(text) if given.chat else tokenizer.encode(text)
    answers = []
    for sample in range(given.samples):
        sampling = Sampling(given.temperature, given.top_p, given.seed + sample)
        room = context - len(prompt)  # a problem that fills the context has no answer
        ids = decode.fork().answer(prompt, room, sampling) if room > 0 else []
        answers.append(tokenizer.decode(ids))
    return task.record(index, len(prompt), answers)


@dataclass
class Planned:
    task: object
    examples: int  # to run
    record_of: Callable[[int, Decode], dict]
    problems: list[str] = field(default_factory=list)  # skipped lines of its file
    scored_apart: bool = False  # by the program fasa_metrics
    setup: dict = field(default_factory=dict)  # further settings that determine results


class _Plan:
    def __init__(self, given, model, tokenizer: Tokenizer):
        self._given, self._tokenizer = given, tokenizer
        self._most = model.config.get_text_config().max_position_embeddings
        self._coder = (tokenizer.encode, tokenizer.decode)
        self._texts = (*self._coder, given.model, given.text, self._most)

    def contexts(self) -> list[int]:
        return self._given.context or [min(4096, self._most)]

    def ppl(self) -> list[Planned]:
        return [self._windows(context) for context in self.contexts()]

    def needle(self) -> list[Planned]:
        return [self._facts(context) for context in self.contexts()]

    def longbench(self) -> list[Planned]:
        context = self._one_context()
        return [self._of_file(task, lambda index, decode, task=task: longbench_record(
                    task, index, decode, self._tokenizer, self._given.chat))
                for task in (_LongBench(*self._coder, self._given.data, name, context=context)
                             for name in self._data_sets())]

    def math(self) -> list[Planned]:
        given, context = self._given, self._one_context()
        return [self._of_file(task, lambda index, decode, task=task: math_record(
                    task, index, decode, self._tokenizer, given, context))
                for task in (_Math(*self._coder, str(pathlib.Path(given.data, name + ".jsonl")),
                                   self._most, context=context, samples=given.samples,
                                   pass_k=given.pass_k, temperature=given.temperature,
                                   top_p=given.top_p, seed=given.seed)
                             for name in self._data_sets())]

    def _windows(self, context) -> Planned:
        given = self._given
        stride = max(1, context // 4) if given.stride is None else given.stride
        task = _Perplexity(*self._texts, context=context, stride=stride)
        if (given.examples or 1) > task.examples:
            raise UsageError(f"--examples = {given.examples}: allowed: 1 to {task.examples}, the "
                             "number of windows in the texts")
        return Planned(task, min(given.examples or 16, task.examples),
                       lambda index, decode: perplexity_record(task, index, decode, stride))

    def _facts(self, context) -> Planned:
        given = self._given
        task = _Needle(*self._texts, context=context, facts=given.facts, depths=given.depths or [],
                       examples=given.examples, seed=given.seed)
        return Planned(task, task.examples,
                       lambda index, decode: needle_record(task, index, decode, self._tokenizer))

    def _one_context(self) -> int:
        found = self.contexts()
        if len(found) > 1:
            raise UsageError(f"--context: {len(found)} values; eval {self._given.task} takes one")
        if not 2 <= found[0] <= self._most:
            raise UsageError(f"--context = {found[0]}: allowed: 2 to {self._most}, the number of "
                             "positions of the model")
        return found[0]

    def _data_sets(self) -> list[str]:
        if self._given.chat:
            self._tokenizer.chat(b"")  # fails early if there is no chat template
        return data_sets(self._given.task, self._given.data or "", self._given.tasks or [])

    def _of_file(self, task, record_of) -> Planned:
        return Planned(task, min(self._given.examples or task.examples, task.examples), record_of,
                       task.problems, scored_apart=True,
                       setup={"chat": True} if self._given.chat else {})


TASKS = ("ppl", "needle", "longbench", "math")


def planned_tasks(given, model, tokenizer: Tokenizer) -> list[Planned]:
    """The tasks that `python -m fasa eval`'s arguments request. Raises UsageError, InputError."""
    if given.task not in TASKS:
        raise UsageError(f'unknown task "{given.task}"; allowed: {", ".join(TASKS)}')
    if given.examples is not None and given.examples < 1:
        raise UsageError(f"--examples = {given.examples}: allowed: 1 or more")
    return getattr(_Plan(given, model, tokenizer), given.task)()
