"""The packages langchain-openai and instructor against fasa serve, as their users call them: chat,
stream, tools, structured answers, errors. They lie in a folder of their own (tools/env clients),
because they need an older openai."""
import typing
import unittest

from serving import TOOL_TEMPLATE, TOOLS, ServeTest, Server
from support import main

try:
    import instructor
    import langchain_openai
    import openai
    import pydantic
    from langchain_core.messages import HumanMessage, ToolMessage
except ImportError:
    langchain_openai = None
else:
    class Town(pydantic.BaseModel):
        name: typing.Literal["Ur", "Zoar"]
        people: int = pydantic.Field(ge=1, le=99)

USER = "In the beginning"


@unittest.skipIf(langchain_openai is None, "the packages are not there: tools/env clients")
class LangChain(ServeTest):
    def model(self, *flags, **options):
        server = Server(self, *flags, model=self.chat_model(TOOL_TEMPLATE))
        return langchain_openai.ChatOpenAI(**{
            "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "none",
            "model": "chat-model", "max_retries": 0, "max_tokens": 200, **options})

    def test_chat_and_stream(self):
        model = self.model(temperature=0, max_tokens=20)
        whole = model.invoke(USER)
        self.assertEqual(whole.usage_metadata["output_tokens"], 20)
        self.assertEqual("".join(part.content for part in model.stream(USER)), whole.content)

    def test_tools(self):
        model = self.model()
        called = model.bind_tools(TOOLS[:1], tool_choice="get_weather").invoke(USER)
        call, = called.tool_calls
        self.assertEqual((call["name"], list(call["args"])), ("get_weather", ["town"]))
        turns = [HumanMessage(USER), called, ToolMessage("rain", tool_call_id=call["id"])]
        whole = None
        for part in model.bind_tools(TOOLS[:1], tool_choice="any").stream(turns):
            whole = part if whole is None else whole + part
        self.assertEqual(list(whole.tool_calls[0]["args"]), ["town"])

    def test_structured_answers(self):
        model = self.model()
        for method in ("json_schema", "function_calling"):
            with self.subTest(method):
                answer = model.with_structured_output(Town, method=method).invoke(USER)
                self.assertIsInstance(answer, Town)

    def test_responses(self):
        model = self.model("--sessions-dir", self.folder / "sessions", temperature=0,
                           max_tokens=20, use_responses_api=True,
                           use_previous_response_id=True)
        first = model.invoke(USER)
        self.assertTrue(first.text)
        second = model.invoke([HumanMessage(USER), first, HumanMessage("Go on.")])
        self.assertGreater(second.usage_metadata["input_tokens"],
                           first.usage_metadata["input_tokens"] + 20)
        streamed = list(model.stream(USER))
        self.assertEqual("".join(part.text for part in streamed), first.text)

    def test_errors(self):
        keys = self.write("keys", "secret\n")
        keys.chmod(0o600)
        model = self.model("--api-key-file", keys)
        with self.assertRaises(openai.AuthenticationError):
            model.invoke(USER)
        for options, error in (({"model": "other"}, openai.NotFoundError),
                               ({"temperature": 9}, openai.BadRequestError)):
            with self.assertRaises(error):
                langchain_openai.ChatOpenAI(**{
                    "base_url": model.openai_api_base, "api_key": "secret", "model": "chat-model",
                    "max_retries": 0, **options}).invoke(USER)


@unittest.skipIf(langchain_openai is None, "the packages are not there: tools/env clients")
class Instructor(ServeTest):
    def client(self):
        server = Server(self, model=self.chat_model(TOOL_TEMPLATE))
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none",
                               max_retries=0)
        self.addCleanup(client.close)
        return client

    def test_structured_answers(self):
        client = self.client()
        ask = {"model": "chat-model", "messages": [{"role": "user", "content": USER}],
               "max_tokens": 200, "response_model": Town}
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT,
                     instructor.Mode.JSON_SCHEMA):
            with self.subTest(mode):
                asker = instructor.from_openai(client, mode=mode)
                self.assertIsInstance(asker.chat.completions.create(**ask), Town)
                *_, last = asker.chat.completions.create_partial(**ask)
                self.assertIn(last.name, ("Ur", "Zoar"))

    def test_errors(self):
        with self.assertRaises(Exception) as caught:
            instructor.from_openai(self.client()).chat.completions.create(
                model="other", messages=[{"role": "user", "content": USER}], response_model=Town)
        self.assertIn("404", str(caught.exception))


if __name__ == "__main__":
    main()
