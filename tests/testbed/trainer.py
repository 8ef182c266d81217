"""The training loop: prints progress every few seconds, writes a checkpoint every few minutes and
on interruption. An interrupted run gives the same weights as an uninterrupted one."""
import functools
import json
import os
import signal
import time

import numpy
import torch
from torch.nn.functional import cross_entropy

from testbed import RecipeError, examples, model as models

CHECKPOINT_SECONDS = 120
REPORT_SECONDS = 10


class Progress:
    """Loss, recall and learning rate since the last report, and CPU minutes since step 0."""

    def __init__(self, step, minutes):
        self.step = step
        self._minutes_before = minutes
        self._cpu = time.process_time()
        self._clear()

    def _clear(self):
        self._begun, self._losses, self._bytes = time.monotonic(), [], 0
        self._right = self._asked = 0

    @property
    def minutes(self):
        return self._minutes_before + (time.process_time() - self._cpu) / 60

    def add(self, loss, right, asked, count):
        self.step += 1
        self._losses.append(loss)
        self._right += right
        self._asked += asked
        self._bytes += count

    def due(self):
        return time.monotonic() - self._begun >= REPORT_SECONDS

    def take(self, phase):
        """A record of the steps since the last record."""
        seconds = max(1e-9, time.monotonic() - self._begun)
        record = {"step": self.step, "phase": phase.name, "length": phase.length,
                  "loss": round(sum(self._losses) / len(self._losses), 4),
                  "recall": round(self._right / self._asked, 4) if self._asked else None,
                  "cpu_minutes": round(self.minutes, 2),
                  "tokens_per_s": round(self._bytes / seconds)}
        self._clear()
        return record


def line(record, steps):
    recall = "-" if record["recall"] is None else f"{record['recall']:.3f}"
    return (f"{record['step']:6d}/{steps} {record['phase']:10} loss {record['loss']:.4f}  "
            f"recall {recall:>5}  {record['cpu_minutes']:6.1f} min  "
            f"{record['tokens_per_s']} tokens/s")


class Interrupted(Exception):
    """Called after the checkpoint was written."""


class Trainer:
    """Trains `recipe` in `folder`, which holds checkpoint.pt and log.jsonl. Resumes an interrupted
    run from them: the data depend on seed and step only."""

    def __init__(self, recipe, corpus, template, folder,
                 report=functools.partial(print, flush=True)):
        self.recipe, self.corpus, self.template, self.folder = recipe, corpus, template, folder
        self._report = report
        for phase in recipe.phases:
            corpus.require(phase.length + 1)
        self.model = models.build(recipe)
        self._optimisers = models.optimisers(self.model)
        self._stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        self.progress = Progress(*self._load())

    @property
    def _identity(self):
        return {"recipe": repr(self.recipe), "corpus": self.corpus.hash()}

    def _load(self):
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            (self.folder / "log.jsonl").unlink(missing_ok=True)
            return 0, 0.0
        kept = torch.load(path, weights_only=True)
        if kept["identity"] != self._identity:
            raise RecipeError(f"{path}: the checkpoint belongs to another recipe or corpus; move "
                              f"{self.folder} away, or give another --work")
        self.model.load_state_dict(kept["model"])
        for optimiser, state in zip(self._optimisers, kept["optimisers"]):
            optimiser.load_state_dict(state)
        return kept["step"], kept["minutes"]

    def _save(self):
        part = self.folder / "checkpoint.part"
        torch.save({"identity": self._identity, "model": self.model.state_dict(),
                    "optimisers": [optimiser.state_dict() for optimiser in self._optimisers],
                    "step": self.progress.step, "minutes": self.progress.minutes}, part)
        os.replace(part, self.folder / "checkpoint.pt")

    def _log(self, phase):
        record = self.progress.take(phase)
        with open(self.folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self._report(line(record, self.recipe.steps))

    def _step(self, phase):
        step = self.progress.step
        batch = examples.batch(phase, self.corpus, self.template,
                               numpy.random.default_rng([self.recipe.seed, step]))
        tokens, weights = torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights)
        logits = self.model(tokens[:, :-1], use_cache=False).logits.float()
        losses = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.recipe.rate(step)
            optimiser.step()
            optimiser.zero_grad()
        right, asked = batch.recalled(logits.argmax(-1).numpy())
        self.progress.add(loss.item(), right, asked, weights.numel())

    def _stop(self, signum, frame):
        self._stopping = True

    def run(self):
        handlers = {sign: signal.signal(sign, self._stop)
                    for sign in (signal.SIGINT, signal.SIGTERM)}
        self._report(f"{self.recipe.name}: {len(self.corpus.paths)} texts, {self.corpus.bytes} "
                     f"bytes; from step {self.progress.step} of {self.recipe.steps}")
        try:
            self._run()
        finally:
            for sign, handler in handlers.items():
                signal.signal(sign, handler)

    def _run(self):
        self.model.train()
        saved = time.monotonic()
        while self.progress.step < self.recipe.steps:
            phase, _ = self.recipe.phase_of(self.progress.step)
            self._step(phase)
            last = self.progress.step == self.recipe.steps
            phase_ends = last or self.recipe.phase_of(self.progress.step)[0] is not phase
            if self.progress.due() or phase_ends or self._stopping:
                self._log(phase)
            if last or self._stopping or time.monotonic() - saved >= CHECKPOINT_SECONDS:
                self._save()
                saved = time.monotonic()
            if self._stopping and not last:
                raise Interrupted(f"interrupted at step {self.progress.step}; run the same "
                                  "command to continue")
        self.model.eval()
