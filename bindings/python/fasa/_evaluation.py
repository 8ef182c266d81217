"""Evaluates a transformers model on fasa, with the tasks, examples and files of results of `fasa
eval`."""
from __future__ import annotations

import hashlib
import json
import pathlib
import re
import sys
import time
from dataclasses import dataclass, field

import torch
import tqdm
import transformers

from . import Geometry, UsageError
from ._core import _ResultLog, eval_summary, model_hash
from ._eval_tasks import Decode, Planned, Tokenizer, planned_tasks
from ._scores import MetricsProgram, add_scores
from .transformers import Cache, fingerprint

_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass
class TaskResult:
    task: str
    metric: str
    path: str
    skipped: list[str] = field(default_factory=list)
    resumed: int = 0
    seconds: float = 0.0
    records: list[dict] = field(default_factory=list)


class Evaluation:
    """A model with one selection, and the folder of its results."""

    def __init__(self, model, tokenizer, config, arguments):
        if tokenizer is None:
            raise UsageError("the model's folder has no tokenizer; eval needs one")
        self.model, self.config, self.arguments = model, config, arguments
        self.tokenizer = Tokenizer(tokenizer)
        probe = Cache(model, config)  # refuses an unsupported model before any work
        self._map = probe.session.fc_map
        model.set_attn_implementation("fasa")

    def tasks(self) -> list[Planned]:
        return planned_tasks(self.arguments, self.model, self.tokenizer)

    def decode(self):
        return Decode(self.model, self.config)

    def asked_of(self) -> dict:
        """The part of a report that describes what answered."""
        return {"config": self.config.to_dict()}

    def _geometry(self) -> Geometry:
        shape = fingerprint(self.model)
        return Geometry(layers=shape.layers, kv_heads=shape.kv_heads,
                        query_heads=shape.query_heads, head_dim=shape.key_dim,
                        rotary_dims=shape.rotary_dims)

    def method(self) -> str:
        """The method's name in `fasa eval`, marked as run by transformers."""
        selection = self.config.to_dict()["selection"]
        kind = selection["kind"]
        if kind == "full":
            return "full (transformers)"
        tokens = self.config.fac_tokens_of(self._geometry())
        name = f"{kind} {'+'.join(map(str, tokens)) if isinstance(tokens, list) else tokens}"
        if kind == "fasa":
            geometry = self._geometry()
            low_bit = self.config.low_bit_tokens_of(geometry)
            if low_bit:
                codes = self._value_codes(selection)
                count = "all others" if low_bit == 1.0 and isinstance(low_bit, float) else low_bit
                name += f" and {count} low-bit {codes}"
            chunks = self.config.chunks_of(geometry)
            dtype = self.config.slice_dtype or {"paper": "bf16", "fine": "int4"}.get(
                self.config.slice, "int2")
            name += f", {chunks} FCs {dtype}"
        return f"{name} (transformers)"

    def _value_codes(self, selection) -> str:
        return selection["value_codes"] or ("int4" if self.config.slice == "fine" else "int2")

    def setup(self, task) -> dict:
        selection = dict(self.config.to_dict()["selection"])
        selection.pop("map", None)
        selection["fac_tokens"] = self.config.fac_tokens_of(self._geometry())
        selection["low_bit_tokens"] = self.config.low_bit_tokens_of(self._geometry())
        selection["value_codes"] = self._value_codes(selection)
        dtype = _DTYPES[self.model.dtype]
        chosen = "all" if self._map is None else hashlib.sha256(
            json.dumps([[head.chunks for head in layer] for layer in self._map.heads]).encode()
        ).hexdigest()
        return {"model": pathlib.Path(self.arguments.model).resolve().name,
                "model_hash": model_hash(fingerprint(self.model)), "dtype": dtype,
                "row_dtype": self.config.row_dtype or dtype, "method": self.method(),
                "selection": selection, "slice_dims": chosen,
                "runner": f"transformers {transformers.__version__}", "task": task.name,
                "metric": task.metric, "task_setup": task.setup}

    def run(self, planned: Planned) -> TaskResult:
        task = planned.task
        setup = {**self.setup(task), **planned.setup}
        result = TaskResult(task.name, task.metric, results_path(self.arguments.results, setup),
                            planned.problems)
        log = _ResultLog(result.path, setup, self.arguments.fresh)
        start = time.perf_counter()
        for index in tqdm.trange(planned.examples, desc=task.name, file=sys.stderr, leave=False):
            name = task.id(index)
            record = log.find(name)
            if record is None:
                record = {"id": name, **planned.record_of(index, self.decode())}
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
        raise UsageError(f'--results = "{path}": {error.strerror}; give an existing '
                         "folder, or one that can be created") from error


_COUNTS = {"perplexity": "tokens", "accuracy": "questions"}


def _summary(metric, records) -> dict:
    value, low, high, examples, counted = eval_summary(metric, records)
    counts = {_COUNTS[metric]: counted} if metric in _COUNTS else {}
    return {metric: value, "interval": [low, high], "examples": examples, **counts}


def _pooled(results: list[TaskResult], summaries: list[dict]) -> dict:
    """The summary of all tasks: of their records or, for scores, the mean with equal weights."""
    metric = results[0].metric
    if metric != "score" or len(results) == 1:
        return _summary(metric, [record for one in results for record in one.records])
    pooled = _summary(metric, [{"score": one[metric]} for one in summaries if one["examples"]])
    return {**pooled, "examples": sum(one["examples"] for one in summaries)}


def report(evaluation: Evaluation, results: list[TaskResult]) -> dict:
    """The JSON object of `fasa eval --json`."""
    given = evaluation.arguments
    summaries = [_summary(one.metric, one.records) for one in results]
    skipped = [problem for one in results for problem in one.skipped]
    return {**_pooled(results, summaries), "task": given.task, "model": given.model,
            "method": evaluation.method(), **evaluation.asked_of(),
            "skipped_lines": len(skipped), "notes": skipped,
            "tasks": [{**summary, "task": one.task, "resumed": one.resumed, "seconds": one.seconds,
                       "results": one.path} for one, summary in zip(results, summaries)]}


def _value(one: dict) -> str:
    low, high = one["interval"]
    if "perplexity" in one:
        return (f"perplexity {one['perplexity']:.4f} (95 %: {low:.4f} to {high:.4f}); "
                f"{one['examples']} examples, {one['tokens']} tokens")
    if "accuracy" in one:
        return (f"accuracy {100 * one['accuracy']:.1f} % "
                f"(95 %: {100 * low:.1f} to {100 * high:.1f}); "
                f"{one['examples']} examples, {one['questions']} questions")
    return f"score {one['score']:.1f} (95 %: {low:.1f} to {high:.1f}); {one['examples']} examples"


def table(found: dict) -> str:
    lines = [*found["notes"], f"{found['model']}, {found['method']}"]
    for one in found["tasks"]:
        before = f", {one['resumed']} from before" if one["resumed"] else ""
        lines.append(f"{one['task']}: {_value(one)}{before}")
        lines.append(f"Results in {one['results']}")
    if len(found["tasks"]) > 1:
        lines.append(f"all: {_value(found)}")
    return "\n".join(lines)


def evaluate(evaluation: Evaluation) -> dict:
    arguments = evaluation.arguments
    tasks = evaluation.tasks()
    metrics = MetricsProgram(arguments.metrics_python) if tasks[0].scored_apart else None
    make_folder(arguments.results)
    results = []
    for planned in tasks:
        result = evaluation.run(planned)
        if metrics is not None:
            add_scores(metrics.score(result.path), result.records)
        results.append(result)
    return report(evaluation, results)
