"""Evaluates a server with OpenAI's completions API: the questions of `fasa eval`, sent as token
ids. Works with any such server."""
from __future__ import annotations

import json
import pathlib
import types
import urllib.error
import urllib.parse
import urllib.request

from . import InputError, UsageError
from ._eval_tasks import Planned, Sampling, Tokenizer, planned_tasks
from ._evaluation import Evaluation

_SECONDS = 3600  # timeout of an answer
_MOST_BYTES = 64 << 20


class Server:
    """Raises InputError if the server does not answer or its answer is invalid."""

    def __init__(self, url: str, model: str | None = None, key: str | None = None):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UsageError(f'--server = "{url}": allowed: http://HOST:PORT or https://HOST')
        self.url = url.rstrip("/").removesuffix("/v1")
        self._key = key
        names = self._names()
        if model is not None and model not in names:
            raise UsageError(f'--server-model = "{model}": allowed: {", ".join(names)}')
        self.model = model or names[0]

    def _names(self) -> list[str]:
        try:
            names = [one["id"] for one in self._ask("/v1/models")["data"]]
        except (KeyError, TypeError) as error:
            raise InputError(f"{self.url}/v1/models: the answer is not a list of "
                             f"models: {error!r}") from error
        if not names:
            raise InputError(f"{self.url}/v1/models lists no model")
        return names

    def complete(self, ids: list[int], most: int, sampling: Sampling) -> str:
        found = self._ask("/v1/completions", {
            "model": self.model, "prompt": ids, "max_tokens": most,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed})
        try:
            return str(found["choices"][0]["text"])
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"{self.url}/v1/completions: the answer has no text: {error!r}") from error

    def _ask(self, path: str, body: dict | None = None):
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode("utf-8", "replace").strip()
            raise InputError(f"{self.url}{path}: {error.code}: {said}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{self.url}{path}: {error}; is the server running?") from error


class ServerDecode:
    """As Decode: a sequence that the server goes on with. What was read is sent with every
    question, so a server that caches prefixes reads it once."""

    def __init__(self, server: Server, tokenizer: Tokenizer, ids: tuple[int, ...] = ()):
        self._server, self._tokenizer, self._ids = server, tokenizer, ids

    def fork(self) -> ServerDecode:
        return ServerDecode(self._server, self._tokenizer, self._ids)

    def prefill(self, ids) -> None:
        self._ids = tuple(ids)

    def answer(self, prompt, most: int, sampling: Sampling) -> list[int]:
        return self._tokenizer.encode(
            self._server.complete(list(prompt), most, sampling).encode("utf-8"))

    def reply(self, question, most: int, enough, tokenizer) -> bytes:
        text = self._server.complete([*self._ids, *question], most, Sampling()).encode("utf-8")
        ends = (end for end in range(1, len(text)) if enough(text[:end]))
        return text[:next(ends, len(text))]


class ServerEvaluation(Evaluation):
    """A server, and the folder of its results."""

    def __init__(self, server: Server, config, tokenizer, arguments):
        if tokenizer is None:
            raise UsageError("the model's folder has no tokenizer; eval needs one")
        self.model = types.SimpleNamespace(config=config)
        self.server, self.arguments = server, arguments
        self.tokenizer = Tokenizer(tokenizer)

    def tasks(self) -> list[Planned]:
        if self.arguments.task == "ppl":
            raise UsageError(
                "eval ppl --server: the completions API does not return probabilities of prompt "
                "tokens; allowed with --server: needle, longbench, math")
        return planned_tasks(self.arguments, self.model, self.tokenizer)

    def decode(self) -> ServerDecode:
        return ServerDecode(self.server, self.tokenizer)

    def method(self) -> str:
        return f"{self.server.model} at {urllib.parse.urlsplit(self.server.url).netloc}"

    def asked_of(self) -> dict:
        return {"server": self.server.url, "server_model": self.server.model}

    def setup(self, task) -> dict:
        return {"model": pathlib.Path(self.arguments.model).resolve().name, "method": self.method(),
                **self.asked_of(), "runner": "server", "task": task.name, "metric": task.metric,
                "task_setup": task.setup}
