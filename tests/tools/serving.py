"""A running fasa serve, and helpers for its tests."""
import http.client
import json
import os
import re
import shutil
import struct
import subprocess

from support import FASA, MODEL, SOURCE, CommandTest

TEMPLATE = ("{% for message in messages %}{{ '<' + message.role + '>' + message.content }}"
            "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
TOOL_TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    " Answer by <tool_call>{...}</tool_call>{% endif %}"
    "{% for message in messages %}{{ '<' + message.role + '>' }}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    "{\"name\": \"{{ call.function.name }}\", "
    "\"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string", "maxLength": 8}},
                   "required": ["town"], "additionalProperties": False}}},
         {"type": "function", "function": {"name": "now"}}]


def golden(name):
    return (SOURCE / "tests/template/golden" / f"{name}.jinja").read_text()


def schema_format(schema):
    return {"response_format": {"type": "json_schema",
                                "json_schema": {"name": "answer", "schema": schema}}}


CONTROL_TOKENS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>",
                  "</tool_call>"]


def byte_letters():
    """The letter of each byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i)
                                                  for i, byte in enumerate(others)}


def byte_tokenizer():
    letters = byte_letters()
    return {"version": "1.0", "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": 256 + i, "content": text, "normalized": False,
                              "special": text.startswith("<|")}
                             for i, text in enumerate(CONTROL_TOKENS)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)},
                      "merges": []}}


def widened(weights, rows):
    """A safetensors file whose matrices by token have so many rows: the first ones again."""
    size, = struct.unpack_from("<Q", weights)
    header, data = json.loads(weights[8:8 + size]), weights[8 + size:]
    parts, at = [], 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        part = data[begin:end]
        if "embed_tokens" in name or "lm_head" in name:
            part = (part * (rows // tensor["shape"][0] + 1))[:len(part) // tensor["shape"][0]
                                                             * rows]
            tensor["shape"][0] = rows
        tensor["data_offsets"] = [at, at + len(part)]
        parts.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


STARTED = re.compile(r"at (http://127\.0\.0\.1:(\d+)|unix:\S+)")


class Server:
    """A running `fasa serve`, ended with the test."""

    def __init__(self, test, *flags, model=MODEL):
        if "--log" not in flags:
            flags += ("--quiet",)  # nothing reads the pipe once the server has started
        variables = {k: v for k, v in os.environ.items() if not k.startswith("FASA_")}
        self.process = subprocess.Popen(
            [FASA, "serve", "--model", str(model), "--port", "0", "--fac-tokens", "32",
             *map(str, flags)], stderr=subprocess.PIPE, text=True, env=variables)
        test.addCleanup(self.stop)
        self.started = []
        for line in self.process.stderr:
            self.started.append(line)
            if found := STARTED.search(line):
                self.port = int(found[2]) if found[2] else None
                return
        test.fail(f"the server ended with {self.process.wait()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body)."""
        connection = self.connect()
        text = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        connection.request(method, path, text, headers or {})
        response = connection.getresponse()
        result = response.status, response.headers, response.read()
        connection.close()
        return result

    def complete(self, prompt, max_tokens=8, **fields):
        status, _, body = self.ask("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **fields})
        assert status == 200, body
        return json.loads(body)

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


class ServeTest(CommandTest):
    def small_model(self, name):
        """A random model of tests/golden, with a tokenizer of letters and ChatML."""
        folder, golden = self.folder / name, SOURCE / "tests/golden"
        if not folder.exists():
            shutil.copytree(golden / name, folder)
            for file in "tokenizer.json", "tokenizer_config.json":
                self.replace(folder, file, (golden / "qwen3-5" / file).read_bytes())
            config = json.loads((folder / "config.json").read_text())
            config |= {"max_position_embeddings": 4096, "eos_token_id": 63}
            self.replace(folder, "config.json", json.dumps(config))
        return folder

    def byte_model(self, name, template, context=32768):
        """A random model of tests/golden whose tokens are bytes, and those of ChatML."""
        folder, golden = self.folder / f"bytes-{name}", SOURCE / "tests/golden" / name
        if not folder.exists():
            folder.mkdir()
            rows = 256 + len(CONTROL_TOKENS)
            (folder / "model.safetensors").write_bytes(
                widened((golden / "model.safetensors").read_bytes(), rows))
            config = json.loads((golden / "config.json").read_text())
            config |= {"vocab_size": rows, "max_position_embeddings": context,
                       "eos_token_id": 257}
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
            (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
        self.replace(folder, "chat_template.jinja", template)
        return folder

    def chat_model(self, template=TEMPLATE):
        folder = self.folder / "chat-model"
        if not folder.exists():
            self.copy_model(folder.name)
        self.replace(folder, "chat_template.jinja", template)
        return folder

    def frames(self, body):
        """The stream's objects, after a check of its syntax."""
        text = body.decode("utf-8")  # strictly
        self.assertTrue(text.endswith("data: [DONE]\n\n"))
        blocks = text[:-2].split("\n\n")
        self.assertEqual(blocks.count("data: [DONE]"), 1)
        objects = []
        for block in blocks[:-1]:
            if block.startswith(":"):
                continue
            self.assertTrue(block.startswith("data: "), block)
            self.assertNotIn("\n", block)
            objects.append(json.loads(block[6:]))
        for name in ("id", "created", "model", "object"):
            self.assertEqual(len({json.dumps(one[name]) for one in objects}), 1, name)
        return objects
