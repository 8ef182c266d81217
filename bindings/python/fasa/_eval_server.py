"""The tasks of `python -m fasa eval` that ask questions, answered by a server with OpenAI's API. It
gets a question as the end of a prompt; after the first turn its prefix cache may hold the text."""
from __future__ import annotations

import json
import os
import urllib.error
import urllib.request

from . import InputError, UsageError
from ._eval_tasks import Tokenizer, planned_tasks, report

_SECONDS = 3600  # a long prompt on a processor takes minutes


class Server:
    """One model of a server, greedy."""

    def __init__(self, url: str, model: str | None, chat: bool):
        if not url.startswith(("http://", "https://")):
            raise UsageError(f'--server = "{url}": allowed: a URL as http://127.0.0.1:8000')
        self._url, self._chat = url.rstrip("/").removesuffix("/v1") + "/v1/", chat
        self.model = model or self._field(self._ask("models"), "models", "data", 0, "id")

    def answer(self, messages: list[str], most: int) -> str:
        """What follows a text, the right answers so far and the last question, in turn."""
        if self._chat:
            path = "chat/completions"
            prompt = {"messages": [{"role": ("user", "assistant")[i % 2], "content": text}
                                   for i, text in enumerate(messages)]}
            place = ("choices", 0, "message", "content")
        else:
            path, prompt = "completions", {"prompt": "".join(messages)}
            place = ("choices", 0, "text")
        asked = {"model": self.model, "max_tokens": most, "temperature": 0, **prompt}
        return self._field(self._ask(path, asked), path, *place) or ""

    def _field(self, found, path: str, *keys):
        for key in keys:
            try:
                found = found[key]
            except (LookupError, TypeError):
                raise InputError(f"{self._url}{path}: the response has no {keys}") from None
        if found is not None and not isinstance(found, str):
            raise InputError(f"{self._url}{path}: {keys} of the response is no text")
        return found

    def _ask(self, path: str, body=None):
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self._url + path, data, headers)
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            said = error.read(2000).decode("utf-8", "replace").strip()
            raise InputError(f"{self._url}{path}: status {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise InputError(f"{self._url}{path}: {error}") from error


def _record(task, index: int, server: Server, tokenizer: Tokenizer) -> dict:
    def text(ids):
        return tokenizer.decode(ids).decode("utf-8", "replace")

    ids, questions = task.questions(index)
    before, said, answers = [], text(ids), []
    for question, right, most in questions:
        asked = [*before, said + text(question)]
        answers.append(server.answer(asked, most).encode("utf-8"))
        if task.turns:
            before, said = [*asked, text(right)], ""
    return task.record(index, answers)


def evaluate(config, tokenizer, given) -> dict:
    """As _evaluation.evaluate(); `config`: that of transformers."""
    if given.question == "decode":
        raise UsageError("--question = decode: a server reads questions as the end of a prompt; "
                         "allowed with --server: prefill")
    coder = Tokenizer(tokenizer)
    planned = planned_tasks(given, config, coder, True)
    if not planned[0].asks:
        raise UsageError(f"--server: eval {given.task} asks no questions; allowed: needle, turns, "
                         "retrieval, extract, ruler, longbench2")
    chat = given.chat == "always" or (given.chat == "auto" and bool(tokenizer.chat_template))
    server = Server(given.server, given.served_model, chat)
    return report(given, planned, lambda task, index: _record(task, index, server, coder),
                  {"server": given.server, "served_model": server.model, "chat": chat})
