"""Servers under load, and requests to them."""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FASA = ROOT / "build/release/fasa"
TEXT = (ROOT / "models/texts/revelation.txt").read_text()
STARTED = re.compile(r"at http://127\.0\.0\.1:(\d+)")
ANSWER = 64  # tokens


class Server:
    """A process that speaks the API on a port of its own."""

    def __init__(self, command, port=None):
        variables = {k: v for k, v in os.environ.items()
                     if not k.startswith("FASA_") or k == "FASA_TARGET"}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, env=variables)
        self.log = []
        self.port = port
        if port is None:
            for line in self.process.stderr:
                self.log.append(line)
                if found := STARTED.search(line):
                    self.port = int(found[1])
                    break
            else:
                sys.exit("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=self.drain, daemon=True).start()
        while not self.answers():
            if self.process.poll() is not None:
                sys.exit("the server did not start:\n" + "".join(self.log[-20:]))
            time.sleep(0.2)

    def drain(self):
        for line in self.process.stderr:
            self.log.append(line)

    def answers(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def memory(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def cpu_seconds(self):
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def request(self, method, path, body=None):
        """The text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body))
        return connection.getresponse().read().decode()

    def metrics(self, name):
        """Sum of the samples of all labels."""
        samples = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.request("GET", "/metrics"), re.M)
        return sum(map(float, samples))

    def tokens_of(self, text):
        return json.loads(self.request("POST", "/tokenize", {"content": text}))["tokens"]

    def text_of(self, tokens):
        return json.loads(self.request("POST", "/detokenize", {"tokens": tokens}))["content"]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def fasa(model, *flags):
    return Server([FASA, "serve", "--model", model, "--port", "0", *flags])


def llama(program, model, slots, context):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Server([program, "--model", model, "--port", str(port), "--parallel", str(slots),
                   "--ctx-size", str(slots * context), "--flash-attn", "on", "--threads",
                   str(os.cpu_count())], port)


class Reply:
    """A streamed answer and when its pieces came, seconds since it was asked."""

    def __init__(self):
        self.pieces = []  # (seconds, text)
        self.status = None
        self.error = None
        self.usage = {}

    text = property(lambda self: "".join(piece for _, piece in self.pieces))
    first = property(lambda self: self.pieces[0][0])
    gaps = property(lambda self: [b[0] - a[0] for a, b in zip(self.pieces, self.pieces[1:])])


def ask(server, prompt, tokens=ANSWER, stop_after=None, on_piece=None, **fields):
    """`stop_after` pieces the connection is broken."""
    reply = Reply()
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=900)
    begin = time.perf_counter()
    try:
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply.status = response.status
        if response.status != 200:
            reply.error = response.read().decode(errors="replace")
            return reply
        for line in response:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            frame = json.loads(line[6:])
            reply.usage = frame.get("usage") or reply.usage
            choices = frame.get("choices")
            if not choices or not choices[0].get("text"):
                continue
            reply.pieces.append((time.perf_counter() - begin, choices[0]["text"]))
            if on_piece:
                on_piece()
            if stop_after is not None and len(reply.pieces) >= stop_after:
                break
    except OSError as error:
        reply.error = str(error)
    finally:
        connection.close()
    return reply


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f}" if seconds < 1 else f"{seconds * 1e3:.0f}"
