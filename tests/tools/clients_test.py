"""The packages anthropic, ollama and litellm against fasa serve, each as its users call it: chat,
stream, tools, structured answers, errors. A package that is not there is skipped
(tools/env clients installs them)."""
import importlib
import json
import os
import typing
import unittest

from serving import TOOL_TEMPLATE, TOOLS, ServeTest, Server
from support import main

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no network

USER = [{"role": "user", "content": "In the beginning"}]


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


anthropic, ollama, litellm, pydantic = map(
    package, ("anthropic", "ollama", "litellm", "pydantic"))


if litellm is not None:
    litellm.suppress_debug_info = True


def needs(*packages):
    return unittest.skipIf(None in packages, "a package is not there: tools/env clients")


if pydantic is not None:
    class Town(pydantic.BaseModel):
        name: typing.Literal["Ur", "Zoar"]
        large: bool


class Clients(ServeTest):
    def served(self, *flags):
        """The address of a server, and its model's name."""
        server = Server(self, *flags, model=self.chat_model(TOOL_TEMPLATE))
        return f"http://127.0.0.1:{server.port}", "chat-model"

    def with_key(self):
        keys = self.write("keys", "secret\n")
        keys.chmod(0o600)
        return self.served("--api-key-file", keys)


@needs(anthropic)
class Anthropic(Clients):
    def client(self, address, key="secret"):
        client = anthropic.Anthropic(base_url=address, api_key=key, max_retries=0)
        self.addCleanup(client.close)
        return client

    def test_chat_and_stream(self):
        address, model = self.served()
        client = self.client(address)
        ask = {"model": model, "max_tokens": 20, "messages": USER, "system": "Be brief.",
               "extra_body": {"temperature": 0}}
        whole = client.messages.create(**ask)
        text = whole.content[0].text
        self.assertEqual((whole.stop_reason, whole.usage.output_tokens), ("max_tokens", 20))
        with client.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), text)
            self.assertEqual(stream.get_final_message().content[0].text, text)
        cut = client.messages.create(**ask, stop_sequences=[text[4:7]])
        self.assertEqual((cut.stop_reason, cut.stop_sequence), ("stop_sequence", text[4:7]))
        counted = client.messages.count_tokens(model=model, messages=USER, system="Be brief.")
        self.assertEqual(counted.input_tokens, whole.usage.input_tokens)

    def test_tools(self):
        address, model = self.served()
        client = self.client(address)
        tools = [{"name": "get_weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
        ask = {"model": model, "max_tokens": 200, "tools": tools}
        message = client.messages.create(**ask, messages=USER, tool_choice={
            "type": "tool", "name": "get_weather"})
        call = message.content[-1]
        self.assertEqual((message.stop_reason, call.type, list(call.input)),
                         ("tool_use", "tool_use", ["town"]))
        turns = USER + [{"role": "assistant", "content": message.content},
                        {"role": "user", "content": [{"type": "tool_result", "content": "rain",
                                                      "tool_use_id": call.id}]}]
        with client.messages.stream(**ask, messages=turns, tool_choice={"type": "any"}) as stream:
            self.assertEqual(stream.get_final_message().content[-1].type, "tool_use")

    def test_structured_answers(self):
        address, model = self.served()
        parsed = self.client(address).messages.parse(model=model, max_tokens=100, messages=USER,
                                                     output_format=Town)
        self.assertIsInstance(parsed.parsed_output, Town)

    def test_errors(self):
        address, model = self.with_key()
        ask = {"max_tokens": 5, "messages": USER}
        with self.assertRaises(anthropic.AuthenticationError):
            self.client(address, "other").messages.create(model=model, **ask)
        with self.assertRaises(anthropic.NotFoundError):
            self.client(address).messages.create(model="other", **ask)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client(address).messages.create(
                model=model, extra_body={"top_k": -9}, **ask)
        self.assertIn("top_k", str(caught.exception))


@needs(ollama)
class Ollama(Clients):
    def test_chat_and_stream(self):
        address, model = self.served()
        client = ollama.Client(address)
        self.assertEqual(client.list().models[0].model, model)
        self.assertIn("tools", client.show(model).capabilities)
        ask = {"model": model, "options": {"temperature": 0, "num_predict": 20}}
        whole = client.chat(**ask, messages=USER)
        self.assertEqual((whole.done_reason, whole.eval_count), ("length", 20))
        self.assertEqual("".join(part.message.content for part in
                                 client.chat(**ask, messages=USER, stream=True)),
                         whole.message.content)
        text = client.generate(**ask, prompt="In the", raw=True).response
        self.assertEqual("".join(part.response for part in client.generate(
            **ask, prompt="In the", raw=True, stream=True)), text)

    def test_tools(self):
        def get_weather(town: str) -> str:
            """The weather.

            Args:
              town: its name
            """
            return "rain in " + town
        address, model = self.served()
        client = ollama.Client(address)
        call = {"function": {"name": "get_weather", "arguments": {"town": "Ur"}}}
        turns = USER + [{"role": "assistant", "content": "", "tool_calls": [call]},
                        {"role": "tool", "content": get_weather("Ur"), "tool_name": "get_weather"}]
        for messages in (USER, turns):
            answer = client.chat(model=model, messages=messages, tools=[get_weather],
                                 options={"num_predict": 20})
            self.assertEqual(answer.message.role, "assistant")

    def test_structured_answers(self):
        address, model = self.served()
        answer = ollama.Client(address).chat(model=model, messages=USER,
                                             format=Town.model_json_schema())
        Town.model_validate_json(answer.message.content)

    def test_errors(self):
        address, model = self.with_key()
        with self.assertRaises(ollama.ResponseError) as caught:
            ollama.Client(address).list()
        self.assertEqual(caught.exception.status_code, 401)
        client = ollama.Client(address, headers={"Authorization": "Bearer secret"})
        for ask, status in (({"model": "other"}, 404),
                            ({"model": model, "options": {"temperature": 9}}, 400)):
            with self.assertRaises(ollama.ResponseError) as caught:
                client.chat(**ask, messages=USER)
            self.assertEqual(caught.exception.status_code, status)


@needs(litellm)
class LiteLlm(Clients):
    """The provider for servers with OpenAI's API, and that for Anthropic's."""

    def providers(self, key="secret"):
        address, model = self.with_key()
        return [{"model": "openai/" + model, "api_base": address + "/v1", "api_key": key},
                {"model": "anthropic/" + model, "api_base": address, "api_key": key}]

    def test_chat_and_stream(self):
        for served in self.providers():
            ask = {**served, "messages": USER, "temperature": 0, "max_tokens": 20}
            whole = litellm.completion(**ask).choices[0]
            self.assertEqual(whole.finish_reason, "length")
            streamed = litellm.completion(**ask, stream=True)
            self.assertEqual("".join(part.choices[0].delta.content or "" for part in streamed),
                             whole.message.content)

    def test_tools(self):
        for served in self.providers():
            ask = {**served, "tools": TOOLS[:1], "max_tokens": 200}
            choice = {"type": "function", "function": {"name": "get_weather"}}
            message = litellm.completion(**ask, messages=USER, tool_choice=choice
                                         ).choices[0].message
            call, = message.tool_calls
            self.assertEqual(list(json.loads(call.function.arguments)), ["town"])
            turns = USER + [message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
            again = litellm.completion(**ask, messages=turns, tool_choice="required", stream=True)
            self.assertEqual(list(again)[-1].choices[0].finish_reason, "tool_calls")

    def test_structured_answers(self):
        for served in self.providers():
            answer = litellm.completion(**served, messages=USER, max_tokens=200,
                                        response_format=Town)
            Town.model_validate_json(answer.choices[0].message.content)

    def test_responses(self):
        served = self.providers()[0]
        answer = litellm.responses(**served, input="In the beginning", max_output_tokens=5)
        self.assertEqual(answer.status, "incomplete")

    def test_errors(self):
        for served in self.providers():
            ask = {"messages": USER, "max_tokens": 5, "max_retries": 0}
            with self.assertRaises(litellm.AuthenticationError):
                litellm.completion(**{**served, "api_key": "other"}, **ask)
            with self.assertRaises(litellm.NotFoundError):
                litellm.completion(**{**served, "model": served["model"] + "2"}, **ask)
            with self.assertRaises(litellm.BadRequestError):
                litellm.completion(**served, **ask, temperature=9)
            with self.assertRaises(litellm.ContextWindowExceededError):
                litellm.completion(**served, max_tokens=5, messages=[
                    {"role": "user", "content": "x" * 9000}])


if __name__ == "__main__":
    main()
