"""Drives a headless Chromium over its debugging pipe, with the standard library alone."""
import base64
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
               None)


class Browser:
    """One page in its own process, ended with the test. `problems` are its exceptions and logged
    errors, `requests` the addresses that it requested, `bodies` what it sent to them."""

    def __init__(self, test, folder, size=(1280, 800)):
        commands, self.commands = os.pipe()
        self.events, events = os.pipe()

        def place_pipes():  # Chromium reads 3 and writes 4
            low, high = os.dup(commands), os.dup(events)
            os.dup2(low, 3), os.dup2(high, 4)
            os.set_inheritable(3, True), os.set_inheritable(4, True)

        self.process = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", f"--user-data-dir={folder}", "--remote-debugging-pipe",
             f"--window-size={size[0]},{size[1]}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            start_new_session=True,
            preexec_fn=place_pipes)  # noqa: PLW1509: no thread of this process is under way
        os.close(commands), os.close(events)
        test.addCleanup(self.stop)
        self.buffer, self.number, self.session = b"", 0, None
        self.problems, self.requests, self.bodies = [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def stop(self):
        if self.process.returncode is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.commands), os.close(self.events)
        deadline = time.monotonic() + 20  # its helper processes write to the folder until they end
        while self.helpers_alive() and time.monotonic() < deadline:
            time.sleep(0.05)

    def helpers_alive(self):
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = status.read_text().rsplit(")", 1)[1].split()[:3]
            except OSError:
                continue  # it is gone
            if int(group) == self.process.pid and state not in "ZX":
                return True
        return False

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.events], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            piece = os.read(self.events, 1 << 16)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        values = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.problems.append(values["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
            if body := values["request"].get("postData"):
                self.bodies.append(json.loads(body))

    def call(self, method, **values):
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.note(answer)

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression):
        """Waits until the expression is true, a minute at most; returns its value."""
        deadline = time.monotonic() + 60
        while True:
            try:
                if value := self.evaluate(expression):
                    return value
            except RuntimeError as error:
                if "navigated" not in str(error):
                    raise
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def press(self, key, code=0, text="", modifiers=0):
        """A key, as a user presses it; `code` is its Windows key code."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code,
                      modifiers=modifiers, **({"text": text} if kind == "keyDown" and text else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def become_phone(self, width=390, height=780):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=True)
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self):
        """A screenshot as PNG bytes."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
