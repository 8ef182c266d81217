"""The page at / in a browser: a chat, the contents of each tier, and the sessions. Without Chromium
all tests are skipped. FASA_SCREENSHOTS=DIR saves screenshots."""
import os
import pathlib
import unittest

from browser import PROGRAM, Browser
from serving import ServeTest, Server
from support import main

ASK = """(() => { document.getElementById('text').value = %r;
  document.getElementById('form').requestSubmit(); return true; })()"""
STOP = "document.getElementById('form').requestSubmit()"
ANSWERED = """document.getElementById('send').textContent === 'Send' &&
  [...document.querySelectorAll('.turn')].map(one => [one.className, one.textContent])"""
SESSIONS = "document.getElementById('sessions').textContent"


@unittest.skipUnless(PROGRAM, "no Chromium is installed")
class Page(ServeTest):
    def open(self, server):
        browser = Browser(self, self.folder / "browser")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        browser.wait_for("document.readyState === 'complete' && typeof ask === 'function'")
        return browser

    def keep(self, browser, name):
        png = browser.screenshot()
        self.assertTrue(png.startswith(b"\x89PNG"))
        if folder := os.environ.get("FASA_SCREENSHOTS"):
            (pathlib.Path(folder) / name).write_bytes(png)

    def widths(self, browser, place):
        return browser.evaluate(
            f"[...document.querySelectorAll('#{place} .bar i')].map(one => one.clientWidth)")

    def test_a_conversation(self):
        server = Server(self, "--sessions-dir", self.folder / "sessions", "--idle-after", "10ms",
                        model=self.chat_model())
        browser = self.open(server)
        self.assertEqual(browser.wait_for("document.getElementById('model').textContent"),
                         "chat-model")
        for turn, said in enumerate(("In the beginning", "And then <b>what</b>?")):
            browser.evaluate(ASK % said)
            browser.wait_for(f"document.querySelectorAll('.turn')[{2 * turn + 1}]"
                             ".textContent.length > 20")
            browser.evaluate(STOP)
            turns = browser.wait_for(ANSWERED)
            self.assertEqual(turns[-2], ["turn user", said])
            self.assertEqual(turns[-1][0], "turn assistant", turns[-1])
            self.assertGreater(len(turns[-1][1]), 20)
        self.assertIn("disk", browser.wait_for(f"/disk/.test({SESSIONS}) && {SESSIONS}"))
        for place in ("tiers", "sessions"):
            self.assertTrue(any(self.widths(browser, place)), place)
        self.assertGreaterEqual(
            browser.wait_for("document.querySelectorAll('#rate polyline')[0].points.length"), 1)
        self.assertIn("generated tokens", browser.evaluate("document.body.textContent"))
        self.keep(browser, "conversation.png")
        self.assertEqual(browser.problems, [])
        self.assertEqual([url for url in browser.requests
                          if not url.startswith(f"http://127.0.0.1:{server.port}/")], [])

    def test_what_the_server_refuses_is_said(self):
        server = Server(self)  # its model has no chat template
        browser = self.open(server)
        browser.evaluate(ASK % "Hello")
        kind, text = browser.wait_for(f"({ANSWERED}).length >= 2 && {ANSWERED}")[-1]
        self.assertEqual(kind, "turn error")
        self.assertIn("chat template", text)
        self.keep(browser, "refused.png")

    def test_a_key_is_asked_for(self):
        keys = self.folder / "keys"
        keys.write_text("a-secret-key\n")
        keys.chmod(0o600)
        server = Server(self, "--api-key-file", keys, model=self.chat_model())
        browser = self.open(server)
        browser.evaluate(ASK % "Hello")
        self.assertEqual(browser.wait_for(f"({ANSWERED}).length >= 2 && {ANSWERED}")[-1][0],
                         "turn error")
        browser.evaluate("document.getElementById('key').value = 'a-secret-key'")
        browser.evaluate(ASK % "Hello")
        browser.wait_for("document.querySelectorAll('.turn')[3].textContent.length > 20")
        browser.evaluate(STOP)
        self.assertEqual(browser.wait_for(ANSWERED)[-1][0], "turn assistant")


if __name__ == "__main__":
    main()
