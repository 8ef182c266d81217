"""fasa serve over sockets: requests, and the replies that clients must get."""
import json
import re
import signal
import socket
import threading

from serving import TEMPLATE, TOOL_TEMPLATE, TOOLS, ServeTest, Server, schema_format
from support import MODEL, main


class Completions(ServeTest):
    def test_streamed_is_what_whole_is(self):
        server = Server(self, model=self.chat_model())
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "In the beginning"},
                                                 {"type": "text", "text": " God created"}]}]
        ask = {"messages": messages, "max_tokens": 12, "temperature": 0, "logprobs": True,
               "top_logprobs": 2}
        status, _, body = server.ask("POST", "/v1/chat/completions", ask)
        self.assertEqual(status, 200, body)
        whole = json.loads(body)
        choice = whole["choices"][0]
        self.assertEqual(whole["object"], "chat.completion")
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(len(choice["logprobs"]["content"]), 12)
        self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)
        self.assertEqual(whole["usage"]["completion_tokens"], 12)
        status, headers, body = server.ask("POST", "/v1/chat/completions", {
            **ask, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(headers["Content-Type"], "text/event-stream; charset=utf-8")
        *frames, usage = self.frames(body)
        self.assertEqual(usage["choices"], [])
        self.assertEqual(usage["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"])
        deltas = [frame["choices"][0] for frame in frames]
        self.assertEqual(deltas[0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(one["delta"].get("content", "") for one in deltas),
                         choice["message"]["content"])
        self.assertEqual([one["finish_reason"] for one in deltas if one["finish_reason"]],
                         ["length"])
        told = [token for one in deltas for token in (one["logprobs"] or {}).get("content", [])]
        self.assertEqual(told, choice["logprobs"]["content"])

    def test_turns_find_what_was_said(self):
        server = Server(self, model=self.chat_model())
        messages = [{"role": "user", "content": "And it came to pass in the days " * 6}]
        new = []
        for turn in range(4):
            status, _, body = server.ask("POST", "/v1/chat/completions", {
                "messages": messages, "max_tokens": 10, "temperature": 0})
            self.assertEqual(status, 200, body)
            reply = json.loads(body)
            usage = reply["usage"]
            new.append(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])
            messages += [reply["choices"][0]["message"], {"role": "user", "content": "Go on."}]
        # The answer's last token, the template's words and the question.
        self.assertLess(max(new[1:]), 40, new)

    def test_seeds_stops_and_choices(self):
        server = Server(self)
        prompt = "Now it came to pass in the days when the judges ruled"
        draw = {"temperature": 1.2, "seed": 5, "max_tokens": 12}
        first, again = (server.complete(prompt, **draw)["choices"][0]["text"] for _ in range(2))
        self.assertEqual(first, again)
        several = server.complete(prompt, n=3, **draw)["choices"]
        self.assertEqual([one["index"] for one in several], [0, 1, 2])
        self.assertEqual(several[0]["text"], first)
        whole = server.complete(prompt, 24)["choices"][0]["text"]
        cut = server.complete(prompt, 24, stop=[whole[7:10]])["choices"][0]
        self.assertEqual(cut["text"], whole[:whole.index(whole[7:10])])
        self.assertEqual(cut["finish_reason"], "stop")

    def test_drafts_change_no_answer(self):
        server = Server(self)
        verse = "And Boaz begat Obed of Ruth, and Obed begat Jesse. "
        body = {"temperature": 0.3, "seed": 5, "max_tokens": 60, "logprobs": 2}
        plain = server.complete(verse * 4, **body)
        drafted = server.complete(verse * 4, drafts="lookup", **body)
        self.assertEqual(drafted["choices"], plain["choices"])
        details = drafted["usage"]["completion_tokens_details"]
        self.assertGreater(sum(details.values()), 0)  # until times say that none pay
        self.assertEqual(server.metric("fasa_right_drafts_total"),
                         details["accepted_prediction_tokens"])
        details = plain["usage"]["completion_tokens_details"]
        self.assertEqual(details["rejected_prediction_tokens"], 0)

    def test_a_prediction_is_a_draft(self):
        server = Server(self, model=self.chat_model())
        body = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 40,
                "temperature": 0}
        ask = lambda **more: json.loads(
            server.ask("POST", "/v1/chat/completions", {**body, **more})[2])
        plain = ask()
        text = plain["choices"][0]["message"]["content"]
        predicted = ask(prediction={"type": "content", "content": text})
        self.assertEqual(predicted["choices"], plain["choices"])
        details = predicted["usage"]["completion_tokens_details"]
        self.assertGreater(details["accepted_prediction_tokens"], 0)  # the first one at least
        parts = [{"type": "text", "text": text}]
        predicted = ask(prediction={"type": "content", "content": parts})
        self.assertEqual(predicted["choices"], plain["choices"])

    def test_audits_change_no_answer(self):
        body = {"temperature": 0.3, "seed": 5, "max_tokens": 30, "logprobs": 2}
        plain = Server(self).complete("In the beginning", **body)
        self.assertNotIn("audit", plain["usage"])
        server = Server(self, "--audit", "5")
        audited = server.complete("In the beginning", **body)
        self.assertEqual(audited["choices"], plain["choices"])
        self.assertEqual(audited["usage"]["audit"]["tokens"], 5)
        self.assertEqual(server.metric("fasa_audited_tokens_total"), 5)
        self.assertEqual(server.metric("fasa_audit_kl_count"), 5)

    def test_a_crowd_gets_what_each_gets_alone(self):
        prompts = [f"{n} And Boaz begat Obed of Ruth, and Obed begat Jesse. " * (2 + n)
                   for n in range(6)]
        alone = Server(self)
        expected = [alone.complete(prompt, 16)["choices"][0]["text"] for prompt in prompts]
        server = Server(self, "--device", "emulated", "--max-sequences", 3)
        got = [None] * len(prompts)

        def ask(index):
            got[index] = server.complete(prompts[index], 16)["choices"][0]["text"]
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, expected)


class Tools(ServeTest):
    def tokens(self, server, **fields):
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)["usage"]["prompt_tokens"]  # bytes, for this model

    def test_the_template_shows_tools_and_what_they_gave(self):
        server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        bare = self.tokens(server)
        shown = len("<tools> Answer by <tool_call>{...}</tool_call>") + sum(
            len(json.dumps(tool)) for tool in TOOLS)
        self.assertEqual(self.tokens(server, tools=TOOLS), bare + shown)
        self.assertEqual(self.tokens(server, tools=TOOLS, tool_choice="none"), bare)
        self.assertEqual(self.tokens(server, tools=[]), bare)
        call = {"id": "a1b2c3d4e", "type": "function",
                "function": {"name": "get_weather", "arguments": '{"town":"Nain"}'}}
        history = [{"role": "user", "content": "x"},
                   {"role": "assistant", "content": None, "tool_calls": [call]},
                   {"role": "tool", "tool_call_id": "a1b2c3d4e", "content": "rain"}]
        said = ('<assistant><tool_call>\n{"name": "get_weather", "arguments": {"town": "Nain"}}\n'
                '</tool_call><tool>rain')
        self.assertEqual(self.tokens(server, messages=history), bare + len(said))


class HeldAnswers(ServeTest):
    """Answers restricted to a format by a mask, from a model that would never write it."""

    def chat(self, server, **fields):
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "temperature": 1, "max_tokens": 400,
            "seed": 3, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"]

    def test_json(self):
        server = Server(self, model=self.chat_model())
        # Free strings consist of letters and digits; their end is made likely.
        likely = {str(ord(c)): 12 for c in '"}]'}
        for seed in range(3):
            choices = self.chat(server, response_format={"type": "json_object"}, seed=seed, n=2,
                                logit_bias=likely)
            for choice in choices:
                self.assertEqual(choice["finish_reason"], "stop", choice)
                self.assertIsInstance(json.loads(choice["message"]["content"]), dict)
        schema = {"type": "object", "additionalProperties": False,
                  "required": ["name", "age", "pets"],
                  "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 6},
                                 "age": {"type": "integer", "minimum": 18, "maximum": 99},
                                 "kind": {"enum": ["judge", "gleaner"]},
                                 "pets": {"type": "array", "items": {"type": "boolean"},
                                          "minItems": 2, "maxItems": 2}}}
        for temperature in (0, 1.5):
            choice, = self.chat(server, temperature=temperature, **schema_format(schema))
            value = json.loads(choice["message"]["content"])
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertLessEqual(set(value), {"name", "age", "kind", "pets"})
            self.assertTrue(1 <= len(value["name"]) <= 6 and 18 <= value["age"] <= 99, value)
            self.assertTrue(len(value["pets"]) == 2 and {type(p) for p in value["pets"]} == {bool})
        cut, = self.chat(server, max_tokens=3, **schema_format(schema))
        self.assertEqual(cut["finish_reason"], "length")

    def test_calls_by_request(self):
        for template, mark in ((TOOL_TEMPLATE, "hermes"), ("[TOOL_CALLS]" + TEMPLATE, "mistral"),
                               ("<|python_tag|>" + TEMPLATE, "llama"),
                               ("[TOOL_CALLS][ARGS]" + TEMPLATE, "mistral, later")):
            server = Server(self, model=self.chat_model(template))
            for choice in ("required", {"type": "function", "function": {"name": "now"}}):
                fields = {"tools": TOOLS, "tool_choice": choice}
                whole, = self.chat(server, **fields)
                self.assertEqual(whole["finish_reason"], "tool_calls", (mark, whole))
                message = whole["message"]
                self.assertIsNone(message["content"])
                call, = message["tool_calls"]
                self.assertRegex(call["id"], "^[A-Za-z0-9]{9}$")
                arguments = json.loads(call["function"]["arguments"])
                if choice == "required":
                    self.assertIn(call["function"]["name"], ("get_weather", "now"))
                else:
                    self.assertEqual((call["function"]["name"], arguments), ("now", {}))
                if call["function"]["name"] == "get_weather":
                    self.assertEqual(list(arguments), ["town"])
                    self.assertLessEqual(len(arguments["town"]), 8)
                status, _, body = server.ask("POST", "/v1/chat/completions", {
                    "messages": [{"role": "user", "content": "x"}], "temperature": 1, "seed": 3,
                    "max_tokens": 400, "stream": True, **fields})
                self.assertEqual(status, 200, body)
                deltas = [frame["choices"][0] for frame in self.frames(body)]
                calls = [one["delta"]["tool_calls"][0] for one in deltas
                         if "tool_calls" in one["delta"]]
                self.assertEqual({one["index"] for one in calls}, {0})
                self.assertEqual(calls[0]["function"], {**call["function"], "arguments": ""})
                self.assertEqual("".join(one["function"]["arguments"] for one in calls),
                                 call["function"]["arguments"])
                self.assertEqual([one["finish_reason"] for one in deltas if one["finish_reason"]],
                                 ["tool_calls"])

    def test_thoughts_come_before(self):
        server = Server(self, model=self.chat_model(TEMPLATE + "<think>\n"))
        end = {str(ord(c)): 8 for c in "</think>"}
        choice, = self.chat(server, logit_bias=end, max_tokens=2000, temperature=0.8,
                            **schema_format({"const": 7}))
        if choice["finish_reason"] == "stop":
            self.assertEqual(choice["message"]["content"], "7")
        self.assertIn("reasoning_content", choice["message"])


class Refusals(ServeTest):
    def test_fields_are_named(self):
        server = Server(self, model=self.chat_model())
        user = [{"role": "user", "content": "x"}]
        cases = [
            ({"max_tokens": v}, "max_tokens") for v in (2**63, 1.5, "10")] + [
            ({"temperature": v}, "temperature") for v in (1e308, "warm")] + [
            ({"drafts": "mtp"}, "drafts"), ({"drafts": "x"}, "drafts"),
            ({"prediction": {"content": 5}}, "prediction.content"),
            ({"top_p": 2}, "top_p"), ({"top_k": -5}, "top_k"), ({"n": 0}, "n"), ({"n": 9}, "n"),
            ({"seed": "x"}, "seed"), ({"stop": ["a"] * 17}, "stop"),
            ({"stop": 5}, "stop"), ({"logit_bias": {"9999": 1}}, "logit_bias"),
            ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"logit_bias": {"5": 1e9}}, "logit_bias.5"), ({"top_logprobs": 3}, "top_logprobs"),
            ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
            ({"stream": "yes"}, "stream"), ({"messages": []}, "messages"),
            ({"messages": "x"}, "messages"), ({"messages": [7]}, "messages[0]"),
            ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
             "messages[0].content[0].type"),
            ({"tools": "x"}, "tools"), ({"tools": [{"type": "function"}]}, "tools[0].function"),
            ({"tools": TOOLS * 2}, "tools[2].function.name"),
            ({"tools": [{"type": "function", "function": {"name": "a b"}}]},
             "tools[0].function.name"),
            ({"tools": TOOLS, "tool_choice": "perhaps"}, "tool_choice"),
            ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
             "tool_choice"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"messages": user + [{"role": "assistant", "tool_calls": [{"id": "1"}]}]},
             "messages[1].tool_calls[0].function"),
            ({"response_format": "json"}, "response_format"),
            ({"response_format": {"type": "yaml"}}, "response_format.type"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
             "response_format.json_schema.schema"),
            (schema_format({"items": {"type": "strong"}}), "schema.items.type"),
            (schema_format({"enum": list(range(100_000))}), "response_format"),
            (schema_format({"$ref": "#"}), "response_format"),
            ({"model": "other"}, "model")]
        for fields, name in cases:
            status, _, body = server.ask("POST", "/v1/chat/completions",
                                         {"messages": user, "max_tokens": 1, **fields})
            error = json.loads(body)["error"]
            self.assertEqual(status, 404 if name == "model" else 400, (fields, body))
            self.assertEqual(error["param"], name, body)
            self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(server.ask("POST", "/v1/chat/completions",
                                    {"messages": user, "max_tokens": 1})[0], 200)

    def test_bodies_that_are_none(self):
        server = Server(self)
        for body in (b"", b"[]", b"{", b"[" * 100_000, b"\x00",
                     b'{"prompt":' + b"[" * 70 + b"1" + b"]" * 70 + b"}", b'{"prompt": 5}',
                     b'{"prompt": [99999]}', b'{"prompt": [-1]}', b'{"prompt": []}'):
            status, _, answer = server.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 400, (body[:30], answer))
        status, _, answer = server.ask("POST", "/v1/completions", {"prompt": "x" * 9000})
        self.assertEqual(status, 400)
        self.assertEqual(json.loads(answer)["error"]["code"], "context_length_exceeded")
        self.assertEqual(server.complete("In the", 2)["usage"]["completion_tokens"], 2)

    def test_connections_that_misbehave(self):
        server = Server(self)

        def answer_to(request):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
                client.sendall(request)
                return client.recv(65536).split(b"\r\n")[0]
        host = b"Host: localhost\r\n"
        self.assertIn(b"400", answer_to(b"nonsense\r\n\r\n"))
        self.assertIn(b"421", answer_to(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
        self.assertIn(b"431", answer_to(b"GET / HTTP/1.1\r\n" + host + b"X: " + b"a" * 70_000))
        self.assertIn(b"413", answer_to(b"POST /v1/completions HTTP/1.1\r\n" + host +
                                        b"Content-Length: 99999999999\r\n\r\n"))
        self.assertIn(b"400", answer_to(b"POST /v1/completions HTTP/1.1\r\n" + host +
                                        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"))
        self.assertIn(b"200", answer_to(b"GET /health HTTP/1.0\r\n\r\n"))
        foreign = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
        self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "In the"}, foreign)[0],
                         403)
        own = {"Origin": f"http://127.0.0.1:{server.port}"}
        self.assertEqual(server.ask("POST", "/tokenize", {"content": "In the"}, own)[0], 200)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(server.ask("GET", "/nothing")[0], 404)

    def test_keys(self):
        keys = self.write("keys", "# mine\nsecret-1\nsecret-2\n")
        keys.chmod(0o600)
        server = Server(self, "--api-key-file", keys, "--allowed-origin", "https://app.example")
        # A browser asks, without the key, whether it may send the request.
        preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization"}
        status, answer, _ = server.ask("OPTIONS", "/v1/completions", headers=preflight)
        self.assertEqual((status, answer["Access-Control-Allow-Headers"]), (204, "authorization"))
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret-1"}):
            self.assertEqual(server.ask("GET", "/v1/models", headers=headers)[0], 401)
        prompt = {"prompt": "And Naomi said unto her two daughters in law, Go, return",
                  "max_tokens": 1}
        cached = []
        for key in ("secret-1", "secret-1", "secret-2"):
            body = server.ask("POST", "/v1/completions", prompt,
                              {"Authorization": f"Bearer {key}"})[2]
            cached.append(json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(cached, [0, len(prompt["prompt"]) - 1, 0])

    def test_a_context_that_does_not_fit_is_not_promised(self):
        """Host memory for half of the rows of the model's whole context."""
        small = Server(self, "--device", "emulated", "--device-memory", "20MiB", "--host-memory",
                       "2MiB")
        started = "".join(small.started)
        self.assertRegex(started, r"room for about \d+ tokens at once in [\d.]+ MiB")
        longest = json.loads(small.ask("GET", "/v1/models")[2])["data"][0]["max_model_len"]
        self.assertLess(longest, 8192)
        self.assertIn(f"a conversation of 8192 tokens does not fit; the longest has {longest}",
                      started)
        self.assertIn(f"contexts of {longest} tokens", started)
        ids = [5] * (longest - 8)
        status, _, body = small.ask("POST", "/v1/completions", {"prompt": ids, "max_tokens": 4})
        self.assertEqual(status, 200, body)
        status, _, body = small.ask("POST", "/v1/completions", {"prompt": ids * 2})
        self.assertEqual(json.loads(body)["error"]["code"], "context_length_exceeded", body)
        roomy = Server(self, "--device", "emulated", "--device-memory", "1GiB")
        self.assertRegex("".join(roomy.started), r": \d+ conversations of 8192 tokens")

    def test_flags(self):
        self.assert_fails(2, ["--api-key-file"], "serve", "--model", MODEL, "--host", "0.0.0.0")
        open_keys = self.write("keys", "k\n")
        open_keys.chmod(0o644)
        self.assert_fails(3, ["chmod 600"], "serve", "--model", MODEL, "--api-key-file", open_keys)
        self.assert_fails(2, ["positions"], "serve", "--model", MODEL, "--max-context", 100_000)


class Life(ServeTest):
    def test_a_client_that_leaves_frees_its_place(self):
        server = Server(self, "--max-sequences", 1)
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "And", "max_tokens": 8000, "stream": True, "temperature": 0}))
        response = connection.getresponse()
        response.read(200)
        response.close()
        connection.close()
        self.assertEqual(len(server.complete("In the", 2)["choices"]), 1)
        self.assertEqual(server.metric('fasa_requests_finished_total{reason="cancelled"}'), 1)

    def test_a_signal_lets_answers_end(self):
        server = Server(self)
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": "And", "max_tokens": 300, "stream": True, "temperature": 0}))
        response = connection.getresponse()
        response.read(100)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(response.read().endswith(b"data: [DONE]\n\n"))
        self.assertEqual(server.process.wait(timeout=30), 0)

    def test_a_unix_socket(self):
        path = self.folder / "socket"
        server = Server(self, "--host", f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: anything\r\n\r\n")
            self.assertIn(b"200 OK", client.recv(1000))
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=30), 0)
        self.assertFalse(path.exists())

    def test_pages_and_numbers(self):
        server = Server(self)
        self.assertIn(b"<title>fasa</title>", server.ask("GET", "/")[2])
        server.complete("In the beginning", 4)
        text = server.ask("GET", "/metrics")[2].decode()
        declared = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
        self.assertEqual(len(declared), len({name for name, _ in declared}))
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) \S+ .+|[a-z_]+(\{[^}]*\})? [-+0-9.einfa]+)$')
        self.assertEqual(server.metric("fasa_generated_tokens_total"), 4)
        steps = {name: server.metric(f'fasa_decode_step_seconds_count{{rows="{name}"}}')
                 for name in ("1", "2-3", "4-7", "8-15", "16+")}
        self.assertEqual(steps, {"1": 3, "2-3": 0, "4-7": 0, "8-15": 0, "16+": 0})
        self.assertEqual(
            server.metric('fasa_decode_step_seconds_bucket{rows="1",le="+Inf"}'), 3)
        self.assertEqual(server.metric("fasa_between_decode_steps_seconds_count"), 2)
        self.assertGreater(server.metric('fasa_tier_bytes{tier="device",kind="rows"}') +
                           server.metric('fasa_tier_bytes{tier="host",kind="rows"}'), 0)
        for tier in "device", "host":  # no layers with linear attention
            self.assertEqual(server.metric(f'fasa_tier_bytes{{tier="{tier}",kind="states"}}'), 0)
        sessions = json.loads(server.ask("GET", "/v1/sessions")[2])["data"]
        self.assertEqual([one["tokens"] for one in sessions], [19])
        self.assertEqual(server.ask("DELETE", f"/v1/sessions/{sessions[0]['id']}")[0], 200)
        self.assertEqual(server.ask("DELETE", "/v1/sessions/77")[0], 404)
        tokens = json.loads(server.ask("POST", "/tokenize", {"content": "héllo"})[2])["tokens"]
        self.assertEqual(json.loads(server.ask("POST", "/detokenize", {"tokens": tokens})[2]),
                         {"content": "héllo"})


if __name__ == "__main__":
    main()
