"""The official openai client against fasa serve, synchronous and asynchronous: the server
understands its requests, and the client can read the replies. Without the package
(tools/env clients) all tests are skipped."""
import asyncio
import json
import unittest

from serving import TEMPLATE, TOOL_TEMPLATE, TOOLS, ServeTest, Server, schema_format
from support import main

try:
    import openai
except ImportError:
    openai = None

USER = [{"role": "user", "content": "And Ruth said, "}]


@unittest.skipIf(openai is None, "the package openai is not there: tools/env clients installs it")
class Client(ServeTest):
    def client(self, server, kind="OpenAI", **options):
        client = getattr(openai, kind)(base_url=f"http://127.0.0.1:{server.port}/v1",
                                       **{"api_key": "none", "max_retries": 0, **options})
        if kind == "OpenAI":
            self.addCleanup(client.close)
        return client

    def test_completions(self):
        server = Server(self, model=self.chat_model())
        client = self.client(server)
        model = client.models.list().data[0].id
        self.assertEqual(client.models.retrieve(model).id, model)
        ask = {"model": model, "messages": USER, "temperature": 0, "max_tokens": 20}
        whole = client.chat.completions.create(**ask, n=2, logprobs=True, top_logprobs=2)
        first = whole.choices[0].message.content
        self.assertEqual(first, whole.choices[1].message.content)
        self.assertEqual(len(whole.choices[0].logprobs.content), 20)
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + 40)
        chunks = list(client.chat.completions.create(**ask, stream=True,
                                                     stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                         first)
        self.assertEqual(chunks[-1].usage.completion_tokens, 20)
        with client.chat.completions.with_streaming_response.create(**ask, stream=True) as raw:
            self.assertEqual(raw.headers["content-type"], "text/event-stream; charset=utf-8")
            self.assertTrue(list(raw.iter_lines())[-2:][0].startswith("data: [DONE]"))
        again = client.chat.completions.create(**ask, seed=4)
        self.assertEqual(again.choices[0].message.content, first)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)
        text = client.completions.create(model=model, prompt="In the", max_tokens=1, temperature=0)
        self.assertEqual(len(text.choices[0].text), 1)
        stop = client.completions.create(model=model, prompt="And Ruth said, ", max_tokens=40,
                                         temperature=0)
        cut = stop.choices[0].text[5:9]
        stopped = client.completions.create(model=model, prompt="And Ruth said, ", max_tokens=40,
                                            temperature=0, stop=cut)
        self.assertNotIn(cut, stopped.choices[0].text)
        self.assertEqual(stopped.choices[0].finish_reason, "stop")

    def test_characters_come_whole(self):
        """The stream gives the same text as the whole reply, whatever bytes the model writes."""
        server = Server(self, model=self.chat_model())
        client = self.client(server)
        likely = {str(byte): 9 for byte in (0xF0, 0x9F, 0x98, 0x80, 0xE4, 0xB8, 0xAD, 0xE2, 0x8D)}
        ask = {"model": "", "messages": [{"role": "user", "content": "👩‍👩‍👧 漢字 é"}],
               "temperature": 1.5, "max_tokens": 60, "logit_bias": likely}
        for seed in range(4):
            whole = client.chat.completions.create(**ask, seed=seed)
            streamed = client.chat.completions.create(**ask, seed=seed, stream=True)
            self.assertEqual("".join(c.choices[0].delta.content or "" for c in streamed),
                             whole.choices[0].message.content)

    def test_errors(self):
        keys = self.write("keys", "secret\n")
        keys.chmod(0o600)
        server = Server(self, "--api-key-file", keys, model=self.chat_model())
        with self.assertRaises(openai.AuthenticationError):
            self.client(server).models.list()
        client = self.client(server, api_key="secret", max_retries=2)
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="other", messages=USER)
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("other")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="", messages=USER, temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.completions.create(model="", prompt="x" * 9000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        client.completions.create(model="", prompt="x", max_tokens=1)

    def test_tools_round_trip(self):
        server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        client = self.client(server)
        messages = list(USER)
        for stream in (False, True):
            reply = client.chat.completions.create(model="", messages=messages, tools=TOOLS,
                                                   tool_choice="required", seed=1, stream=stream)
            if stream:
                calls = [c.choices[0].delta.tool_calls[0] for c in reply
                         if c.choices[0].delta.tool_calls]
                name, call_id = calls[0].function.name, calls[0].id
                arguments = "".join(call.function.arguments for call in calls)
                messages.append({"role": "assistant", "tool_calls": [
                    {"id": call_id, "type": "function",
                     "function": {"name": name, "arguments": arguments}}]})
            else:
                call = reply.choices[0].message.tool_calls[0]
                name, call_id, arguments = call.function.name, call.id, call.function.arguments
                messages.append(reply.choices[0].message)
            self.assertIn(name, ("get_weather", "now"))
            json.loads(arguments)
            messages.append({"role": "tool", "tool_call_id": call_id, "content": "rain"})
        client.chat.completions.create(model="", messages=messages, tools=TOOLS, max_tokens=2)

    def test_schemas(self):
        server = Server(self, model=self.chat_model())
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9,
                                                         "minimum": 1}},
                  "required": ["n"], "additionalProperties": False}
        reply = self.client(server).chat.completions.create(model="", messages=USER,
                                                            **schema_format(schema))
        self.assertIn(json.loads(reply.choices[0].message.content)["n"], range(1, 10))

    def test_responses(self):
        server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        client = self.client(server)
        ask = {"model": "", "input": "And Ruth said, ", "instructions": "Be brief.",
               "temperature": 0, "max_output_tokens": 12}
        whole = client.responses.create(**ask)
        self.assertEqual((whole.status, whole.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))
        self.assertEqual(whole.usage.output_tokens, 12)
        events = list(client.responses.create(**ask, stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual([events[0].type, events[1].type, events[-1].type],
                         ["response.created", "response.in_progress", "response.incomplete"])
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"),
                         whole.output_text)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
        called = client.responses.create(model="", input="x", tools=flat, tool_choice="required",
                                         temperature=1)
        call, = called.output
        self.assertEqual((called.status, call.type), ("completed", "function_call"))
        json.loads(call.arguments)
        with client.responses.stream(model="", input="x", tools=flat, tool_choice={
                "type": "function", "name": "get_weather"}) as stream:
            kinds = {event.type for event in stream}
            final, = stream.get_final_response().output
        self.assertIn("response.function_call_arguments.delta", kinds)
        self.assertEqual(list(json.loads(final.arguments)), ["town"])
        turn = [{"role": "user", "content": "x"}, call.model_dump(),
                {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
                {"role": "user", "content": [{"type": "input_text", "text": "y"}]}]
        client.responses.create(model="", input=turn, tools=flat, max_output_tokens=2)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.responses.create(model="", input="x", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")

    def test_stored_responses(self):
        server = Server(self, "--sessions-dir", self.folder / "sessions", model=self.chat_model())
        responses = self.client(server).responses
        ask = {"model": "", "temperature": 0, "max_output_tokens": 12}
        first = responses.create(input="And Ruth said, ", **ask)
        self.assertTrue(first.store)
        second = responses.create(input="Go on.", previous_response_id=first.id, **ask)
        *_, last = responses.create(input="Go on.", previous_response_id=first.id, stream=True,
                                    **ask)
        again = last.response
        self.assertEqual(again.output_text, second.output_text)
        for response in (first, second, again):
            self.assertEqual(responses.retrieve(response.id).output_text, response.output_text)
        responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            responses.retrieve(first.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            responses.create(input="x", previous_response_id=first.id, **ask)
        self.assertEqual(caught.exception.code, "previous_response_not_found")

    def test_many_at_once(self):
        server = Server(self, "--max-sequences", 3, model=self.chat_model())

        async def ask_all():
            async with self.client(server, "AsyncOpenAI") as client:
                async def one(index):
                    stream = await client.chat.completions.create(
                        model="", max_tokens=8, temperature=0, stream=True,
                        messages=[{"role": "user", "content": f"{index} And Boaz"}])
                    return "".join([c.choices[0].delta.content or "" async for c in stream])
                return await asyncio.gather(*(one(index % 2) for index in range(6)))
        said = asyncio.run(ask_all())
        self.assertEqual(len(set(said)), len(set(said[:2])))


if __name__ == "__main__":
    main()
