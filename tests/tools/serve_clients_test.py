"""fasa serve under clients of all kinds: curl, hundreds of streams, hostile clients. Every bad
request gets a 4xx, and the next good one its answer."""
import json
import os
import re
import shutil
import socket
import subprocess
import unittest

from serving import TEMPLATE, TOOLS, ServeTest, Server, schema_format
from support import MODEL, main

USER = [{"role": "user", "content": "x"}]


@unittest.skipIf(shutil.which("curl") is None, "there is no curl")
class Curl(ServeTest):
    def setUp(self):
        super().setUp()
        self.server = Server(self, "--max-sequences", 1)
        self.url = f"http://127.0.0.1:{self.server.port}"

    def curl(self, *arguments, code=0, data=None):
        done = subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], input=data,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def status(self, *arguments, **options):
        return int(self.curl("-o", os.devnull, "-w", "%{http_code}", *arguments, **options))

    def test_versions_and_methods(self):
        self.assertEqual(self.status("--http1.1", self.url + "/health"), 200)
        self.assertEqual(self.status("--http1.0", self.url + "/health"), 200)
        self.assertEqual(self.curl("-I", self.url + "/v1/models").split(b"\r\n")[0],
                         b"HTTP/1.1 200 OK")
        self.assertEqual(self.status("-X", "OPTIONS", self.url + "/v1/completions"), 405)
        self.assertEqual(self.status("-X", "BREW", self.url + "/v1/completions"), 405)

    def test_bodies(self):
        body = json.dumps({"prompt": "In the", "max_tokens": 1, "x": "y" * 1_000_000}).encode()
        for how in (["-H", "Expect: 100-continue"], ["-H", "Transfer-Encoding: chunked"],
                    ["--http1.0"]):
            self.assertEqual(self.status(self.url + "/v1/completions", "--data-binary", "@-", *how,
                                         data=body), 200, how)
        self.assertEqual(self.status(self.url + "/v1/completions", "-H", "Expect: something",
                                     "-d", "{}"), 417)

    def test_many_on_one_connection(self):
        urls = [self.url + "/health"] * 100
        out = self.curl("-w", "%{num_connects}\n", *urls).decode()
        self.assertEqual(sum(int(n) for n in re.findall(r"\}(\d)\n", out)), 1)
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as client:
            client.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 9 +
                           b"GET /health/live HTTP/1.0\r\n\r\n")
            answers = b""
            while piece := client.recv(65536):
                answers += piece
        self.assertEqual(answers.count(b" 200 OK\r\n"), 10)

    def test_a_stream_is_shown_as_it_comes(self):
        body = json.dumps({"prompt": "And", "max_tokens": 8000, "stream": True, "temperature": 0})
        with subprocess.Popen(["curl", "-sSN", self.url + "/v1/completions", "-d", body],
                              stdout=subprocess.PIPE) as curl:
            self.assertTrue(curl.stdout.readline().startswith(b"data: {"))
            curl.kill()  # frees its connection for the next client
        self.assertEqual(self.server.complete("In the", 2)["usage"]["completion_tokens"], 2)
        self.assertEqual(self.server.metric('fasa_requests_finished_total{reason="cancelled"}'), 1)


class Streams(ServeTest):
    def test_the_grammar_of_many(self):
        server = Server(self, model=self.chat_model())
        for number in range(120):
            choices = 1 + number % 3
            ask = {"messages": USER, "max_tokens": 1 + number % 5, "temperature": 1.5,
                   "seed": number, "n": choices, "stream": True, "logprobs": number % 2 == 0,
                   "stream_options": {"include_usage": number % 4 == 0},
                   "logit_bias": {str(b): 20 for b in (0xE2, 0x82, 0xAC)} if number % 5 == 0
                   else {}}
            status, _, body = server.ask("POST", "/v1/chat/completions", ask)
            self.assertEqual(status, 200, body)
            frames = self.frames(body)
            if number % 4 == 0:
                self.assertEqual(frames.pop()["choices"], [])
            parts = [frame["choices"] for frame in frames]
            self.assertEqual({len(part) for part in parts}, {1})
            for choice in range(choices):
                own = [part[0] for part in parts if part[0]["index"] == choice]
                self.assertEqual([i for i, one in enumerate(own) if "role" in one["delta"]], [0])
                self.assertEqual([i for i, one in enumerate(own) if one["finish_reason"]],
                                 [len(own) - 1])


class Hostile(ServeTest):
    def test_requests(self):
        server = Server(self, model=self.chat_model())
        deep = "[" * 3000 + "]" * 3000
        nested = {"type": "object"}
        for _ in range(20):
            nested = {"type": "object", "properties": {"a": nested}}
        huge = {"enum": ["x" * 8 + str(n) for n in range(1 << 16)]}
        cases = [{name: value} for name, values in {
            "max_tokens": [2**63, 1.5, "10", [], {}],
            "max_completion_tokens": [2**64], "temperature": [1e308, "NaN", [1]],
            "top_p": [-0.1, 2], "top_k": [-5, 2**40], "n": [0, 65, 2**31, -1],
            "seed": [2**64, "a"], "min_p": [7], "repetition_penalty": [0, -1, 1e9],
            "stop": [["s"] * 100_000, 7, ["a", 5]], "logprobs": [10**6, "yes"],
            "logit_bias": [{"99999999": 1}, {"5": 1e9}, {"-1": 1}, [], "x"],
            "messages": [[], None, [1] * 100, [{"role": "x", "content": "y"}],
                         [{"role": "user"}], [{"role": "user", "content": {"a": 1}}]],
            "stream": ["yes", 1], "stream_options": [5],
            "tools": [TOOLS * 6000, 7, [None], [{"type": "function", "function": {
                "name": "x", "parameters": 7}}]],
            "tool_choice": ["required", {}, 5, {"type": "function"}],
            "response_format": [5, {"type": 7}, {"type": "json_schema", "json_schema": 7}],
            "chat_template_kwargs": [5], "model": [7, "other"], "functions": [[{}]],
        }.items() for value in values]
        cases += [schema_format(schema) for schema in (
            huge, {"$ref": "#"}, {"type": "x"}, 5, None,
            {"allOf": [{"$ref": "#"}]}, {"type": "string", "maxLength": 2**31},
            {"properties": {str(n): {} for n in range(5000)}})]
        for case in cases:
            status, _, body = server.ask("POST", "/v1/chat/completions",
                                         {"messages": USER, "max_tokens": 1, **case})
            self.assertIn(status, (400, 404), (str(case)[:200], body[:300]))
            self.assertEqual(set(json.loads(body)["error"]), {"message", "type", "param", "code"})
        for body in (deep, '{"messages": ' + deep + "}", '{"tools": ' + "[" * 3000, "\x00", "[]",
                     '"' * 70):
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize"):
                status = server.ask("POST", path, body)[0]
                self.assertEqual(status, 400, (path, body[:60]))
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": USER, "max_tokens": 3, **schema_format(nested)})
        self.assertEqual(status, 200, body)  # deep, but finite
        for case in ({"input": 5}, {"input": []}, {"input": [7]}, {}, {"input": "x", "tools": [{}]},
                     {"input": [{"type": "item_reference", "id": "x"}]},
                     {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
                     {"input": [{"type": "function_call"}, {"role": "king", "content": "x"}]},
                     {"input": "x", "background": True}, {"input": "x", "conversation": "c"},
                     {"input": "x", "text": {"format": {"type": "json_schema"}}},
                     {"input": "x", "truncation": "x"}):
            status, _, body = server.ask("POST", "/v1/responses", case)
            self.assertEqual(status, 400, (case, body))
        self.assertEqual(server.ask("POST", "/v1/chat/completions",
                                    {"messages": USER, "max_tokens": 1})[0], 200)

    def test_templates_that_raise(self):
        server = Server(self, model=self.chat_model(
            "{% if messages[0].content == 'raise' %}{{ raise_exception('no') }}{% endif %}"
            "{% if messages[0].content == 'loop' %}{% for i in range(10**9) %}x"
            "{% endfor %}{% endif %}"
            + TEMPLATE))
        for content, expected in (("raise", 400), ("loop", 400), ("fine", 200)):
            status = server.ask("POST", "/v1/chat/completions", {
                "max_tokens": 1, "messages": [{"role": "user", "content": content}]})[0]
            self.assertEqual(status, expected, content)

    def test_headers(self):
        server = Server(self)
        status, headers, _ = server.ask("GET", "/health", headers={
            "X-Request-Id": "a b", "X-Forwarded-For": "::1, x"})
        self.assertEqual(status, 200)
        status, headers, _ = server.ask("GET", "/health", headers={"Origin": "http://evil.example"})
        self.assertEqual(status, 403)
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        self.assertEqual(server.ask("GET", "/health", headers={"Host": "evil.example"})[0], 421)

    def test_a_full_queue_says_so(self):
        server = Server(self, "--max-sequences", 1, "--max-waiting", 1)
        body = json.dumps({"prompt": "And", "max_tokens": 8000, "stream": True, "temperature": 0})
        for waiting in range(2):
            connection = server.connect()
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/completions", body)
            while (server.metric("fasa_requests_running"),
                   server.metric("fasa_requests_waiting")) != (1, waiting):
                pass
        refused = server.ask("POST", "/v1/completions", {"prompt": "And", "max_tokens": 1})
        self.assertEqual(refused[0], 429, refused)
        self.assertGreaterEqual(int(refused[1]["Retry-After"]), 1)
        message = json.loads(refused[2])["error"]["message"]
        self.assertRegex(message, r"1 requests? are waiting and 1 are running.*--max-waiting")


if __name__ == "__main__":
    main()
