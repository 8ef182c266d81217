"""Other servers' APIs: requests as their clients send them. The clients are in clients_test.py."""
import json

from serving import TOOL_TEMPLATE, ServeTest, Server
from support import main

TOOL = {"name": "get_weather", "description": "The weather of a town.",
        "input_schema": {"type": "object", "properties": {
            "town": {"type": "string", "maxLength": 8}},
            "required": ["town"], "additionalProperties": False}}


class Anthropic(ServeTest):
    """POST /v1/messages."""

    def setUp(self):
        super().setUp()
        keys = self.folder / "keys"
        keys.write_text("a-secret-key\n")
        keys.chmod(0o600)
        self.server = Server(self, "--any-model-name", "--api-key-file", keys,
                             model=self.chat_model(TOOL_TEMPLATE))

    def post(self, path="/v1/messages", key="a-secret-key", **fields):
        ask = {"model": "claude-sonnet-4-5", "max_tokens": 40, "temperature": 0,
               "messages": [{"role": "user", "content": "In the beginning"}], **fields}
        return self.server.ask("POST", path, {k: v for k, v in ask.items() if v is not None},
                               {"X-Api-Key": key, "Anthropic-Version": "2023-06-01"})

    def message(self, **fields):
        status, _, body = self.post(**fields)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def events(self, body):
        events = []
        for block in body.decode().strip("\n").split("\n\n"):
            kind, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            self.assertEqual(kind, "event: " + event["type"])
            events.append(event)
        return events

    def test_whole_and_streamed(self):
        whole = self.message(system="Be brief.")
        self.assertEqual((whole["type"], whole["role"]), ("message", "assistant"))
        self.assertEqual(whole["stop_reason"], "max_tokens")
        self.assertEqual(whole["usage"]["output_tokens"], 40)
        text = whole["content"][0]["text"]
        blocks = [{"type": "text", "text": "In the "}, {"type": "text", "text": "beginning"}]
        again = self.message(system=[{"type": "text", "text": "Be brief."}],
                             messages=[{"role": "user", "content": blocks}])
        self.assertEqual(again["content"], whole["content"])
        self.assertGreater(again["usage"]["cache_read_input_tokens"], 0)
        self.assertEqual(again["usage"]["input_tokens"] +
                         again["usage"]["cache_read_input_tokens"], whole["usage"]["input_tokens"])
        events = self.events(self.post(system="Be brief.", stream=True)[2])
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})
        self.assertEqual("".join(event["delta"]["text"] for event in events[2:-3]), text)
        usage = events[0]["message"]["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"],
                         whole["usage"]["input_tokens"])
        self.assertEqual(events[-2]["delta"]["stop_reason"], "max_tokens")
        self.assertEqual(events[-2]["usage"]["output_tokens"], 40)
        self.assertIsNone(whole["stop_sequence"])
        stops = {"system": "Be brief.", "stop_sequences": ["never said", text[5:7]]}
        cut = self.message(**stops)
        self.assertEqual((cut["content"][0]["text"], cut["stop_reason"], cut["stop_sequence"]),
                         (text[:text.index(text[5:7])], "stop_sequence", text[5:7]))
        self.assertEqual(self.events(self.post(stream=True, **stops)[2])[-2]["delta"],
                         {"stop_reason": "stop_sequence", "stop_sequence": text[5:7]})

    def test_tools(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            fields = {"tools": [TOOL], "tool_choice": choice, "max_tokens": 100}
            message = self.message(**fields)
            self.assertEqual(message["stop_reason"], "tool_use")
            call = message["content"][-1]
            self.assertEqual((call["type"], call["name"]), ("tool_use", "get_weather"))
            self.assertLessEqual(len(call["input"]["town"]), 8)
            events = self.events(self.post(stream=True, **fields)[2])
            start = [event for event in events if event["type"] == "content_block_start"][-1]
            self.assertEqual((start["content_block"]["type"], start["content_block"]["input"]),
                             ("tool_use", {}))
            parts = "".join(event["delta"].get("partial_json", "") for event in events
                            if event["type"] == "content_block_delta")
            self.assertEqual(json.loads(parts), call["input"])
        # Cut within its arguments a call is text, wherever it is cut.
        for limit in (8, 30, 60):
            fields["max_tokens"] = limit
            cut = self.message(**fields)
            events = self.events(self.post(stream=True, **fields)[2])
            texts = [event["delta"].get("text", "") for event in events
                     if event["type"] == "content_block_delta"]
            self.assertEqual("".join(texts), cut["content"][0]["text"])
            self.assertEqual(events[-2]["delta"]["stop_reason"], "max_tokens")
            for block in cut["content"] + [event["content_block"] for event in events
                                           if event["type"] == "content_block_start"]:
                self.assertEqual(block["type"], "text")
        turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""}, call]},
                 {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": call["id"], "content": [
                         {"type": "text", "text": "sunny"}]},
                     {"type": "text", "text": "And tomorrow?"}]}]
        self.message(tools=[TOOL], messages=turns)
        counts = [json.loads(self.post("/v1/messages/count_tokens", tools=[TOOL], max_tokens=None,
                                       messages=turns[:n])[2])["input_tokens"] for n in (1, 3)]
        self.assertGreater(counts[1], counts[0] + len("sunny" + "And tomorrow?"))

    def test_formats(self):
        schema = {"type": "integer", "minimum": 3, "maximum": 5}
        for fields in ({"output_config": {"format": {"type": "json_schema", "schema": schema}}},
                       {"output_format": {"type": "json_schema", "schema": schema}}):
            self.assertIn(self.message(**fields)["content"][0]["text"], "345")

    def test_errors(self):
        for fields, name, status in (
                ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
                 "output_config.format.schema.type", 400),
                ({"max_tokens": None}, "max_tokens", 400), ({"messages": []}, "messages", 400),
                ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", 400),
                ({"messages": [{"role": "user", "content": [{"type": "image"}]}]},
                 "messages[0].content[0].type", 400),
                ({"key": "other"}, "API key", 401)):
            answered, headers, body = self.post(**fields)
            error = json.loads(body)
            self.assertEqual((answered, error["type"]), (status, "error"), body)
            self.assertIn(name, error["error"]["message"])
            self.assertEqual(headers["Request-Id"], headers["X-Request-Id"])


class Reasoning(ServeTest):
    """An assistant's reasoning reaches the template by every API and name."""
    template = ("{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
                "{{ m.reasoning_content }}{{ m.thinking }}{% endfor %}")

    def test_the_prompt_has_it(self):
        server = Server(self, model=self.chat_model(self.template))
        said, call = "Hm, it may rain.", {"name": "now", "arguments": {}}
        user = {"role": "user", "content": "x"}
        openai = {"role": "assistant", "content": "Yes."}
        text = {"type": "text", "text": "Yes."}
        item = {"type": "message", "role": "assistant", "content": "Yes."}
        for path, count, without, with_reasoning in (
                *(("/v1/chat/completions", ("usage", "prompt_tokens"),
                   {"messages": [user, openai, user]},
                   {"messages": [user, {**openai, name: said}, user]})
                  for name in ("reasoning_content", "thinking", "reasoning")),
                ("/api/chat", ("prompt_eval_count",), {"messages": [user, openai, user]},
                 {"messages": [user, {**openai, "thinking": said}, user]}),
                ("/v1/messages/count_tokens", ("input_tokens",),
                 {"messages": [user, {"role": "assistant", "content": [text]}, user]},
                 {"messages": [user, {"role": "assistant", "content": [
                     {"type": "thinking", "thinking": said, "signature": ""}, text]}, user]}),
                *(("/v1/responses/input_tokens", ("input_tokens",), {"input": [user, answer, user]},
                   {"input": [user, {"type": "reasoning", "summary": [], "content": [
                       {"type": "reasoning_text", "text": said}]}, answer, user]})
                  for answer in (item, {"type": "function_call", "call_id": "1", **call,
                                        "arguments": "{}"}))):
            prompts = []
            for body in (without, with_reasoning):
                status, _, answer = server.ask("POST", path, {
                    "model": "chat-model", "max_tokens": 1, "stream": False,
                    "options": {"num_predict": 1}, **body})
                self.assertEqual(status, 200, answer)
                value = json.loads(answer)
                for key in count:
                    value = value[key]
                prompts.append(value)
            self.assertEqual(prompts[1] - prompts[0], 2 * len(said), path)


class Llama(ServeTest):
    """POST /completion and /props of llama.cpp's server."""

    def test_completion(self):
        server = Server(self)
        ask = {"prompt": "In the beginning", "n_predict": 12, "temperature": 0,
               "cache_prompt": True, "id_slot": -1}
        body = json.loads(server.ask("POST", "/completion", ask)[2])
        text = server.complete("In the beginning", 12)["choices"][0]["text"]
        self.assertEqual((body["content"], body["stop"], body["stop_type"]), (text, True, "limit"))
        self.assertEqual((body["tokens_predicted"], body["tokens_evaluated"]), (12, 16))
        frames = [json.loads(block.removeprefix("data: ")) for block in server.ask(
            "POST", "/completion", {**ask, "stream": True, "return_progress": True}
            )[2].decode().strip("\n").split("\n\n")]
        self.assertEqual("".join(frame["content"] for frame in frames), text)
        self.assertEqual([frame["stop"] for frame in frames[-2:]], [False, True])
        self.assertEqual(frames[0]["prompt_progress"]["total"], 16)
        word = json.loads(server.ask("POST", "/completion", {
            **ask, "stop": [text[4]], "n_predict": -1})[2])
        self.assertEqual((word["content"], word["stop_type"], word["stopping_word"]),
                         (text[:text.index(text[4])], "word", text[4]))
        banned = json.loads(server.ask("POST", "/completion", {
            **ask, "logit_bias": [[ord(text[0]), False]]})[2])
        self.assertNotEqual(banned["content"][0], text[0])
        for fields in ({"grammar": "root ::= x"}, {"n_probs": 3}, {"logit_bias": [5]},
                       {"prompt": 5}, {"prompt": ["a", "b"]}):
            self.assertEqual(server.ask("POST", "/completion", {**ask, **fields})[0], 400, fields)

    def test_props(self):
        server = Server(self, "--max-sequences", 3, "--max-context", 4000, "--allow-long")
        props = json.loads(server.ask("GET", "/props")[2])
        self.assertEqual((props["total_slots"], props["default_generation_settings"]["n_ctx"]),
                         (3, 4000))
        self.assertNotIn("/", props["model_path"])


class Ollama(ServeTest):
    """The routes of Ollama's client."""

    def setUp(self):
        super().setUp()
        self.server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        self.model = json.loads(self.server.ask("GET", "/api/tags")[2])["models"][0]["model"]

    def post(self, path, **fields):
        options = {"temperature": 0, "num_predict": 20, "num_ctx": 4096,
                   **fields.pop("options", {})}
        status, headers, body = self.server.ask("POST", path, {
            "model": self.model + ":latest", "options": options, **fields})
        lines = [json.loads(line) for line in body.decode().splitlines()]
        if status == 200 and fields.get("stream", True):
            self.assertEqual(headers["Content-Type"], "application/x-ndjson")
            self.assertEqual([line["done"] for line in lines], [False] * (len(lines) - 1) + [True])
        return status, lines

    def test_chat(self):
        ask = {"messages": [{"role": "user", "content": "In the beginning"}]}
        status, [whole] = self.post("/api/chat", stream=False, **ask)
        self.assertEqual((status, whole["done"], whole["done_reason"]), (200, True, "length"))
        self.assertEqual((whole["eval_count"], whole["message"]["role"]), (20, "assistant"))
        self.assertGreater(whole["prompt_eval_duration"], 0)
        self.assertEqual(whole["total_duration"],
                         whole["prompt_eval_duration"] + whole["eval_duration"])
        lines = self.post("/api/chat", **ask)[1]
        self.assertEqual("".join(line["message"]["content"] for line in lines),
                         whole["message"]["content"])
        self.assertEqual(lines[-1]["prompt_eval_count"], whole["prompt_eval_count"])
        self.assertGreater(lines[-1]["eval_duration"], 0)
        schema = {"type": "integer", "minimum": 3, "maximum": 5}
        answer = self.post("/api/chat", stream=False, format=schema, **ask)[1][0]
        self.assertIn(answer["message"]["content"], "345")

    def test_tools_are_shown_and_their_results_read(self):
        tools = [{"type": "function", "function": {"name": "now"}}]
        turns = [{"role": "user", "content": "x"},
                 {"role": "assistant", "content": "", "tool_calls": [
                     {"function": {"name": "now", "arguments": {}}}]},
                 {"role": "tool", "content": "noon", "tool_name": "now"}]
        plain = self.post("/api/chat", stream=False, messages=turns[:1])[1][0]
        shown = self.post("/api/chat", stream=False, messages=turns, tools=tools)[1][0]
        self.assertGreater(shown["prompt_eval_count"], plain["prompt_eval_count"] + 50)

    def test_generate(self):
        raw = self.post("/api/generate", prompt="In the", raw=True, stream=False)[1][0]
        self.assertEqual(raw["response"],
                         self.server.complete("In the", 20)["choices"][0]["text"])
        lines = self.post("/api/generate", prompt="In the", raw=True)[1]
        self.assertEqual("".join(line["response"] for line in lines), raw["response"])
        by_template = self.post("/api/generate", prompt="In the", system="x", stream=False)[1][0]
        self.assertGreater(by_template["prompt_eval_count"], raw["prompt_eval_count"])

    def test_models_and_errors(self):
        shown = json.loads(self.server.ask("POST", "/api/show", {"model": self.model})[2])
        self.assertIn("tools", shown["capabilities"])
        self.assertIn("version", json.loads(self.server.ask("GET", "/api/version")[2]))
        for path, fields, name, status in (
                ("/api/chat", {"messages": {}}, "messages", 400),
                ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["a"]}]},
                 "images", 400),
                ("/api/generate", {"prompt": "x", "format": "yaml"}, "format", 400),
                ("/api/generate", {"prompt": "x", "options": {"num_predict": "x"}},
                 "options.num_predict", 400),
                ("/api/generate", {"prompt": "x", "model": "other"}, "model", 404)):
            answered, [error] = self.post(path, **fields)
            self.assertEqual((answered, set(error)), (status, {"error"}), error)
            self.assertIn(name, error["error"])


if __name__ == "__main__":
    main()
