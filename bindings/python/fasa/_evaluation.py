"""Evaluations of a model of transformers on fasa: the tasks, examples and files of results of `fasa
eval`, the model run by transformers."""
from __future__ import annotations

import copy
import hashlib
import inspect
import json
import math
import pathlib
import re
import sys
import time
from dataclasses import dataclass, field

import torch
import tqdm
import transformers

from . import Geometry, UsageError
from ._core import _Needle, _Perplexity, _ResultLog, eval_summary, model_hash
from .transformers import Cache, fingerprint
from .transformers._enable import reading_prompt

_CHUNK = 512  # tokens of a prompt's step, as `fasa eval` has them
_SLACK = 4  # tokens of an answer beside its value: blanks before it, the mark that ends it
_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class Decode:
    """One sequence: a prompt that is read exactly, then token by token with the selection on."""

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
        """The logits after it, [vocabulary]."""
        return self._run([token])

    def _run(self, ids) -> torch.Tensor:
        with torch.inference_mode():
            found = self._model(torch.tensor([ids]), past_key_values=self._cache, **self._last)
        return found.logits[0, -1]


class Tokenizer:
    """A tokenizer of transformers between bytes and ids, nothing added to either."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def encode(self, text: bytes) -> list[int]:
        return self._tokenizer(text.decode("utf-8", "replace"), add_special_tokens=False)["input_ids"]

    def decode(self, ids) -> bytes:
        return self._tokenizer.decode(ids, clean_up_tokenization_spaces=False).encode("utf-8")


def perplexity_record(task, index: int, decode: Decode, stride: int) -> dict:
    file, first, ids = task.example(index)
    prefilled = len(ids) - 1 - stride
    decode.prefill(ids[:prefilled])
    loss = 0.0
    for now, following in zip(ids[prefilled:-1], ids[prefilled + 1:]):
        loss -= torch.log_softmax(decode.step(now).double(), 0)[following].item()
    return {"text": file, "first": first, "tokens": stride, "nll": loss if loss == loss else math.inf}


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
    for token in tokenizer.encode(question.encode()):
        logits = decode.step(token)
    ids = [int(logits.argmax())]
    most = len(tokenizer.encode(expected.encode())) + _SLACK
    while len(ids) < most and not task.is_complete(tokenizer.decode(ids)):
        ids.append(int(decode.step(ids[-1]).argmax()))
    return tokenizer.decode(ids)


@dataclass
class TaskResult:
    task: str
    metric: str
    path: str
    resumed: int = 0
    seconds: float = 0.0
    records: list[dict] = field(default_factory=list)


class Evaluation:
    """A model with one selection, and where its results go."""

    def __init__(self, model, tokenizer, config, arguments):
        if tokenizer is None:
            raise UsageError("the model's folder has no tokenizer; eval needs one")
        self.model, self.config, self.arguments = model, config, arguments
        self.tokenizer = Tokenizer(tokenizer)
        probe = Cache(model, config)  # refuses what it cannot serve before any work
        self._map = probe.session.fc_map
        model.set_attn_implementation("fasa")

    def tasks(self) -> list:
        """(task, examples to run, record of one)."""
        given = self.arguments
        if given.task not in ("ppl", "needle"):
            raise UsageError(f'unknown task "{given.task}"; allowed: ppl, needle')
        if given.examples is not None and given.examples < 1:
            raise UsageError(f"--examples = {given.examples}: allowed: 1 or more")
        most = self.model.config.get_text_config().max_position_embeddings
        shared = (self.tokenizer.encode, self.tokenizer.decode, given.model, given.text, most)
        plan = self._perplexity if given.task == "ppl" else self._needle
        return [plan(shared, context) for context in given.context or [min(4096, most)]]

    def _perplexity(self, shared, context):
        given = self.arguments
        stride = max(1, context // 4) if given.stride is None else given.stride
        task = _Perplexity(*shared, context=context, stride=stride)
        if (given.examples or 1) > task.examples:
            raise UsageError(f"--examples = {given.examples}: allowed: 1 to {task.examples}, the "
                             "windows of the texts")
        return (task, min(given.examples or 16, task.examples),
                lambda index, decode: perplexity_record(task, index, decode, stride))

    def _needle(self, shared, context):
        given = self.arguments
        task = _Needle(*shared, context=context, facts=given.facts, depths=given.depths or [],
                       examples=given.examples, seed=given.seed)
        return (task, task.examples,
                lambda index, decode: needle_record(task, index, decode, self.tokenizer))

    def method(self) -> str:
        """As `fasa eval` names it, and that transformers runs the model."""
        selection = self.config.to_dict()["selection"]
        kind = selection["kind"]
        if kind == "full":
            return "full (transformers)"
        tokens = selection["fac_tokens"]
        name = f"{kind} {'+'.join(map(str, tokens)) if isinstance(tokens, list) else tokens}"
        if kind == "fasa":
            shape = fingerprint(self.model)
            chunks = self.config.chunks_of(Geometry(
                layers=shape.layers, kv_heads=shape.kv_heads, query_heads=shape.query_heads,
                head_dim=shape.key_dim, rotary_dims=shape.rotary_dims))
            dtype = self.config.slice_dtype or ("bf16" if self.config.slice == "paper" else "int2")
            name += f", {chunks} FCs {dtype}"
        return f"{name} (transformers)"

    def setup(self, task) -> dict:
        selection = dict(self.config.to_dict()["selection"])
        selection.pop("map", None)
        dtype = _DTYPES[self.model.dtype]
        chosen = "all" if self._map is None else hashlib.sha256(
            json.dumps([[head.chunks for head in layer] for layer in self._map.heads]).encode()).hexdigest()
        return {"model": pathlib.Path(self.arguments.model).resolve().name,
                "model_hash": model_hash(fingerprint(self.model)), "dtype": dtype,
                "row_dtype": self.config.row_dtype or dtype, "method": self.method(),
                "selection": selection, "slice_dims": chosen,
                "runner": f"transformers {transformers.__version__}", "task": task.name,
                "metric": task.metric, "task_setup": task.setup}

    def run(self, task, examples, record_of) -> TaskResult:
        setup = self.setup(task)
        result = TaskResult(task.name, task.metric, results_path(self.arguments.results, setup))
        log = _ResultLog(result.path, setup, self.arguments.fresh)
        start = time.perf_counter()
        for index in tqdm.trange(examples, desc=task.name, file=sys.stderr, leave=False):
            name = task.id(index)
            record = log.find(name)
            if record is None:
                record = {"id": name, **record_of(index, Decode(self.model, self.config))}
                log.add(record)
            else:
                result.resumed += 1
            result.records.append(record)
        result.seconds = time.perf_counter() - start
        return result


def results_path(folder, setup) -> str:
    parts = [re.sub("[^A-Za-z0-9.]+", "-", setup[part]) for part in ("task", "method")]
    digest = hashlib.sha256(json.dumps(setup, sort_keys=True).encode()).hexdigest()[:8]
    return str(pathlib.Path(folder, f"{parts[0]}-{parts[1].strip('-')}-{digest}.jsonl"))


def make_folder(path) -> None:
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f'--results = "{path}": {error.strerror}; give a folder that can be made or '
                         "is there") from error


def _summary(metric, records) -> dict:
    value, low, high, examples, counted = eval_summary(metric, records)
    counts = "tokens" if metric == "perplexity" else "questions"
    return {metric: value, "interval": [low, high], "examples": examples, counts: counted}


def report(evaluation: Evaluation, results: list[TaskResult]) -> dict:
    """The object of `fasa eval --json`."""
    given = evaluation.arguments
    pooled = _summary(results[0].metric, [record for one in results for record in one.records])
    return {**pooled, "task": given.task, "model": given.model, "method": evaluation.method(),
            "config": evaluation.config.to_dict(), "skipped_lines": 0, "notes": [],
            "tasks": [{**_summary(one.metric, one.records), "task": one.task, "resumed": one.resumed,
                       "seconds": one.seconds, "results": one.path} for one in results]}


def table(found: dict) -> str:
    lines = [f"{found['model']}, {found['method']}"]
    for one in found["tasks"]:
        low, high = one["interval"]
        if "perplexity" in one:
            value = f"perplexity {one['perplexity']:.4f} (95 %: {low:.4f} to {high:.4f})"
            counted = f"{one['tokens']} tokens"
        else:
            value = f"accuracy {100 * one['accuracy']:.1f} % (95 %: {100 * low:.1f} to {100 * high:.1f})"
            counted = f"{one['questions']} questions"
        before = f", {one['resumed']} from before" if one["resumed"] else ""
        lines.append(f"{one['task']}: {value}; {one['examples']} examples, {counted}{before}")
        lines.append(f"Results in {one['results']}")
    return "\n".join(lines)


def evaluate(model, tokenizer, config, arguments) -> dict:
    evaluation = Evaluation(model, tokenizer, config, arguments)
    tasks = evaluation.tasks()
    make_folder(arguments.results)
    return report(evaluation, [evaluation.run(*task) for task in tasks])
