"""The page at / in a browser, for tests. Without Chromium all of them are skipped, and without
FASA_LONG=1 those that are `long`. FASA_SCREENSHOTS=DIR saves screenshots."""
import json
import os
import pathlib
import unittest

from browser import PROGRAM, Browser
from serving import TEMPLATE, ServeTest, Server

RUNS = "!document.getElementById('stop').hidden"
LAST = "[...document.querySelectorAll('.assistant .body')].at(-1).textContent"
PROBLEM = "document.getElementById('problem').textContent"


def by_id(name, what="value"):
    return f"document.getElementById('{name}').{what}"


@unittest.skipUnless(PROGRAM, "no Chromium is installed; tools/env clients installs it")
class PageTest(ServeTest):
    long = False

    @classmethod
    def setUpClass(cls):
        if cls.long and os.environ.get("FASA_LONG") != "1":
            raise unittest.SkipTest("two minutes: the long run has them (FASA_LONG=1)")

    def serve(self, *flags, template=TEMPLATE):
        return Server(self, *flags, model=self.chat_model(template))

    def open(self, server, phone=None, **settings):
        browser = Browser(self, self.folder / "browser")
        if phone:
            browser.become_phone(*phone)
        if settings:
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=(
                "localStorage['fasa.settings'] ??= " + repr(json.dumps(settings))))
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        browser.wait_for("document.getElementById('model')?.textContent")
        return browser

    def write_text(self, browser, text):
        browser.evaluate(by_id("text", "focus()"))
        browser.type(text)

    def send(self, browser, text):
        self.write_text(browser, text)
        browser.press("Enter", 13, "\r")

    def ask(self, browser, text):
        """Sends a message and waits until the answer has ended."""
        self.send(browser, text)
        browser.wait_for(f"!({RUNS}) && {by_id('text')} === ''")
        self.assertEqual(browser.evaluate(PROBLEM), "")

    def click(self, browser, selector):
        browser.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def close_settings(self, browser):
        self.click(browser, "#settings .main")
        browser.evaluate("new Promise(done => setTimeout(done, 100))")  # its event is not at once

    def screenshot(self, browser, name):
        png = browser.screenshot()
        self.assertTrue(png.startswith(b"\x89PNG"))
        if folder := os.environ.get("FASA_SCREENSHOTS"):
            (pathlib.Path(folder) / name).write_bytes(png)

    def reload(self, browser):
        browser.evaluate("window.old = true")
        browser.call("Page.reload")
        browser.wait_for("!window.old && document.readyState === 'complete' && "
                         "document.getElementById('model')?.textContent")
