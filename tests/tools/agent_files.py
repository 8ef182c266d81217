"""Agents' requests, in files of agents/.

A file has a client, its version, the source of the shapes, and turns. A turn is a request of its
own, begins a conversation ("starts"), or goes on with one ("goes_on"): its body then is the
conversation's with "add" behind its messages. Answers are cut by the field that "limit" names."""
import json

from support import SOURCE

FILES = sorted((SOURCE / "tests/tools/agents").glob("*.json"))


def with_limit(body, limit):
    """The body with an answer of three tokens."""
    body, (*path, name) = dict(body), limit.split(".")
    for part in path:
        body[part] = dict(body.get(part, {}))
    (body[path[0]] if path else body)[name] = 3
    return body


def turns(agent, model):
    """(name, method, path, body) of each request."""
    talks = {}
    for turn in agent["turns"]:
        body, talk = turn.get("body"), turn.get("starts") or turn.get("goes_on")
        if "goes_on" in turn:
            last = talks[talk]
            field = "input" if "input" in last else "messages"
            body = {**last, **(body or {}), field: last[field] + turn["add"]}
        if talk:
            talks[talk] = body
        if body is not None and "count_tokens" not in turn["path"] and "reason" not in turn:
            limited = with_limit(body, "max_tokens" if turn["path"].startswith("/v1/chat")
                                 else agent["limit"])
        else:
            limited = body
        text = None if limited is None else json.dumps(limited).replace('"MODEL', f'"{model}')
        yield turn, turn.get("method", "POST"), turn["path"], text
