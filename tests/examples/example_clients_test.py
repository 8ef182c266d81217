"""The examples that ask a running server: example_clients_test.py FASA SOURCE."""
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
from serving import ServeTest, Server  # pylint: disable=wrong-import-position
from support import SOURCE, main  # pylint: disable=wrong-import-position


class ExampleClients(ServeTest):
    def output_of(self, server, *command):
        done = subprocess.run([*map(str, command), f"http://127.0.0.1:{server.port}"], timeout=120,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @unittest.skipIf(shutil.which("curl") is None, "there is no curl")
    def test_curl(self):
        output = self.output_of(Server(self), SOURCE / "examples/serve_curl.sh")
        self.assertIn('"finish_reason":"length"', output.replace(": ", ":"))
        self.assertIn("data: [DONE]", output)

    @unittest.skipIf(importlib.util.find_spec("openai") is None,
                     "the package openai is missing: tools/env clients installs it")
    def test_openai(self):
        server = Server(self, model=self.chat_model())
        self.assertTrue(self.output_of(server, sys.executable, SOURCE / "examples/serve_openai.py"))


if __name__ == "__main__":
    main()
