"""The page shows the reasoning, text and calls of each format of answers."""
import json
import re

from page import LAST, PageTest
from serving import TEMPLATE
from support import SOURCE, main


def golden(name):
    return (SOURCE / "tests/template/golden" / f"{name}.jinja").read_text()


CALL = '{"name": "now", "arguments": {}}'
THINK = "<think>\nIt asks for the time.\n</think>\n\n"
# By format: its marks, which a template names, or a template; then reasoning and a call.
FORMATS = {
    "hermes": (golden("exaone4"), f"{THINK}I look.\n<tool_call>\n{CALL}\n</tool_call>"),
    "qwen-tags": (golden("qwen3_5"), "It asks for the time.\n</think>\n\nI look.\n<tool_call>\n"
                  "<function=now>\n</function>\n</tool_call>"),
    "seed-tags": (golden("seed_oss"), "<seed:think>It asks for the time.</seed:think>I look."
                  "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>"),
    "glm-tags": ("<tool_call> <arg_key> </arg_key> <arg_value> </arg_value> </tool_call>",
                 f"{THINK}I look.<tool_call>now</tool_call>"),
    "gemma-pairs": (golden("gemma4"), "<|channel>thought\nIt asks for the time.<channel|>I look."
                    "<|tool_call>call:now{}<tool_call|>"),
    "function-gemma": ("<start_function_call>call: <escape> <end_function_call>",
                       f"{THINK}I look.<start_function_call>call:now{{}}<end_function_call>"),
    "channels": (golden("gpt_oss"), "<|channel|>analysis<|message|>It asks for the time.<|end|>"
                 "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>"
                 "assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"),
    "actions": ("<|START_THINKING|> <|START_ACTION|> <|END_ACTION|>",
                "<|START_THINKING|>It asks for the time.<|END_THINKING|>"
                '<|START_RESPONSE|>I look.<|END_RESPONSE|><|START_ACTION|>[{"tool_call_id": "0", '
                '"tool_name": "now", "parameters": {}}]<|END_ACTION|>'),
    "python-calls": (golden("olmo3"), f"{THINK[8:]}I look.<function_calls>now()</function_calls>"),
    "mistral-arguments": (golden("ministral3"), "[THINK]It asks for the time.[/THINK]I look."
                          "[TOOL_CALLS]now[ARGS]{}"),
    "mistral-list": ("[TOOL_CALLS]", f"{THINK}I look.[TOOL_CALLS][{CALL}]"),
    "phi-list": ("<|tool_call|> <|/tool_call|>",
                 f"{THINK}I look.<|tool_call|>[{CALL}]<|/tool_call|>"),
    "nemotron-list": ("<TOOLCALL> </TOOLCALL>", f"{THINK}I look.<TOOLCALL>[{CALL}]</TOOLCALL>"),
    "granite-list": ("<tool_call>", f"{THINK}<response>I look.</response><tool_call>[{CALL}]"),
    "granite-mark": ("<|tool_call|>", f"{THINK}I look.<|tool_call|>[{CALL}]"),
    "deepseek-blocks": (
        "<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜>function<｜tool▁sep｜> ```json "
        "```<｜tool▁call▁end｜> <｜tool▁calls▁end｜>",
        f"{THINK}I look.<｜tool▁calls▁begin｜>"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    "deepseek-calls": (
        "<｜tool▁calls▁begin｜> <｜tool▁call▁begin｜><｜tool▁sep｜> <｜tool▁call▁end｜> "
        "<｜tool▁calls▁end｜>",
        f"{THINK}I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{{}}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    "glm-names": (golden("glm4"), f"{THINK}I look.<|assistant|>now\n{{}}"),
    "llama-json": ("<|python_tag|>", f'{THINK}<|python_tag|>{{"name": "now", "parameters": {{}}}}'),
    "python-list": ("{% for m in messages %}{% if m.tool_calls %}[{% for c in m.tool_calls %}"
                    "{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k }}="
                    "{{ v | tojson }}{% endfor %}){{ '' if loop.last else ', ' }}{% endfor %}]"
                    "{% endif %}{% endfor %}" + TEMPLATE, f"{THINK}[now()]")}
# Requests of the page get a tool and an answer.
GIVEN = """const asked = window.fetch;
window.fetch = (path, init) => asked(path, !init?.body ? init : {...init, body: JSON.stringify({
  ...JSON.parse(init.body), guided_choice: [%s], tool_choice: "auto",
  tools: [{type: "function", function: {name: "now"}}]})}); 0"""
CALLS = "[...document.querySelectorAll('.calls pre')].map(one => one.textContent)"


class Formats(PageTest):
    """Reasoning is folded, text and calls are shown, in each format."""
    long = True

    def test_each_format(self):
        rows = re.findall(r'\.name = "([a-z-]+)"',
                          (SOURCE / "runtime/text/answer/answer_format.cc").read_text())
        self.assertEqual(set(FORMATS), set(rows) - {"name"})
        for name, (source, given) in FORMATS.items():
            with self.subTest(name):
                template = source if "{%" in source else (
                    "{#- " + source + " -#}{{ tools if tools }}" + TEMPLATE)
                server = self.serve(template=template)
                props = json.loads(server.ask("GET", "/props")[2])
                self.assertEqual(props["answer_format"]["name"], name)
                browser = self.open(server, max_tokens=400)
                browser.evaluate(GIVEN % json.dumps(given))
                self.ask(browser, "What time is it?")
                self.assertEqual(browser.evaluate(
                    "document.querySelector('.thought').lastChild.textContent"),
                    "It asks for the time.")
                self.assertEqual(browser.evaluate(LAST).strip(),
                                 "" if name in ("llama-json", "python-list") else "I look.")
                self.assertEqual(browser.evaluate(CALLS), ["now {}"])
                browser.stop()
                server.stop()


if __name__ == "__main__":
    main()
