"""What a conversation's history becomes in the prompt, and what decides the answer."""
import json

import gguf
import published_files
from serving import TOOL_TEMPLATE, TOOLS, Server, ServeTest, schema_format
from support import SOURCE, main

# The prompt, in an error; not of the conversations by which a template is tried.
ECHO = ("{%- set whole -%}{% for m in messages %}{{ '<' + m.role + '>' + m.content }}"
        "{% if m.reasoning_content %}{{ '(' + m.reasoning_content + ')' }}{% endif %}"
        "{% for c in m.tool_calls or [] %}{{ '[' + c.function.name + c.function.arguments | tojson "
        "+ ']' }}{% endfor %}{% if m.name %}{{ '{' + m.name + '}' }}{% endif %}{% endfor %}"
        "{%- endset -%}{% set settings = [tools | length if tools else 0, reasoning_effort, "
        "enable_thinking] %}{% if 'zq' not in whole %}"
        "{{ raise_exception('PROMPT' + (settings | string) + whole) }}{% endif %}{{ whole }}")
FIRST = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
         "{{ raise_exception('first!') }}{% endif %}{{ '<' + m.role + '>' + m.content }}"
         "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
ALTERNATES = ("{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role != 'system' %}"
              "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('turns') }}"
              "{% endif %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}" + FIRST)
USER = {"role": "user", "content": "Q"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


class Prompts(ServeTest):
    def setUp(self):
        super().setUp()
        self.server = Server(self, model=self.chat_model(ECHO))

    def prompt(self, path, **body):
        """(the settings, the rest)"""
        status, _, answer = self.server.ask("POST", path, {"max_tokens": 1, **body})
        self.assertEqual(status, 400, answer)
        message = json.loads(answer)["error"]
        message = message if isinstance(message, str) else message["message"]
        self.assertIn("PROMPT", message)
        settings, rest = message.split("PROMPT", 1)[1].split("]", 1)
        return settings[1:], rest

    def test_messages(self):
        call = {"type": "tool_use", "id": "t1", "name": "now", "input": ""}
        turns = [USER, {"role": "system", "content": [{"type": "text", "text": "S"}]},
                 {"role": "assistant", "content": [
                     {"type": "thinking", "thinking": "T", "signature": ""}, call,
                     {"type": "redacted_thinking", "data": "x"},
                     {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]},
                 {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [
                         IMAGE, {"type": "tool_reference", "tool_name": "f"},
                         {"type": "text", "text": "no"}]},
                     {"type": "text", "text": "go on"}]}]
        self.assertEqual(
            self.prompt("/v1/messages", system=[{"type": "text", "text": "A"}], messages=turns)[1],
            "<system>A<user>Q<system>S<assistant>[called web_search]\n(T)[now{}]"
            "<tool>[error] [image omitted]\n[tool f]\nno{now}<user>go on")
        # The client's name for a request, which changes each time.
        billed = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                  {"type": "text", "text": "A"}]
        self.assertEqual(self.prompt("/v1/messages", system=billed, messages=[USER])[1],
                         "<system>A<user>Q")
        image = {"role": "user", "content": [IMAGE, {"type": "text", "text": "?"}]}
        status, _, body = self.server.ask("POST", "/v1/messages", {
            "max_tokens": 1, "messages": [USER, image]})
        self.assertIn("messages[1].content[0].type", json.loads(body)["error"]["message"])
        answered = [image, {"role": "assistant", "content": "A"}, USER]
        self.assertEqual(self.prompt("/v1/messages", messages=answered)[1],
                         "<user>[image omitted]\n?<assistant>A<user>Q")

    def test_responses(self):
        tools = [{"type": "custom", "name": "patch"}, {"type": "web_search"},
                 {"type": "namespace", "name": "m__", "tools": [{"type": "function", "name": "f"}]}]
        items = [{"role": "developer", "content": "D"}, USER,
                 {"type": "reasoning", "summary": [], "content": [
                     {"type": "reasoning_text", "text": "T"}], "encrypted_content": None},
                 {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "+a"},
                 {"type": "custom_tool_call_output", "call_id": "1", "output": "ok"},
                 {"type": "function_call", "call_id": "2", "namespace": "m__", "name": "f",
                  "arguments": ""},
                 {"type": "function_call_output", "call_id": "2", "output": [
                     {"type": "input_image", "image_url": "x"}]},
                 {"type": "compaction", "encrypted_content": "x"}, {"type": "something_new"},
                 {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}, USER]
        settings, prompt = self.prompt("/v1/responses", instructions="I", input=items, tools=tools,
                                       reasoning={"effort": "high"})
        self.assertEqual(prompt, "<system>I<system>D<user>Q<assistant>(T)[patch{\"input\": \"+a\"}]"
                         "<tool>ok{patch}<assistant>[m__f{}]<tool>[image omitted]{m__f}<user>Q")
        self.assertEqual(settings, "3, 'high', True")

    def test_chat_and_ollama(self):
        call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": ""}}
        said = {"role": "assistant", "content": None, "tool_calls": [call], "audio": None}
        for arguments in ("", " ", "null", "{}", None, {}):
            call["function"]["arguments"] = arguments
            self.assertEqual(self.prompt("/v1/chat/completions", messages=[
                USER, said, {"role": "tool", "tool_call_id": "1", "content": None}, USER])[1],
                "<user>Q<assistant>[now{}]<tool>{now}<user>Q")
        empty = {"role": "assistant", "content": "Yes.", "tool_calls": [], "name": None,
                 "function_call": None, "refusal": None}
        self.assertEqual(self.prompt("/v1/chat/completions", messages=[USER, empty, USER])[1],
                         "<user>Q<assistant>Yes.<user>Q")
        cut = {"role": "user", "content": "a\ud83d"}
        self.assertEqual(self.prompt("/v1/chat/completions", messages=[cut])[1], "<user>a\ufffd")
        self.assertEqual(self.prompt("/api/chat", messages=[
            USER, {"role": "assistant", "tool_calls": [{"function": {"name": "now"}}]},
            {"role": "tool", "content": "noon"}, {"role": "control"},
            {"role": "user", "content": "", "images": ["x"]}, {"role": "assistant"}, USER])[1],
            "<user>Q<assistant>[now{}]<tool>noon{now}<user>[image omitted]<assistant><user>Q")

    def test_large_integers_keep_their_digits(self):
        large = 123456789012345678901234567890
        call = {"name": "now", "arguments": {"n": large}}
        text = {**call, "arguments": json.dumps(call["arguments"])}
        for path, said in (
                ("/v1/chat/completions", {"tool_calls": [{"id": "1", "function": text}]}),
                ("/api/chat", {"tool_calls": [{"function": call}]}),
                ("/v1/messages", {"content": [{"type": "tool_use", "id": "1", "name": "now",
                                               "input": call["arguments"]}]})):
            self.assertEqual(self.prompt(path, messages=[
                USER, {"role": "assistant", **said}, USER])[1],
                f'<user>Q<assistant>[now{{"n": {large}}}]<user>Q', path)

    def test_thinking(self):
        for path, fields, wanted in (
                ("/v1/chat/completions", {"reasoning_effort": "low"}, "'low', True"),
                ("/v1/chat/completions", {"reasoning_effort": "none"}, "'none', False"),
                ("/v1/chat/completions", {"reasoning_effort": "low", "chat_template_kwargs": {
                    "reasoning_effort": "x"}}, "'x', True"),
                ("/v1/chat/completions", {"reasoning": {"enabled": False}}, ", False"),
                ("/v1/messages", {"thinking": {"type": "disabled"}}, "'none', False"),
                ("/v1/messages", {"output_config": {"effort": "low"}}, "'low', True"),
                ("/api/chat", {"think": "high"}, "'high', True"),
                ("/api/chat", {"think": False}, ", False")):
            settings = self.prompt(path, messages=[USER], **fields)[0]
            self.assertTrue(settings.endswith(wanted), (path, fields, settings))


class Places(ServeTest):
    """Templates that refuse a form of the history get another one."""

    def count(self, server, *messages):
        status, _, body = server.ask("POST", "/v1/messages/count_tokens", {"messages": [
            {"role": role, "content": text} for role, text in messages]})
        self.assertEqual(status, 200, body)
        return json.loads(body)["input_tokens"]

    def test_system_messages_and_turns(self):
        server = Server(self, model=self.chat_model(FIRST))
        place = lambda *messages: self.count(server, *messages)
        self.assertEqual(place(("system", "A"), ("system", "B"), ("user", "Q")),
                         place(("system", "A\n\nB"), ("user", "Q")))
        self.assertEqual(place(("user", "Q"), ("system", "B")), place(("user", "Q\n\nB")))
        self.assertEqual(
            place(("user", "Q"), ("assistant", "A"), ("system", "B"), ("user", "R")),
            place(("user", "Q"), ("assistant", "A"), ("user", "B\n\nR")))
        server = Server(self, model=self.chat_model(ALTERNATES))
        self.assertEqual(self.count(server, ("user", "Q"), ("user", "R")),
                         self.count(server, ("user", "Q\n\nR")))
        self.assertEqual(self.count(server, ("assistant", "A"), ("user", "R")),
                         self.count(server, ("user", "[continued]"), ("assistant", "A"),
                                    ("user", "R")))

    def test_an_answer_is_continued(self):
        server = Server(self, model=self.chat_model(FIRST + "!"))
        self.assertEqual(self.count(server, ("user", "Q"), ("assistant", "The ")),
                         len("<user>Q<assistant>The "))
        turns = [USER, {"role": "assistant", "content": "The "}]
        ask = {"max_tokens": 8, "temperature": 0}
        text = server.complete("<user>Q<assistant>The ", 8)["choices"][0]["text"]
        for fields in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
            body = json.loads(server.ask("POST", "/v1/chat/completions", {
                "messages": turns, **ask, **fields})[2])
            self.assertEqual(body["choices"][0]["message"]["content"], text)
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [USER], **ask, "continue_final_message": True})
        self.assertEqual((status, json.loads(body)["error"]["param"]),
                         (400, "continue_final_message"))
        hidden = Server(self, model=self.chat_model("{{ messages[0].content }}"))
        status, _, body = hidden.ask("POST", "/v1/chat/completions", {"messages": turns, **ask})
        self.assertEqual((status, json.loads(body)["error"]["param"]), (400, "messages"))


class Tools(ServeTest):
    def setUp(self):
        super().setUp()
        self.server = Server(self, model=self.chat_model(TOOL_TEMPLATE))

    def ask(self, path, **body):
        status, headers, answer = self.server.ask("POST", path, {"temperature": 0, **body})
        self.assertEqual(status, 200, answer)
        return headers, answer

    def test_custom_tools_and_namespaces(self):
        custom = {"type": "custom", "name": "patch", "format": {
            "type": "grammar", "syntax": "lark", "definition": "start: x"}}
        ask = {"input": "x", "max_output_tokens": 200, "logit_bias": {str(ord('"')): 3},
               "tools": [custom, {"type": "web_search"}],
               "tool_choice": {"type": "custom", "name": "patch"}}
        headers, body = self.ask("/v1/responses", **ask)
        self.assertEqual(headers["X-Ignored-Tools"], "web_search")
        call = [one for one in json.loads(body)["output"] if one["type"] == "custom_tool_call"][0]
        self.assertEqual((call["name"], set(call)), ("patch", {
            "id", "type", "status", "call_id", "name", "input"}))
        events = [json.loads(line[6:]) for line in self.ask(
            "/v1/responses", **ask, stream=True)[1].decode().splitlines() if line[:5] == "data:"]
        [delta] = [one["delta"] for one in events
                   if one["type"] == "response.custom_tool_call_input.delta"]
        [done] = [one["input"] for one in events
                  if one["type"] == "response.custom_tool_call_input.done"]
        self.assertEqual((delta, done), (call["input"], call["input"]))
        self.assertEqual([one["sequence_number"] for one in events], list(range(len(events))))
        # Clients run the text of a call: one that was cut is none.
        for limit in (50, 55):
            cut = json.loads(self.ask("/v1/responses", **{**ask, "max_output_tokens": limit})[1])
            self.assertEqual((cut["status"], [one["type"] for one in cut["output"]]),
                             ("incomplete", ["message"]))
        chat = {"messages": [USER], "max_tokens": 200, "logit_bias": {str(ord('"')): 3},
                "tools": [{"type": "custom", "custom": {"name": "patch"}}],
                "tool_choice": "required"}
        [call] = json.loads(self.ask("/v1/chat/completions", **chat)[1])["choices"][0]["message"][
            "tool_calls"]
        frames = self.frames(self.ask("/v1/chat/completions", **chat, stream=True)[1])
        [streamed] = [one for frame in frames
                      for one in frame["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual((call["type"], streamed["custom"]), ("custom", call["custom"]))
        chat["max_tokens"] = 55
        cut = json.loads(self.ask("/v1/chat/completions", **chat)[1])["choices"][0]["message"]
        deltas = [frame["choices"][0]["delta"] for frame in self.frames(
            self.ask("/v1/chat/completions", **chat, stream=True)[1])]
        self.assertFalse([one for one in [cut, *deltas] if "tool_calls" in one])
        self.assertEqual("".join(one.get("content") or "" for one in deltas), cut["content"])
        space = {"type": "namespace", "name": "m", "tools": [
            {"type": "function", "name": "f", "parameters": {
                "type": "object", "properties": {}, "additionalProperties": False}}]}
        output = json.loads(self.ask("/v1/responses", input="x", tools=[space],
                                     tool_choice="required", max_output_tokens=200)[1])["output"]
        call = [one for one in output if one["type"] == "function_call"][0]
        self.assertEqual((call["name"], call["namespace"]), ("f", "m"))

    def test_many_with_long_names(self):
        tools = [{"name": f"mcp__{'x' * 119}{n:04}", "input_schema": {"type": "object"}}
                 for n in range(40)]
        self.ask("/v1/messages", messages=[USER], max_tokens=1, tools=tools[:5])
        self.ask("/v1/messages", messages=[USER], max_tokens=1, tool_choice={
            "type": "tool", "name": "web_search"}, tools=[
                {"type": "web_search_20250305", "name": "web_search"}])
        short = [{"name": f"f{n}", "input_schema": {}} for n in range(1025)]
        status = self.server.ask("POST", "/v1/messages/count_tokens", {
            "messages": [USER], "tools": short})[0]
        self.assertEqual(status, 400)


class Values(ServeTest):
    """Values that other servers clamp or ignore."""

    def test_they_are_no_errors(self):
        server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        for path, body in (
                ("/v1/chat/completions", {"max_tokens": 0}), ("/v1/chat/completions", {
                    "max_tokens": 2, "temperature": 2.5, "stop": ["", "x"], "seed": 1.5}),
                ("/v1/messages", {"max_tokens": 0}),
                ("/v1/messages", {"max_tokens": 2, "temperature": 1.5, "top_k": -1,
                                  "stop_sequences": [""]})):
            status, _, answer = server.ask("POST", path, {"messages": [USER], **body})
            self.assertEqual(status, 200, (body, answer))
            if body["max_tokens"] == 0:
                usage = json.loads(answer)["usage"]
                self.assertEqual(usage.get("completion_tokens", usage.get("output_tokens")), 0)
        for body in ({"n_predict": 0}, {"n_predict": 2, "repeat_penalty": 1.1, "samplers": ["x"]}):
            answer = json.loads(server.ask("POST", "/completion", {"prompt": "In", **body})[2])
            self.assertEqual(answer["tokens_predicted"], body["n_predict"])
        options = {"num_predict": 0, "repeat_penalty": 1.3, "repeat_last_n": 8}
        status, _, answer = server.ask("POST", "/api/chat", {
            "messages": [USER], "stream": False, "options": options})
        self.assertEqual((status, json.loads(answer)["eval_count"]), (200, 0), answer)

    def test_tokens_have_their_bytes(self):
        server = Server(self, model=self.chat_model())
        ask = {"max_tokens": 30, "temperature": 0, "guided_choice": ["caf\u00e9 \U0001f600 x"]}
        whole = json.loads(server.ask("POST", "/v1/chat/completions", {
            "messages": [USER], "logprobs": True, "top_logprobs": 2, **ask})[2])["choices"][0]
        tokens = whole["logprobs"]["content"]
        self.assertEqual(bytes(b for one in tokens for b in one["bytes"]).decode(),
                         whole["message"]["content"])
        choice = server.complete("In", 30, logprobs=3, guided_choice=ask["guided_choice"])[
            "choices"][0]
        told = choice["logprobs"]
        self.assertEqual("".join(told["tokens"]), choice["text"])
        for offset, token in zip(told["text_offset"], told["tokens"]):
            self.assertEqual(choice["text"][offset:offset + len(token)], token)

    def test_schemas_that_only_narrow(self):
        server = Server(self, model=self.chat_model())
        integer = {"type": "integer", "minimum": -9007199254740991, "maximum": 2**63 - 1}
        members = {"type": "object", "properties": {"n": integer}, "required": ["n"],
                   "additionalProperties": False, "minProperties": 1,
                   "anyOf": [{"required": ["n"]}]}
        status, headers, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [USER], "max_tokens": 60, "temperature": 0, **schema_format(members)})
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["X-Ignored-Keywords"], "schema.anyOf, schema.minProperties")
        self.assertIsInstance(json.loads(json.loads(body)["choices"][0]["message"]["content"])["n"],
                              int)


class Routes(ServeTest):
    def test_routes(self):
        folder = self.folder / "models--owner--Needle-3M/snapshots"
        folder.mkdir(parents=True)
        (folder / "0a1b2c").symlink_to(self.chat_model(TOOL_TEMPLATE))
        server = Server(self, model=folder / "0a1b2c")
        [model] = json.loads(server.ask("GET", "//models/")[2])["data"]
        self.assertEqual(model["id"], "Needle-3M")
        self.assertEqual(server.ask("GET", "/v1/models/Needle-3M:latest")[0], 200)
        for method, path, status in (("HEAD", "/", 200), ("HEAD", "/api/version", 200),
                                     ("HEAD", "/api/tags", 200), ("GET", "/v1/messages", 405),
                                     ("PUT", "/v1/models", 405), ("GET", "/api/chat", 405),
                                     ("POST", "/v1/rerank", 501), ("POST", "/infill", 501),
                                     ("POST", "/api/embed", 501), ("GET", "/nothing", 404)):
            answered, headers, body = server.ask(method, path, "{}" if method == "POST" else None)
            self.assertEqual(answered, status, (method, path, body))
            self.assertEqual("Allow" in headers, status == 405)
        [one] = json.loads(server.ask("GET", "/api/ps")[2])["models"]
        self.assertEqual((one["name"], len(one["digest"])), ("Needle-3M", 64))
        self.assertGreater(one["size"], 1_000_000)
        self.assertTrue({"expires_at", "size_vram"} <= set(one))
        shown = json.loads(server.ask("POST", "/api/show", {"model": "Needle-3M:latest"})[2])
        family = shown["model_info"]["general.architecture"]
        self.assertEqual(shown["model_info"][f"{family}.context_length"], 8192)
        self.assertEqual(shown["capabilities"], ["completion", "tools"])
        self.assertEqual(shown["details"]["families"], [family])
        self.assertEqual(shown["details"]["quantization_level"], "BF16")
        for keep, reason in ((None, "load"), (0, "unload")):
            body = json.loads(server.ask("POST", "/api/generate", {
                "model": "Needle-3M", "keep_alive": keep})[2])
            self.assertEqual((body["done"], body["done_reason"], body["response"]),
                             (True, reason, ""))

    def test_what_a_file_says(self):
        header = json.loads((SOURCE / "tests/tools/published" /
                             "llama-3.2-1b-unsloth-q4_k_m.json").read_text())
        metadata, tensors, _ = published_files.small_file(header)
        file = self.write("small.gguf", gguf.gguf(metadata, tensors))
        digests = set()
        for changed in (False, True):
            if changed:  # a weight
                file.write_bytes(file.read_bytes()[:-1] + b"x")
            server = Server(self, model=file)
            [one] = json.loads(server.ask("GET", "/api/tags")[2])["models"]
            self.assertEqual((one["details"]["quantization_level"], one["details"]["format"]),
                             ("Q4_K_M", "gguf"))
            self.assertRegex(one["digest"], "^[0-9a-f]{64}$")
            digests.add(one["digest"])
            server.stop()
        self.assertEqual(len(digests), 2)


if __name__ == "__main__":
    main()
