"""Agents' requests, in files of agents/: each is answered, whatever it sends back."""
import json

from agent_files import FILES, turns
from serving import TOOL_TEMPLATE, Server, ServeTest, golden
from support import main

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


TEMPLATES = {"without tools": SHAPES + SYSTEM_FIRST + PLAIN,
             "tagged JSON": SHAPES + SYSTEM_FIRST + ONE_TEXT + TOOL_TEMPLATE,
             "tags per parameter": golden("qwen3_5"), "pairs": golden("gemma4"),
             "channels": ONE_TEXT + golden("gpt_oss"), "mark and name": golden("ministral3")}


class Agents(ServeTest):
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
                for turn, method, path, body in turns(agent, folder.name):
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
