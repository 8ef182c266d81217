"""A vLLM server on fasa: planted facts are found with 128 selected tokens, as by `fasa eval`;
streams, early disconnects, metrics."""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import pytest
from support import MODEL, ROOT, environment, long_run

pytestmark = long_run


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def read(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def server():
    """`vllm serve` as docs/vllm.md starts it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+",
                                                       encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(MODEL),
             "--served-model-name", "needle-3m", "--host", "127.0.0.1", "--port", str(port),
             "--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8", "--worker-cls",
             "fasa.vllm.CpuWorker", "--additional-config", '{"fasa": {"fac_tokens": 128}}'],
            env=environment(folder, VLLM_ENABLE_V1_MULTIPROCESSING="1",
                            VLLM_CPU_OMP_THREADS_BIND="nobind"),
            stdout=log, stderr=log, cwd=folder, start_new_session=True)
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                try:
                    read(f"{url}/health")
                    break
                except OSError:
                    assert process.poll() is None, log.seek(0) or log.read()[-6000:]
                    time.sleep(0.5)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_needle_at_128_tokens(server, tmp_path):
    flags = ["needle", "--model", str(MODEL), "--context", "1000", "4000", "7000", "--examples",
             "3", "--json"]
    command = subprocess.run(
        [os.environ["COMMAND_UNDER_TEST"], "eval", *flags, "--fac-tokens", "128", "--row-dtype",
         "f32",
         "--results", str(tmp_path / "own")], check=True, capture_output=True, text=True,
        timeout=900)
    served = subprocess.run(
        [str(ROOT / "build/venv/bin/python"), "-m", "fasa", "eval", *flags, "--server", server,
         "--results", str(tmp_path / "vllm")], check=True, capture_output=True, text=True,
        timeout=900, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    own, vllm = json.loads(command.stdout), json.loads(served.stdout)
    assert vllm["questions"] == own["questions"] == 36
    assert vllm["accuracy"] >= own["accuracy"] - 1.5 / 36


def test_eight_clients_stream(server):
    text = (ROOT / "models/texts/ruth.txt").read_text()

    def ask(number):
        request = urllib.request.Request(
            f"{server}/v1/completions", json.dumps({
                "model": "needle-3m", "prompt": text[number * 50:number * 50 + 400 + 100 * number],
                "max_tokens": 24, "temperature": 0, "stream": True, "ignore_eos": True}).encode(),
            {"Content-Type": "application/json"})
        pieces = []
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
                if number % 4 == 3 and len(pieces) == 3:
                    return None  # the client disconnects
        return "".join(pieces)

    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        texts = list(clients.map(ask, range(8)))
    assert sum(one is None for one in texts) == 2
    for number, one in enumerate(texts):
        if one is None:
            continue
        alone = json.loads(read(f"{server}/v1/completions", {
            "model": "needle-3m", "prompt": text[number * 50:number * 50 + 400 + 100 * number],
            "max_tokens": 24, "temperature": 0, "ignore_eos": True}))
        assert alone["usage"]["completion_tokens"] == 24 and len(one) >= 20
    metrics = read(f"{server}/metrics")
    assert "vllm:kv_cache_usage_perc" in metrics
