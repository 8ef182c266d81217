#!/usr/bin/env python3
"""Renders the templates beside this script with transformers' apply_chat_template: golden.json.

    build/venv/bin/python tests/template/golden/make_golden.py

The templates were written for this test: they use what the published template of the family in
their name uses (macros that call themselves, namespaces, loops backwards, tools as JSON, dates,
errors), with other words. Null in golden.json: the template raises an error."""
import datetime
import json
import pathlib

from tokenizers import Tokenizer, models
from transformers import TokenizersBackend
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a town: \"now\" & <later>, für Köln.",
        "parameters": {"type": "object", "required": ["town"], "properties": {
            "town": {"type": "string", "description": "Its name"},
            "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
            "days": {"type": "array", "items": {"type": "integer"}},
            "at": {"type": "object", "required": ["lat"], "properties": {
                "lat": {"type": "number"}, "lon": {"type": "number", "nullable": True}}},
            "exact": {"type": "boolean", "default": False}}}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {
        "type": "object", "properties": {}}}}]
ARGUMENTS = {"town": "Köln \"<|im_end|>\"\n", "days": [1, 2], "at": {"lat": 50.5, "lon": None},
             "exact": True}
SYSTEM = {"role": "system", "content": "  Be brief.\n"}
QUESTION = {"role": "user", "content": " Wie ist das Wetter in Köln?\n\t世界 😀 "}
CALL = {"role": "assistant", "content": "", "tool_plan": "Ask.", "tool_calls": [
    {"id": "call_1", "type": "function",
     "function": {"name": "get_weather", "arguments": ARGUMENTS}}]}
TWO_CALLS = {**CALL, "content": "I look.", "tool_calls": [
    *CALL["tool_calls"],
    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": {}}}]}
RESULTS = [{"role": "tool", "tool_call_id": "call_1", "name": "get_weather",
            "content": "{\"temp\": 21, \"text\": \"heiter\\n\"}"},
           {"role": "tool", "tool_call_id": "call_2", "name": "now", "content": "noon </s> [INST]"}]
ANSWER = {"role": "assistant", "content": "<think>\nHmm.\n</think>\n\nSunny. </think>"}
THOUGHT = {"role": "assistant", "content": "Sunny.", "reasoning_content": " It is June. "}
MORE = {"role": "user", "content": "And <|im_end|> <end_of_turn> tomorrow?"}
CASES = {
    "question": {"messages": [QUESTION], "add_generation_prompt": True},
    "system": {"messages": [SYSTEM, QUESTION], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, QUESTION, ANSWER, MORE], "add_generation_prompt": True},
    "thought": {"messages": [QUESTION, THOUGHT]},
    "options": {"messages": [QUESTION, THOUGHT, MORE], "add_generation_prompt": True,
                "enable_thinking": False, "reasoning_effort": "high", "thinking_budget": 1000,
                "skip_think": False, "safety_mode": "strict"},
    "no thoughts": {"messages": [SYSTEM, QUESTION, ANSWER], "enable_thinking": True,
                    "thinking_budget": 0, "skip_think": False},
    "documents": {"messages": [QUESTION], "add_generation_prompt": True,
                  "documents": [{"title": "Wetter", "text": "a\nb"}, {"title": "\"x\""}]},
    "tools": {"messages": [SYSTEM, QUESTION], "tools": TOOLS, "add_generation_prompt": True},
    "call": {"messages": [QUESTION, CALL, RESULTS[0]], "tools": TOOLS,
             "add_generation_prompt": True},
    "calls": {"messages": [SYSTEM, QUESTION, TWO_CALLS, *RESULTS, THOUGHT, MORE], "tools": TOOLS,
              "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [
        {"type": "text", "text": " One "}, {"type": "text", "text": "two."}]}]},
    "two questions": {"messages": [QUESTION, MORE]},
    "unknown role": {"messages": [QUESTION, {"role": "king", "content": "x"}]},
}


class Noon(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 22, 12, 0, 0, tzinfo=tz)


def rendered(tokenizer, template, case):
    try:
        return tokenizer.apply_chat_template(case["messages"], chat_template=template,
                                             tokenize=False,
                                             **{k: v for k, v in case.items() if k != "messages"})
    except Exception:  # the template's own error, or one of Jinja2
        return None


def main():
    chat_template_utils.datetime = Noon
    tokenizer = TokenizersBackend(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>",
                                  eos_token="</s>")
    golden = {path.stem: {name: rendered(tokenizer, path.read_text(), case)
                          for name, case in CASES.items()}
              for path in sorted(HERE.glob("*.jinja"))}
    (HERE / "golden.json").write_text(json.dumps(
        {"cases": CASES, "rendered": golden}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
