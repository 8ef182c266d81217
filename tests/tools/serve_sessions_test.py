"""fasa serve with sessions on disk: conversations survive any end of the server."""
import json
import os
import signal
import struct
import time

from serving import TOOL_TEMPLATE, TOOLS, ServeTest, Server
from support import main


class Sessions(ServeTest):
    def server(self, *flags, model=None):
        folder = self.folder / ("sessions-" + model.name if model else "sessions")
        return Server(self, "--sessions-dir", folder, *flags, model=model or self.chat_model())

    def say(self, server, messages, **headers):
        """(the answer's message, tokens that were computed, log-probabilities)"""
        status, _, body = server.ask("POST", "/v1/chat/completions", {
            "messages": messages, "max_tokens": 10, "temperature": 0, "logprobs": True}, headers)
        self.assertEqual(status, 200, body)
        reply = json.loads(body)
        usage = reply["usage"]
        new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        choice = reply["choices"][0]
        return choice["message"], new, [one["logprob"] for one in choice["logprobs"]["content"]]

    def end(self, server, number=signal.SIGTERM):
        server.process.send_signal(number)
        self.assertEqual(server.process.wait(60), 0 if number == signal.SIGTERM else -number)

    def test_a_restart_changes_nothing(self):
        # Rows in all layers; states in most; heads of another shape in layers with a window.
        for model in (self.chat_model(), self.small_model("qwen3-5"), self.small_model("gemma4")):
            with self.subTest(model.name):
                self.check_restarts(model)

    def test_the_start_says_what_is_on_disk(self):
        first = self.server()
        self.assertIn("found 0 B of conversations", "".join(first.started))
        self.say(first, [{"role": "user", "content": "And it came to pass " * 30}])
        self.end(first)
        self.assertRegex("".join(self.server().started),
                         r"found \d[\d.]* [KM]iB of conversations on disk")

    def check_restarts(self, model):
        """A conversation whose server ends after each turn is that of one that stays."""
        linear = model.name == "qwen3-5"
        states = [f'fasa_tier_bytes{{tier="{tier}",kind="states"}}' for tier in ("device", "host")]
        messages = [{"role": "user", "content": "And it came to pass in the days " * 30}]
        stays, goes = Server(self, model=model), self.server(model=model)
        for turn in range(3):
            told, new, logprobs = self.say(stays, messages)
            again, new_again, logprobs_again = self.say(goes, messages)
            self.assertEqual((again, logprobs_again), (told, logprobs), turn)
            self.assertEqual(new_again, new)
            if turn > 0:
                self.assertLess(new, 60)  # of a thousand
            for name in states:
                self.assertEqual(goes.metric(name) > 0, linear, name)
                self.assertEqual(goes.metric(name), stays.metric(name), name)
            self.end(goes)
            goes = self.server(model=model)
            self.assertEqual([goes.metric(name) for name in states], [0, 0])
            messages += [told, {"role": "user", "content": "Go on."}]
        self.assertEqual(goes.metric('fasa_sessions{state="suspended"}'), 1)
        self.assertGreater(goes.metric('fasa_used_bytes{tier="disk"}'), 100_000)
        # Back within the first answer's turn.
        other = [*messages[:2], {"role": "user", "content": "Stop."}]
        self.assertEqual(self.say(goes, other), self.say(stays, other))

    def test_a_template_that_drops_what_began_an_answer(self):
        """The prompt of a model with states goes on where the last one's history ended, though it
        ended in the begin of a thought that later prompts do not show."""
        model = self.small_model("qwen3-5")
        template = json.loads((model / "tokenizer_config.json").read_text())["chat_template"]
        self.assertIn("assistant\n", template)
        begin = template.rindex("assistant\n") + len("assistant\n")
        self.replace(model, "chat_template.jinja", template[:begin] + "mmm" + template[begin:])
        server = self.server(model=model)
        messages = [{"role": "user", "content": "And it came to pass in the days " * 30}]
        for turn in range(3):
            _, new, _ = self.say(server, messages)
            if turn > 0:
                self.assertLess(new, 90)  # of a thousand
            messages += [{"role": "assistant", "content": "yes"},
                         {"role": "user", "content": "Go on."}]

    def test_a_linear_models_answer_is_that_of_generate(self):
        model = self.small_model("qwen3-5")
        text = "And it came to pass in the days " * 6
        answer, _, _ = self.say(Server(self, model=model), [{"role": "user", "content": text}])
        done = self.assert_done("generate", "--model", model, "--chat", "--prompt", text,
                                "--max-tokens", 10, "--fac-tokens", 32, "--temperature", 0,
                                "--json")
        self.assertEqual(answer["content"], json.loads(done.stdout)["text"])
        self.assertGreater(len(answer["content"]), 5)  # a letter a token

    def test_suspended_sessions_outlive_a_kill(self):
        server = self.server("--idle-after", "10ms")
        text = "\n In the beginning é" + "é" * 40 + " and so on " * 20 + "\nAnd a second line"
        messages = [{"role": "user", "content": text}]
        told, _, _ = self.say(server, messages)
        while server.metric("fasa_sessions_suspended_total") == 0:
            time.sleep(0.01)
        self.end(server, signal.SIGKILL)
        server = self.server()
        (session,) = json.loads(server.ask("GET", "/v1/sessions")[2])["data"]
        self.assertEqual(session["title"], "In the beginning " + "é" * 31)  # at most 80 bytes
        _, new, _ = self.say(server, messages + [told, {"role": "user", "content": "Go on."}])
        self.assertLess(new, 40)

    def test_keys_share_nothing_and_are_not_on_disk(self):
        keys = self.folder / "keys"
        keys.write_text("first-secret-key\nsecond-secret-key\n")
        keys.chmod(0o600)
        messages = [{"role": "user", "content": "In the beginning " * 40}]
        first, second = ({"Authorization": f"Bearer {name}-secret-key"}
                         for name in ("first", "second"))
        server = self.server("--api-key-file", keys)
        _, all_new, _ = self.say(server, messages, **first)
        self.end(server)
        folder = self.folder / "sessions"
        self.assertEqual(os.stat(folder).st_mode & 0o077, 0)
        for file in folder.iterdir():
            self.assertNotIn(b"secret-key", file.read_bytes(), file)
        keys.write_text("second-secret-key\nfirst-secret-key\n")  # in another order
        server = self.server("--api-key-file", keys)
        self.assertEqual(self.say(server, messages, **second)[1], all_new)
        self.assertEqual(self.say(server, messages, **first)[1], 1)

    def test_settings_that_change_bits_share_nothing(self):
        messages = [{"role": "user", "content": "In the beginning " * 40}]
        server = self.server()
        _, all_new, _ = self.say(server, messages)
        self.end(server)
        server = self.server("--recent", "24")
        self.assertEqual(self.say(server, messages)[1], all_new)

    def test_a_folder_that_cannot_be(self):
        self.server()
        self.assert_fails(2, ["sessions_dir", "another process uses this folder"], "serve",
                          "--model", self.chat_model(), "--port", "0", "--sessions-dir",
                          self.folder / "sessions")

    def respond(self, server, text, previous=None, status=200, key=None, **fields):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answered, _, body = server.ask("POST", "/v1/responses", {
            "input": text, "max_output_tokens": 12, "temperature": 0,
            "previous_response_id": previous, **fields}, headers)
        self.assertEqual(answered, status, body)
        return json.loads(body) if answered == 200 else json.loads(body)["error"]

    def test_responses_continue_each_other(self):
        server = self.server()
        text = "And it came to pass in the days " * 20
        first = self.respond(server, text, instructions="Be brief.", metadata={"of": "me"})
        self.assertEqual((first["store"], first["previous_response_id"]), (True, None))
        second = self.respond(server, "Go on.", first["id"])
        self.assertEqual(second["previous_response_id"], first["id"])
        said = first["output"][0]["content"][0]["text"]
        whole = [{"role": "user", "content": text}, {"role": "assistant", "content": said},
                 {"role": "user", "content": "Go on."}]
        same = self.respond(server, whole, store=False)
        self.assertEqual(same["output"][0]["content"], second["output"][0]["content"])
        self.assertEqual(same["usage"]["input_tokens"], second["usage"]["input_tokens"])
        for response in (first, second):
            stored = server.ask("GET", "/v1/responses/" + response["id"])
            self.assertEqual((stored[0], json.loads(stored[2])), (200, response))
        self.assertFalse(same["store"])
        self.assertEqual(server.ask("GET", "/v1/responses/" + same["id"])[0], 404)
        # A branch from the first one, streamed, and the whole after a restart.
        events = server.ask("POST", "/v1/responses", {
            "input": "Stop.", "previous_response_id": first["id"], "stream": True,
            "max_output_tokens": 4})[2].decode().split("\n\n")
        branch = json.loads(events[-2].split("data: ")[1])["response"]
        self.end(server)
        server = self.server()
        for response in (first, second, branch):
            stored = server.ask("GET", "/v1/responses/" + response["id"])
            self.assertEqual((stored[0], json.loads(stored[2])), (200, response))
        third = self.respond(server, "And then?", second["id"])
        cached = third["usage"]["input_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, second["usage"]["input_tokens"])
        counted = server.ask("POST", "/v1/responses/input_tokens", {
            "input": "And then?", "previous_response_id": second["id"]})
        self.assertEqual(json.loads(counted[2])["input_tokens"], third["usage"]["input_tokens"])

    def test_calls_are_continued_by_their_results(self):
        server = Server(self, "--sessions-dir", self.folder / "sessions",
                        model=self.chat_model(TOOL_TEMPLATE))
        tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
        first = self.respond(server, "x", tools=tools, tool_choice="required",
                             max_output_tokens=100)
        call = first["output"][-1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        second = self.respond(server, [result], first["id"], tools=tools)
        whole = self.respond(server, [{"role": "user", "content": "x"}, call, result], tools=tools)
        self.assertEqual(second["usage"]["input_tokens"], whole["usage"]["input_tokens"])
        self.assertEqual(second["output"][0].get("content"), whole["output"][0].get("content"))

    def test_deleted_responses_are_gone(self):
        server = self.server("--idle-after", "10ms")
        first = self.respond(server, "In the beginning " * 40)
        second = self.respond(server, "Go on.", first["id"])
        while server.metric('fasa_sessions{state="in_memory"}') > 0:
            time.sleep(0.01)
        deleted = json.loads(server.ask("DELETE", "/v1/responses/" + first["id"])[2])
        self.assertEqual(deleted, {"id": first["id"], "object": "response", "deleted": True})
        name = first["id"].encode()
        record = struct.pack("<Q", len(name)) + name  # the second response names it as well
        while any(record in file.read_bytes() for file in
                  list((self.folder / "sessions").glob("*.session"))):
            time.sleep(0.01)  # the answer does not wait for the disk
        for _ in range(2):
            self.assertEqual(server.ask("GET", "/v1/responses/" + first["id"])[0], 404)
            self.assertEqual(server.ask("DELETE", "/v1/responses/" + first["id"])[0], 404)
            self.assertEqual(server.ask("GET", "/v1/responses/" + second["id"])[0], 200)
            for previous, name in ((first["id"], first["id"]), (second["id"], first["id"]),
                                   ("resp_0", "resp_0")):
                error = self.respond(server, "x", previous, status=400)
                self.assertEqual((error["param"], error["code"]),
                                 ("previous_response_id", "previous_response_not_found"))
                self.assertIn(name, error["message"])
            self.end(server, signal.SIGKILL)
            server = self.server()
        server.ask("DELETE", "/v1/responses/" + second["id"])
        while json.loads(server.ask("GET", "/v1/sessions")[2])["data"]:
            time.sleep(0.01)
        self.end(server)
        self.assertEqual([file.name for file in (self.folder / "sessions").glob("*.session")], [])

    def test_the_same_answer_twice_is_two_responses(self):
        server = self.server()
        both = [self.respond(server, "In the beginning")["id"] for _ in range(2)]
        self.end(server)
        server = self.server()
        for one in both:
            self.assertEqual(server.ask("GET", "/v1/responses/" + one)[0], 200)

    def test_responses_go_with_the_sessions_limit(self):
        server = self.server("--sessions-limit", "2MiB", "--idle-after", "10ms")
        ids = []
        for number in range(20):
            ids.append(self.respond(server, f"{number} In the beginning " * 40)["id"])
            while server.metric('fasa_sessions{state="in_memory"}') > 0:
                time.sleep(0.01)
            if server.ask("GET", "/v1/responses/" + ids[0])[0] == 404:
                break
        self.assertGreater(len(ids), 1)
        self.respond(server, "x", ids[0], status=400)
        self.assertEqual(server.ask("GET", "/v1/responses/" + ids[-1])[0], 200)
        self.assertLessEqual(server.metric('fasa_used_bytes{tier="disk"}'), 2 << 20)

    def test_responses_belong_to_a_key(self):
        keys = self.folder / "keys"
        keys.write_text("first-key\nsecond-key\n")
        keys.chmod(0o600)
        server = self.server("--api-key-file", keys)
        mine = self.respond(server, "In the beginning", key="first-key")["id"]
        other = {"Authorization": "Bearer second-key"}
        for method in ("GET", "DELETE"):
            self.assertEqual(server.ask(method, "/v1/responses/" + mine, headers=other)[0], 404)
        self.respond(server, "x", mine, status=400, key="second-key")
        self.respond(server, "x", mine, key="first-key")
        error = self.respond(server, "x", status=400, key="first-key", metadata={"a": "b" * 100000})
        self.assertEqual(error["param"], "store")
        self.respond(server, "x", store=False, key="first-key", metadata={"a": "b" * 100000})

    def test_without_a_folder_nothing_is_stored(self):
        server = Server(self, model=self.chat_model())
        first = self.respond(server, "x")
        self.assertFalse(first["store"])
        self.assertIn("--sessions-dir", self.respond(server, "x", first["id"], 400)["message"])
        status, _, body = server.ask("GET", "/v1/responses/" + first["id"])
        self.assertEqual(status, 404)
        self.assertIn("--sessions-dir", json.loads(body)["error"]["message"])


if __name__ == "__main__":
    main()
