"""Agents' requests, in files of agents/: each is answered, whatever it sends back.

A file has a client, its version, the source of the shapes, and turns. A turn is a request of its
own, begins a conversation ("starts"), or goes on with one ("goes_on"): its body then is the
conversation's with "add" behind its messages. Answers are cut by the field that "limit" names."""
import json

from serving import TOOL_TEMPLATE, Server, ServeTest
from support import SOURCE, main

FILES = sorted((SOURCE / "tests/tools/agents").glob("*.json"))

# What published templates raise for.
SYSTEM_FIRST = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                "{{ raise_exception('The system message must be first.') }}{% endif %}{% endfor %}"
                "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
                "{{ raise_exception('No question of a user.') }}{% endif %}")
ONE_TEXT = ("{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}"
            "{{ raise_exception('Content beside thinking and calls.') }}{% endif %}{% endfor %}")
SHAPES = ("{% for m in messages %}{% if m.content is not string or 'tool_calls' in m and not "
          "m.tool_calls or m.name is none %}{{ raise_exception('A strange message.') }}{% endif %}"
          "{% for c in m.tool_calls or [] %}{% for name, value in c.function.arguments | items %}"
          "{% endfor %}{% endfor %}{% endfor %}")
PLAIN = ("{% for message in messages %}{{ '<' + message.role + '>' + message.content }}"
         "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")


def golden(name):
    return (SOURCE / "tests/template/golden" / f"{name}.jinja").read_text()


TEMPLATES = {"without tools": SHAPES + SYSTEM_FIRST + PLAIN,
             "tagged JSON": SHAPES + SYSTEM_FIRST + ONE_TEXT + TOOL_TEMPLATE,
             "tags per parameter": golden("qwen3_5"), "pairs": golden("gemma4"),
             "channels": ONE_TEXT + golden("gpt_oss"), "mark and name": golden("ministral3")}


def with_limit(body, limit):
    """The body with an answer of three tokens."""
    body, (*path, name) = dict(body), limit.split(".")
    for part in path:
        body[part] = dict(body.get(part, {}))
    (body[path[0]] if path else body)[name] = 3
    return body


class Agents(ServeTest):
    def turns(self, agent, model):
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

    def test_no_turn_is_refused(self):
        tried = []
        for name, template in TEMPLATES.items():
            folder = self.chat_model(template)
            server = Server(self, "--any-model-name", model=folder)
            shown = json.loads(server.ask("POST", "/api/show", {"model": "x"})[2])
            if "tools" not in shown["capabilities"]:
                continue  # a format of calls that is not supported
            tried.append(name)
            for file in FILES:
                agent = json.loads(file.read_text())
                self.assertGreaterEqual(len(agent["turns"]), 6)
                self.assertTrue(agent["client"] and agent["version"] and agent["source"])
                for turn, method, path, body in self.turns(agent, folder.name):
                    status, _, answer = server.ask(method, path, body)
                    where = f"{name}: {file.name}: {turn['name']}: {answer[:400]}"
                    self.assertEqual(status, 200, where)
                    self.assertNotIn(b"event: error", answer, where)
                    if "at_least" in turn:
                        version = [int(n) for n in json.loads(answer)["version"].split(".")]
                        self.assertGreaterEqual(version, turn["at_least"])
                    if "reason" in turn:
                        self.assertEqual(json.loads(answer)["done_reason"], turn["reason"])
            server.stop()
        self.assertEqual(tried, list(TEMPLATES))


if __name__ == "__main__":
    main()
