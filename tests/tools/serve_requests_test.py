"""Requests to fasa serve as clients send them: their fields, their log and their progress."""
import json
import threading
import time

from serving import TEMPLATE, TOOL_TEMPLATE, TOOLS, ServeTest, Server, schema_format
from support import MODEL, main

TEXT = "In the beginning God created the heaven and the earth. " * 40
USER = [{"role": "user", "content": "x"}]


class Progress(ServeTest):
    def test_a_stream_tells_how_far_its_prompt_is(self):
        server = Server(self, "--prefill-chunk", 256, model=self.chat_model())
        for path, fields in (("/v1/completions", {"prompt": TEXT}),
                             ("/v1/chat/completions",
                              {"messages": [{"role": "user", "content": TEXT}]})):
            ask = {**fields, "max_tokens": 3, "temperature": 0, "stream": True}
            plain = self.frames(server.ask("POST", path, ask)[2])
            self.assertFalse([one for one in plain if "prompt_progress" in one])
            ask["return_progress"] = True
            for cached in (False, True):
                if not cached:
                    server.ask("DELETE", f"/v1/sessions/{self.session(server)}")
                frames = self.frames(server.ask("POST", path, ask)[2])
                steps = [one["prompt_progress"] for one in frames if "prompt_progress" in one]
                total = steps[0]["total"]
                self.assertGreater(total, 2000)
                self.assertEqual([set(step) for step in steps],
                                 [{"total", "cache", "processed", "time_ms"}] * len(steps))
                self.assertEqual({step["total"] for step in steps}, {total})
                self.assertEqual({step["cache"] for step in steps}, {total - 1 if cached else 0})
                processed = [step["processed"] for step in steps]
                if cached:
                    self.assertEqual(processed, [total - 1, total])
                self.assertEqual(processed, sorted(processed))
                self.assertEqual(processed[-1], total)
                self.assertGreater(len(processed), 1 if cached else 4)
                times = [step["time_ms"] for step in steps]
                self.assertEqual(times, sorted(times))
                text = "".join(one["choices"][0].get("text") or
                               one["choices"][0].get("delta", {}).get("content") or ""
                               for one in frames)
                self.assertEqual(text, "".join(
                    one["choices"][0].get("text") or
                    one["choices"][0].get("delta", {}).get("content") or "" for one in plain))

    def session(self, server):
        return json.loads(server.ask("GET", "/v1/sessions")[2])["data"][-1]["id"]


class Turns(ServeTest):
    # A short question does not wait for a long prompt, unless it is asked to.
    def test_a_short_question_overtakes_a_long_prompt(self):
        for share, first in (("0.5", "short"), ("1", "long")):
            server = Server(self, "--prefill-chunk", 16, "--prompt-share", share, "--max-context",
                            100_000, "--allow-long")
            done = []
            ask = threading.Thread(target=lambda: (server.complete(TEXT * 3, 1),
                                                   done.append("long")))
            ask.start()
            while server.metric("fasa_requests_running") == 0:
                time.sleep(0.001)
            server.complete("And God said", 40)
            done.append("short")
            ask.join()
            self.assertEqual(done[0], first, share)


class Log(ServeTest):
    def log_of(self, server, count):
        return [server.process.stderr.readline().strip() for _ in range(count)]

    def test_a_line_for_each_request(self):
        server = Server(self, "--log", "text", model=self.chat_model())
        status, headers, _ = server.ask("POST", "/v1/completions",
                                        {"prompt": "In the beginning", "max_tokens": 4,
                                         "temperature": 0})
        self.assertEqual(status, 200)
        name = headers["X-Request-Id"]
        self.assertRegex(name, r"^req_[0-9a-f]{16}$")
        status, headers, _ = server.ask("POST", "/v1/chat/completions",
                                        {"messages": [{"role": "king\n", "content": ""}]},
                                        {"X-Request-Id": "mine-7"})
        self.assertEqual((status, headers["X-Request-Id"]), (400, "mine-7"))
        headers = server.ask("GET", "/health", headers={"X-Request-Id": "no spaces"})[1]
        self.assertRegex(headers["X-Request-Id"], r"^req_[0-9a-f]{16}$")
        answered, refused = self.log_of(server, 2)
        self.assertRegex(answered, rf"^{name} /v1/completions 200: prompt 16 tokens, 0 cached; "
                         r"first token after [\d.e-]+ s; answer 4 tokens, [\d.e+]+ tokens/s; "
                         "length$")
        self.assertRegex(refused, r'^mine-7 /v1/chat/completions 400: messages\[0\].role: "king "')

    def test_json_lines(self):
        server = Server(self, "--log", "json", model=self.chat_model())
        body = server.ask("POST", "/v1/chat/completions",
                          {"messages": USER, "max_tokens": 2, "stream": True, "temperature": 0})[2]
        self.frames(body)
        server.ask("POST", "/v1/completions", {"prompt": "a", "n": 99})
        answered, refused = map(json.loads, self.log_of(server, 2))
        self.assertEqual((answered["status"], answered["completion_tokens"], answered["end"]),
                         (200, 2, "length"))
        self.assertGreater(answered["ttft_ms"], 0)
        self.assertGreaterEqual(answered["total_ms"], answered["ttft_ms"])
        self.assertLess(abs(answered["time"] - time.time()), 600)
        self.assertEqual((refused["status"], refused["prompt_tokens"], refused["ttft_ms"]),
                         (400, 0, None))
        self.assertIn("n: ", refused["end"])

    def test_a_client_that_left_is_logged(self):
        server = Server(self, "--log", "text", "--max-context", 8000, "--allow-long")
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "And", "max_tokens": 7000, "stream": True}))
        connection.getresponse().readline()
        connection.close()
        self.assertRegex(self.log_of(server, 1)[0], "cancelled$")

    def test_quiet(self):
        server = Server(self, "--quiet")
        server.complete("a", 1)
        server.process.terminate()
        self.assertNotIn("tokens", server.process.stderr.read())
        self.assert_fails(2, ["--log"], "serve", "--model", MODEL, "--quiet", "--log", "json")


class Defaults(ServeTest):
    """What a server is started with holds for requests that do not say otherwise."""

    def prompt_tokens(self, server, **fields):
        status, _, body = server.ask("POST", "/v1/chat/completions",
                                     {"messages": USER, "max_tokens": 1, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)["usage"]["prompt_tokens"]

    def test_variables_of_the_template(self):
        model = self.chat_model("{{ '+' * (level or 0) }}" + TEMPLATE)
        plain = self.prompt_tokens(Server(self, model=model))
        server = Server(self, "--template-kwargs", '{"level": 7, "x": true}', model=model)
        self.assertEqual(self.prompt_tokens(server), plain + 7)
        own = {"chat_template_kwargs": {"level": 2}}
        self.assertEqual(self.prompt_tokens(server, **own), plain + 2)
        for bad in "{", "[]", '{"messages": []}', "\udcff":
            self.assert_fails(2, ["--template-kwargs", "allowed: a JSON object"], "serve",
                              "--model", MODEL, "--template-kwargs", bad)

    def test_length_of_answers_and_thoughts(self):
        model = self.byte_model("qwen3", TOOL_TEMPLATE + "{% if add_generation_prompt %}<think>"
                                "{% endif %}")
        server = Server(self, "--max-tokens-default", 9, "--reasoning-budget", 4, model=model)

        def chat(**fields):
            status, _, body = server.ask("POST", "/v1/chat/completions", {
                "messages": USER, "temperature": 0, "ignore_eos": True, **fields})
            self.assertEqual(status, 200, body)
            return json.loads(body)
        reply = chat()
        self.assertEqual(reply["usage"]["completion_tokens"], 9)
        message = reply["choices"][0]["message"]
        self.assertLessEqual(len(message["reasoning_content"].encode()), 3 * 4, message)
        self.assertNotEqual(message["content"], "")
        self.assertEqual(chat(max_tokens=3)["usage"]["completion_tokens"], 3)
        self.assert_fails(2, ["--reasoning-budget"], "serve", "--model", MODEL,
                          "--reasoning-budget", -2)


class Fields(ServeTest):
    """What clients were seen to send, each with its meaning in the client's own server."""

    def setUp(self):
        super().setUp()
        self.server = Server(self, model=self.chat_model(TOOL_TEMPLATE))

    def post(self, path, fields, headers=None, server=None):
        status, answered, body = (server or self.server).ask("POST", path, fields, headers)
        return status, json.loads(body), answered

    def chat(self, **fields):
        return self.post("/v1/chat/completions",
                         {"messages": USER, "max_tokens": 60, "temperature": 0, **fields})

    def message(self, **fields):
        status, body, _ = self.chat(**fields)
        self.assertEqual(status, 200, body)
        return body["choices"][0]["message"]

    def assert_refused(self, name, answer, status=400):
        self.assertEqual((answer[0], answer[1]["error"]["param"]), (status, name), answer[1])

    # Agent frameworks send tools and a format together.
    def test_tools_beside_a_format(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}},
                  "required": ["ok"], "additionalProperties": False}
        for choice in ("required", "any", {"type": "function", "function": {"name": "now"}}):
            message = self.message(tools=TOOLS, tool_choice=choice, **schema_format(schema))
            self.assertEqual(len(message["tool_calls"]), 1, choice)
        for choice in ("auto", None):
            message = self.message(tools=TOOLS, tool_choice=choice, **schema_format(schema))
            if not message.get("tool_calls"):
                self.assertIsInstance(json.loads(message["content"])["ok"], bool)
        message = self.message(tools=TOOLS, tool_choice="none", **schema_format(schema))
        self.assertIsInstance(json.loads(message["content"])["ok"], bool)
        status, body, _ = self.post("/v1/responses", {
            "input": "x", "tools": [{"type": "function", "name": "now"}],
            "tool_choice": "required", "max_output_tokens": 60,
            "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}})
        self.assertEqual(status, 200, body)
        self.assertIn("function_call", [item["type"] for item in body["output"]])

    def test_errors_of_responses_name_their_fields(self):
        def schema_of(schema, **fields):
            return {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema,
                                        **fields}}}
        unique = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
        for fields, name in (
                (schema_of({"items": {"type": "strong"}}), "text.format.schema.items.type"),
                (schema_of(unique, strict=True), "text.format.schema.uniqueItems"),
                (schema_of({"$ref": "#"}), "text.format"),
                (schema_of(None), "text.format.schema"),
                ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
                ({"response_format": {"type": "json_object"}}, "response_format"),
                ({"guided_json": {}}, "guided_json"),
                ({"input": "x" * 9000}, "input"),
                ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
                ({"input": [{"role": "user"}]}, "input[0].content"),
                ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
                 "input[0].content[0].type"),
                ({"input": [{"type": "function_call", "name": 5}]}, "input[0].name"),
                ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name")):
            self.assert_refused(name, self.post("/v1/responses", {"input": "x", **fields})[:2])
        headers = self.post("/v1/responses", {"input": "x", "max_output_tokens": 5,
                                              **schema_of(unique)})[2]
        self.assertEqual(headers["X-Ignored-Keywords"], "text.format.schema.uniqueItems")
        body = json.loads(Server(self).ask("POST", "/v1/responses", {"input": "x"})[2])
        self.assertEqual(body["error"]["param"], "input")  # a model without a template

    def test_allowed_tools(self):
        one = [{"type": "function", "function": {"name": "now"}}]
        for choice in ({"type": "allowed_tools",
                        "allowed_tools": {"mode": "required", "tools": one}},):
            message = self.message(tools=TOOLS, tool_choice=choice)
            self.assertEqual(message["tool_calls"][0]["function"]["name"], "now")
        # What only another server runs is no permission to call the others.
        message = self.message(tools=TOOLS, tool_choice={
            "type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]})
        self.assertFalse(message.get("tool_calls"))
        self.assert_refused("tool_choice", self.chat(tools=TOOLS, tool_choice={
            "type": "allowed_tools", "allowed_tools": {
                "tools": [{"type": "function", "function": {"name": "later"}}]}}))

    # vLLM's and llama.cpp's names for constraints.
    def test_constraints_hold_or_are_refused(self):
        words = ["yes", "no", "perhaps"]
        schema = {"type": "integer", "minimum": 3, "maximum": 5}
        for fields in ({"guided_choice": words}, {"structured_outputs": {"choice": words}}):
            self.assertIn(self.message(**fields)["content"], words)
            status, body, _ = self.post("/v1/completions", {"prompt": "a", **fields})
            self.assertIn(body["choices"][0]["text"], words)
        for fields in ({"guided_json": schema}, {"guided_json": json.dumps(schema)},
                       {"structured_outputs": {"json": schema}}, {"json_schema": schema},
                       {"response_format": {"type": "json_object", "schema": schema}}):
            self.assertIn(self.message(**fields)["content"], "345", fields)
        self.assertIsInstance(json.loads(self.message(
            structured_outputs={"json_object": True}, max_tokens=500, seed=1,
            logit_bias={str(ord("}")): 100})["content"]), dict)
        for fields, name in (({"guided_regex": "a*"}, "guided_regex"),
                             ({"grammar": "root ::= x"}, "grammar"),
                             ({"guided_grammar": "root ::= x"}, "guided_grammar"),
                             ({"structured_outputs": {"regex": "a*"}}, "structured_outputs.regex"),
                             ({"guided_choice": []}, "guided_choice"),
                             ({"guided_choice": words, "json_schema": schema}, "json_schema"),
                             ({"bad_words": ["x"]}, "bad_words"),
                             ({"stop_token_ids": ["x"]}, "stop_token_ids"),
                             ({"min_tokens": 61}, "min_tokens")):
            self.assert_refused(name, self.chat(**fields))
        self.assertEqual(self.chat(repeat_penalty=1.0, grammar="", keep_alive=5)[0], 200)

    def test_where_an_answer_ends(self):
        complete = lambda **fields: self.server.complete("In the beginning", 12, **fields)
        whole = complete()["choices"][0]["text"]
        ended = complete(stop_token_ids=[ord(whole[4])])["choices"][0]
        self.assertEqual(ended["text"], whole[:whole.index(whole[4]) + 1])
        self.assertEqual(ended["finish_reason"], "stop")
        late = complete(stop_token_ids=[ord(whole[4])], min_tokens=8)
        self.assertGreaterEqual(late["usage"]["completion_tokens"], 8)
        late = complete(stop=whole[2], min_tokens=8)
        self.assertGreaterEqual(late["usage"]["completion_tokens"], 8)
        self.assertEqual(complete(ignore_eos=True)["usage"]["completion_tokens"], 12)
        endless = self.server.complete("In the beginning", -1, stop=whole[6])["choices"][0]
        self.assertEqual(endless["finish_reason"], "stop")

    def test_several_prompts(self):
        prompts = ["In the beginning", "And God said", list(b"Let there be")]
        alone = [self.server.complete(prompt, 6)["choices"][0]["text"] for prompt in prompts]
        body = self.server.complete(prompts, 6)
        self.assertEqual([choice["text"] for choice in body["choices"]], alone)
        self.assertEqual([choice["index"] for choice in body["choices"]], [0, 1, 2])
        self.assertEqual(body["usage"]["completion_tokens"], 18)
        twice = self.server.complete(prompts, 6, n=2)["choices"]
        self.assertEqual([one["text"] for one in twice], [text for text in alone for _ in "ab"])
        frames = self.frames(self.server.ask("POST", "/v1/completions", {
            "prompt": prompts, "max_tokens": 6, "temperature": 0, "stream": True,
            "return_progress": True})[2])
        texts = ["", "", ""]
        for frame in frames:
            for choice in frame["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, alone)
        last = [one["prompt_progress"] for one in frames if "prompt_progress" in one][-1]
        self.assertEqual(last["processed"], last["total"])
        for prompt in ([], ["a", 5], [["a"]], ["a"] * 65):
            self.assertEqual(self.post("/v1/completions", {"prompt": prompt})[0], 400, prompt)

    def test_harmless_values(self):
        for fields in ({"top_logprobs": 0}, {"seed": 1.0}, {"max_tokens": -1, "stop": "e"},
                       {"best_of": 1}, {"n": 2, "best_of": 2}, {"unknown_field": {"a": 1}},
                       {"messages": [{"role": "user", "content": [
                           {"type": "input_text", "text": "x"}]}]}):
            self.assertEqual(self.chat(**fields)[0], 200, fields)
        self.assert_refused("best_of", self.chat(n=1, best_of=2))
        for name, value in (("echo", True), ("suffix", "x")):
            self.assert_refused(name, self.post("/v1/completions", {"prompt": "a", name: value}))
        ask = {"prompt": "a", "max_tokens": 1}
        self.assertEqual(self.post("/v1/completions/", ask)[0], 200)
        for encoding, status in (("identity", 200), ("gzip", 415), ("br", 415)):
            self.assertEqual(self.post("/v1/completions", ask, {"Content-Encoding": encoding})[0],
                             status)

    def test_schemas(self):
        integer = {"type": "integer", "minimum": 1, "maximum": 9}
        schema = {"type": "object", "required": ["at", "who"], "additionalProperties": False,
                  "properties": {"at": {"type": "array", "prefixItems": [
                      {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, integer],
                      "minItems": 2, "maxItems": 2},
                      "who": {"type": "string", "format": "email", "maxLength": 5}}}
        status, body, headers = self.chat(max_tokens=300, **schema_format(schema))
        self.assertEqual(status, 200, body)
        self.assertEqual(headers["X-Ignored-Keywords"], "schema.properties.who.format")
        answer = json.loads(body["choices"][0]["message"]["content"])
        share, number = answer["at"]
        self.assertTrue(0 <= share < 1 and 1 <= number <= 9, answer)
        strict = schema_format(schema)
        strict["response_format"]["json_schema"]["strict"] = True
        self.assert_refused("schema.properties.who.format", self.chat(**strict))

    def test_models_and_keys(self):
        self.assert_refused("model", self.chat(model="gpt-4o"), 404)
        any_name = Server(self, "--any-model-name", model=self.chat_model(TOOL_TEMPLATE))
        self.assertEqual(self.post("/v1/completions", {
            "model": "gpt-4o", "prompt": "a", "max_tokens": 1}, server=any_name)[0], 200)
        keys = self.folder / "keys"
        keys.write_text("a-secret-key\n")
        keys.chmod(0o600)
        locked = Server(self, "--api-key-file", keys)
        for headers, code in (({}, "missing_api_key"),
                              ({"Authorization": "Bearer other"}, "invalid_api_key")):
            status, body, _ = self.post("/v1/completions", {}, headers, locked)
            self.assertEqual((status, body["error"]["code"]), (401, code))

    def test_routes_of_responses(self):
        status, body, _ = self.post("/v1/responses/input_tokens", {"input": "Hello"})
        self.assertEqual((status, body["object"]), (200, "response.input_tokens"))
        status, whole, _ = self.post("/v1/responses", {"input": "Hello", "max_output_tokens": 1,
                                                       "truncation": "auto"})
        self.assertEqual(whole["usage"]["input_tokens"], body["input_tokens"])
        self.assert_refused("input", self.post("/v1/responses", {"input": "x" * 200_000}))
        status, body, _ = self.post("/v1/embeddings", {"input": "x"})
        self.assertEqual(status, 501)
        self.assertIn("embeddings", body["error"]["message"])

    # A template without tools shows them in the system message.
    def test_tools_without_a_template_for_them(self):
        server = Server(self, model=self.copied_model("plain"))
        ask = {"messages": USER, "max_tokens": 80, "temperature": 0, "tools": TOOLS,
               "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
        status, body, _ = self.post("/v1/chat/completions", ask, server=server)
        self.assertEqual(status, 200, body)
        call = body["choices"][0]["message"]["tool_calls"][0]
        self.assertEqual(call["function"]["name"], "get_weather")
        shown = body["usage"]["prompt_tokens"]
        self.assertGreater(shown, 300)  # bytes: the functions are in the prompt
        ask["messages"] = [
            {"role": "system", "content": "Be kind."}, *USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
        status, body, _ = self.post("/v1/chat/completions", ask, server=server)
        self.assertEqual(status, 200, body)
        self.assertGreater(body["usage"]["prompt_tokens"], shown + 80)

    def test_no_error_shows_a_path(self):
        model = self.copied_model("broken", "{{ raise_exception('no such role') }}")
        status, body, _ = self.post("/v1/chat/completions", {"messages": USER},
                                    server=Server(self, model=model))
        self.assertEqual(status, 400, body)
        self.assertIn("no such role", body["error"]["message"])
        self.assertNotIn(str(self.folder), body["error"]["message"])

    def copied_model(self, name, template=TEMPLATE):
        folder = self.folder / name
        self.copy_model(name)
        self.replace(folder, "chat_template.jinja", template)
        return folder


if __name__ == "__main__":
    main()
