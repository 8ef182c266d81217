"""fasa serve: what a conversation reads again. Agents' turns on a model with attention, one with
linear attention and one with windows; beside other conversations and after a restart."""
import json
import time

from agent_files import FILES, turns
from serving import Server, ServeTest, golden
from support import main

# Attention, linear attention, windows.
MODELS = ("qwen3", "qwen3-5", "gemma3")
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
BEGIN = 40  # bytes of the part that begins an answer, at most


def last_question(messages):
    """The messages up to the user's last one, results aside."""
    def asks(message):
        content = message.get("content")
        results = isinstance(content, list) and any(part.get("type") == "tool_result"
                                                    for part in content)
        return message.get("role") == "user" and not results
    last = max(i for i, message in enumerate(messages) if asks(message))
    return messages[:last + 1]


class Prefixes(ServeTest):
    def logged(self, server, path, body):
        """The log's line of a request."""
        status, _, answer = server.ask("POST", path, body)
        self.assertEqual(status, 200, answer)
        while not (line := server.process.stderr.readline()).startswith("{"):
            self.assertNotEqual(line, "")
        return json.loads(line)

    def read(self, server, messages, **fields):
        """(tokens of the prompt, those that were not in the cache)"""
        fields = {"max_tokens": 4, "temperature": 0, **fields}
        status, _, body = server.ask("POST", "/v1/chat/completions",
                                     {"messages": messages, **fields})
        self.assertEqual(status, 200, body)
        usage = json.loads(body)["usage"]
        tokens = usage["prompt_tokens"]
        return tokens, tokens - usage["prompt_tokens_details"]["cached_tokens"]

    def test_agents_read_only_what_is_new(self):
        for name in MODELS:
            self.check_agents(self.byte_model(name, golden("qwen3_5")))

    def check_agents(self, model):
        def start(*flags):
            return Server(self, "--any-model-name", "--log", "json", *flags, model=model)
        flags = "--sessions-dir", self.folder / f"sessions-{model.name}"
        server, counter = start(*flags), start()
        agents = [(file.stem, list(turns(json.loads(file.read_text()), model.name)))
                  for file in FILES]
        held = {}  # by conversation: tokens of the last request until the user's last message
        checked = 0
        for step in range(max(len(all_turns) for _, all_turns in agents)):
            if step == 6:  # in the middle of each conversation
                server.process.terminate()
                self.assertEqual(server.process.wait(60), 0)
                server = start(*flags)
            for agent, all_turns in agents:
                if step >= len(all_turns):
                    continue
                turn, method, path, body = all_turns[step]
                fields = json.loads(body) if body else {}
                field = "input" if "input" in fields else "messages"
                if method != "POST" or not fields.get(field) or "count_tokens" in path:
                    continue
                line = self.logged(server, path, body)
                talk = agent, turn.get("starts") or turn.get("goes_on")
                tools = fields.get("tools"), fields.get("tool_choice"), "additional_tools" in body
                if "goes_on" in turn and tools == held[talk][1]:
                    checked += 1
                    self.assertGreaterEqual(line["cached_tokens"], held[talk][0],
                                            f"{model.name}: {agent}: {turn['name']}: {line}")
                if talk[1]:
                    fields[field] = last_question(fields[field])
                    tokens = self.logged(counter, path, json.dumps(fields))["prompt_tokens"]
                    held[talk] = tokens - BEGIN, tools
        self.assertGreaterEqual(checked, 15)
        for one in server, counter:
            one.stop()

    def test_a_long_thought_is_dropped(self):
        """Regenerated, edited, and dropped by the template: the last turn is read again."""
        for name in MODELS[1:]:
            server = Server(self, model=self.byte_model(name, CHATML))
            question = [{"role": "user", "content": "And it came to pass in the days " * 40}]
            # More than the rollback window of windows.
            thought = "<think>\n" + "when the judges ruled, " * 130 + "\n</think>\n\n"
            tokens, _ = self.read(server, question, max_tokens=4000,
                                  guided_choice=[thought + "Yes."])
            for messages in (question,
                             question + [{"role": "assistant", "content": "No."},
                                         {"role": "user", "content": "Go on."}],
                             question + [{"role": "assistant", "content": "Yes."},
                                         {"role": "user", "content": "Why?"}]):
                whole, new = self.read(server, messages)
                self.assertLessEqual(new, whole - tokens + 2 * BEGIN, f"{name}: {messages[1:]}")
            server.stop()

    def test_calls_come_back_by_their_ids(self):
        """The template spells a call in another way than the model wrote it."""
        template = golden("qwen3_5")
        tools = [{"type": "function", "function": {"name": "now", "parameters": {
            "type": "object", "properties": {"zone": {"type": "string"}}}}}]
        written = ("I look.\n<tool_call>\n<function=now>\n<parameter=zone>\nUTC\n"
                   "</parameter>\n</function>\n</tool_call>")
        for name in MODELS:
            server = Server(self, model=self.byte_model(name, template))
            messages = [{"role": "user", "content": "And it came to pass in the days " * 20}]
            common = {"tools": tools, "chat_template_kwargs": {"enable_thinking": False}}
            for turn in range(2):
                status, _, body = server.ask("POST", "/v1/chat/completions", {
                    "messages": messages, "max_tokens": 300, "temperature": 0,
                    "guided_choice": [written], **common})
                self.assertEqual(status, 200, body)
                reply = json.loads(body)
                usage, message = reply["usage"], reply["choices"][0]["message"]
                self.assertEqual(reply["choices"][0]["finish_reason"], "tool_calls", reply)
                call = message["tool_calls"][0]
                call["function"]["arguments"] = call["function"]["arguments"].replace(": ", ":  ")
                messages += [message, {"role": "tool", "tool_call_id": call["id"],
                                       "content": f"It is {turn}."}]
                whole, new = self.read(server, messages, **common)
                result = whole - usage["prompt_tokens"] - usage["completion_tokens"]
                self.assertLessEqual(new, result + 1, f"{name}: turn {turn}: {usage}")
                # Another call of that id is another one.
                call["function"]["arguments"] = '{"zone": "CET"}'
                _, changed = self.read(server, messages, **common)
                self.assertGreater(changed, new)
                call["function"]["arguments"] = '{"zone": "UTC"}'
            server.stop()

    def test_side_requests_do_not_evict_the_conversation(self):
        model = self.byte_model("qwen3", CHATML)
        flags = "--max-context", 24000, "--prefill-chunk", 2048
        free = Server(self, *flags, model=model)
        used = sum(free.metric(f'fasa_used_bytes{{tier="{tier}"}}') for tier in ("device", "host"))
        a_token = sum(json.loads(free.ask("GET", "/props")[2])["kv_bytes_per_token"].values())
        free.stop()
        talk = [{"role": "user", "content": "And it came to pass in the days " * 625}]
        server = Server(self, *flags, "--host-memory", int(used + 1.5 * 20000 * a_token),
                        model=model)
        tokens, _ = self.read(server, talk)
        self.assertGreater(tokens, 20000)
        talk += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Why?"}]
        self.read(server, talk)
        for i in range(10):
            self.read(server, [{"role": "system", "content": f"Make a title. {i}" * 20},
                               {"role": "user", "content": "In the days of the judges " * 40}])
        self.assertGreater(server.metric("fasa_evictions_total"), 0)
        talk += [{"role": "assistant", "content": "So."}, {"role": "user", "content": "Go on."}]
        _, new = self.read(server, talk)
        self.assertLess(new, 100)

    def test_a_prompt_that_was_left_goes_on(self):
        """A client goes away at 90 % of its prompt: its chunks are there for the next one."""
        for name in MODELS:
            model = self.byte_model(name, CHATML)
            server = Server(self, "--prefill-chunk", 64, model=model)
            messages = [{"role": "user", "content": "And it came to pass in the days " * 300}]
            connection = server.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps(
                {"messages": messages, "stream": True, "return_progress": True}))
            response, read, total = connection.getresponse(), 0, 1
            while read < 0.9 * total:
                line = response.readline()
                if b"prompt_progress" in line:
                    progress = json.loads(line[6:])["prompt_progress"]
                    read, total = progress["processed"], progress["total"]
            self.assertLess(read, total)
            response.close()
            connection.close()
            while server.metric("fasa_requests_running") > 0:
                time.sleep(0.01)
            whole, new = self.read(server, messages)
            self.assertEqual(whole, total)
            self.assertLessEqual(new, total - read + 2 * 64, name)
            server.stop()


if __name__ == "__main__":
    main()
