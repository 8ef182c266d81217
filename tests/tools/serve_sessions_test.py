"""fasa serve with sessions on disk: conversations survive any end of the server."""
import json
import os
import signal
import time

from serving import ServeTest, Server
from support import main


class Sessions(ServeTest):
    def server(self, *flags):
        return Server(self, "--sessions-dir", self.folder / "sessions", *flags,
                      model=self.chat_model())

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
        messages = [{"role": "user", "content": "And it came to pass in the days " * 30}]
        stays, goes = Server(self, model=self.chat_model()), self.server()
        for turn in range(3):
            told, new, logprobs = self.say(stays, messages)
            again, new_again, logprobs_again = self.say(goes, messages)
            self.assertEqual((again, logprobs_again), (told, logprobs), turn)
            self.assertEqual(new_again, new)
            if turn > 0:
                self.assertLess(new, 40)  # of a thousand
            self.end(goes)
            goes = self.server()
            messages += [told, {"role": "user", "content": "Go on."}]
        self.assertEqual(goes.metric('fasa_sessions{state="suspended"}'), 1)
        self.assertGreater(goes.metric('fasa_used_bytes{tier="disk"}'), 100_000)

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


if __name__ == "__main__":
    main()
