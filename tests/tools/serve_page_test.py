"""The page at / against a running server: conversations, messages, attached texts, the sides."""
import json
import time

from browser import Browser
from page import LAST, PROBLEM, RUNS, PageTest, by_id
from serving import TEMPLATE, Server
from support import SOURCE, main

RUTH = (SOURCE / "models/texts/ruth.txt").read_text()
TURNS = """[...document.querySelectorAll('.turn')].map(one =>
  [one.className, (one.querySelector('.body, .said') ?? one).textContent])"""
LAST_TURN = "[...document.querySelectorAll('.turn')].at(-1).textContent"
FIGURES = "[...document.querySelectorAll('.figures')].at(-1).textContent"
LIST = "[...document.querySelectorAll('#chat-list .open')].map(one => one.textContent)"
DROP = """(() => {
  const files = new DataTransfer();
  files.items.add(new File([%s], %s));
  document.dispatchEvent(new DragEvent('drop', {dataTransfer: files, cancelable: true}));
})()"""
PASTE = """(() => {
  const data = new DataTransfer();
  data.setData('text/plain', %s);
  document.getElementById('text').dispatchEvent(
      new ClipboardEvent('paste', {clipboardData: data, cancelable: true}));
})()"""
FILES = "document.getElementById('files').innerText"


def box(selector):
    return f"document.querySelector('{selector}').getBoundingClientRect().toJSON()"


class Conversations(PageTest):
    def test_they_and_their_titles_outlive_a_reload(self):
        server = self.serve()
        browser = self.open(server, max_tokens=30)
        self.ask(browser, "In the beginning")
        self.ask(browser, "And then <b>what</b>?")
        turns = browser.evaluate(TURNS)
        self.assertEqual([turn[0] for turn in turns], ["turn user", "turn assistant"] * 2)
        self.assertEqual(turns[2][1], "And then <b>what</b>?")
        self.click(browser, "#fresh")
        self.ask(browser, "Another subject")
        self.assertEqual(browser.evaluate(LIST), ["Another subject", "In the beginning"])
        self.reload(browser)
        self.assertEqual(browser.evaluate(by_id("title", "textContent")), "Another subject")
        self.assertEqual(browser.evaluate(LIST), ["Another subject", "In the beginning"])
        self.click(browser, "#chat-list li:nth-child(2) .open")
        self.assertEqual(browser.evaluate(TURNS), turns)
        self.screenshot(browser, "conversation.png")
        self.assertEqual(browser.problems, [])
        self.assertEqual([url for url in browser.requests
                          if not url.startswith(f"http://127.0.0.1:{server.port}/")], [])

    def test_one_is_deleted_and_comes_back(self):
        browser = self.open(self.serve(), max_tokens=8)
        self.ask(browser, "First")
        self.click(browser, "#fresh")
        self.ask(browser, "Second")
        self.click(browser, "#chat-list li:first-child .icon")
        self.assertEqual(browser.evaluate(LIST), ["First"])
        self.assertEqual(browser.evaluate(TURNS), [])
        self.click(browser, "#notice button")
        self.assertEqual(browser.evaluate(LIST), ["Second", "First"])
        self.assertEqual(browser.evaluate(TURNS)[0][1], "Second")
        self.click(browser, "#chat-list li:first-child .icon")
        self.reload(browser)
        self.assertEqual(browser.evaluate(LIST), ["First"])

    def test_a_reload_cuts_an_answer_and_says_so(self):
        browser = self.open(self.serve())
        self.send(browser, "In the beginning")
        browser.wait_for(f"{LAST}.length > 40")
        self.reload(browser)
        self.assertIn("reload", browser.wait_for(FIGURES))
        self.assertGreater(len(browser.evaluate(LAST)), 40)

    def test_a_reload_before_the_answer_keeps_the_message(self):
        browser = self.open(self.serve("--prefill-chunk", "16"))
        self.send(browser, RUTH[:6000].strip())
        browser.wait_for("/reading [1-9]/.test(document.getElementById('log').textContent)")
        self.reload(browser)
        self.assertEqual(browser.evaluate(by_id("text")), RUTH[:6000].strip())
        self.assertEqual(browser.evaluate(TURNS), [])

    def test_new_while_an_answer_comes(self):
        browser = self.open(self.serve())
        self.send(browser, "In the beginning")
        browser.wait_for(f"{LAST}.length > 20")
        self.click(browser, "#fresh")
        self.assertFalse(browser.evaluate(RUNS))  # the new one can be sent to
        self.assertEqual(browser.evaluate(TURNS), [])
        self.assertEqual(browser.evaluate("document.querySelectorAll('#chat-list .dot').length"), 1)
        self.click(browser, "#chat-list .open")
        self.assertTrue(browser.evaluate(RUNS))
        length = browser.evaluate(f"{LAST}.length")
        browser.wait_for(f"{LAST}.length > {length}")  # it went on
        self.click(browser, "#stop")
        browser.wait_for(f"!({RUNS})")
        self.assertEqual(browser.evaluate("document.querySelectorAll('#chat-list .dot').length"), 0)

    def test_a_browser_without_space_says_so(self):
        browser = self.open(self.serve(), max_tokens=8)
        browser.evaluate("localStorage.filler = 'x'.repeat(5 * 1024 * 1024 - 2000)")
        self.send(browser, "x" * 1900)
        browser.wait_for(f"/no space/.test({PROBLEM})")

    def test_figures_wait_for_the_context(self):
        browser = self.open(self.serve(), max_tokens=8)
        self.ask(browser, "In the beginning")
        browser.call("Page.addScriptToEvaluateOnNewDocument", source="""
            const real = fetch;
            fetch = async (path, ...more) => {
              if (path === 'props') await new Promise(done => setTimeout(done, 1500));
              return real(path, ...more); };""")
        browser.call("Page.reload")
        browser.wait_for("document.querySelector('.figures') && "
                         "!document.getElementById('model').textContent")
        self.assertRegex(browser.evaluate(FIGURES), r"context \d+$")
        browser.wait_for(f"/context \\d+ of 8,192$/.test({FIGURES})")


class Messages(PageTest):
    long = True

    def test_enter_while_an_answer_comes(self):
        browser = self.open(self.serve())
        self.send(browser, "In the beginning")
        browser.wait_for(f"{LAST}.length > 20")
        self.send(browser, "And then?")
        self.assertTrue(browser.evaluate(RUNS))  # the answer goes on
        self.assertEqual(browser.evaluate(TURNS)[-1], ["turn user waits", "And then?"])
        self.assertEqual(browser.evaluate(by_id("text")), "")
        self.click(browser, "#stop")
        browser.wait_for(f"({TURNS}).length === 4 && {LAST}.length > 20")
        self.assertEqual(browser.evaluate(TURNS)[2], ["turn user", "And then?"])
        self.click(browser, "#stop")

    def test_stop_and_figures(self):
        browser = self.open(self.serve())
        self.send(browser, "In the beginning")
        browser.wait_for(f"{LAST}.length > 20")
        browser.press("Escape", 27)
        browser.wait_for(f"!({RUNS})")
        self.assertRegex(browser.evaluate(FIGURES),
                         r"^stopped · about [\d,]+ tokens · [\d.]+ tokens/s · first after [\d.]+ s "
                         r"· context [\d,]+ of 8,192$")
        browser.evaluate("document.getElementById('show-settings').click()")
        browser.evaluate(f"{by_id('max_tokens')} = 12")
        self.close_settings(browser)
        self.ask(browser, "And then?")
        self.assertRegex(browser.evaluate(FIGURES), r"^length limit · 12 tokens · ")

    def test_shift_enter_breaks_the_line(self):
        browser = self.open(self.serve(), max_tokens=4)
        self.write_text(browser, "one")
        browser.press("Enter", 13, "\r", modifiers=8)
        browser.type("two")
        self.assertEqual(browser.evaluate(by_id("text")), "one\ntwo")
        browser.press("Enter", 13, "\r")
        browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
        self.assertEqual(browser.evaluate(TURNS)[0][1], "one\ntwo")

    def test_scrolling_up_stays(self):
        browser = self.open(self.serve())
        self.send(browser, "In the beginning")
        log = "document.getElementById('log')"
        browser.wait_for(f"{log}.scrollHeight > {log}.clientHeight + 400")
        at_end = f"{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 60"
        browser.wait_for(at_end)  # it follows
        browser.evaluate(f"{log}.scrollTop = 100")
        length = browser.wait_for(f"!{by_id('latest', 'hidden')} && {LAST}.length")
        browser.wait_for(f"{LAST}.length > {length} + 100")
        self.assertEqual(browser.evaluate(f"{log}.scrollTop"), 100)
        self.click(browser, "#latest")
        self.assertTrue(browser.evaluate(at_end))
        browser.wait_for(f"{LAST}.length > {length} + 300")
        self.assertTrue(browser.evaluate(at_end))
        self.click(browser, "#stop")

    def test_an_error_keeps_the_input_and_is_in_view(self):
        browser = self.open(self.serve("--max-context", "200"), max_tokens=8)
        self.ask(browser, "Short")
        long = "And Ruth said, " * 100
        self.write_text(browser, long)
        browser.press("Enter", 13, "\r")
        self.assertIn("context length is 200", browser.wait_for(PROBLEM))
        self.assertEqual(browser.evaluate(by_id("text")), long.strip())
        self.assertEqual(len(browser.evaluate(TURNS)), 2)
        for part in ("#problem", "#send"):
            rect = browser.evaluate(box(part))
            self.assertGreater(rect["height"], 10)
            self.assertGreaterEqual(rect["top"], 0)
            self.assertLessEqual(rect["bottom"], browser.evaluate("innerHeight"), part)
        self.screenshot(browser, "refused.png")

    def test_a_server_that_is_gone_is_said(self):
        server = self.serve()
        browser = self.open(server)
        server.stop()
        self.send(browser, "Hello")
        self.assertIn("does not answer", browser.wait_for(PROBLEM))
        self.assertEqual(browser.evaluate(by_id("text")), "Hello")
        browser.wait_for(f"/not reached/.test({by_id('model', 'textContent')})")

    def test_edit_regenerate_and_copy(self):
        browser = self.open(self.serve(), max_tokens=10, temperature=0)
        browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
        self.ask(browser, "In the beginning")
        self.ask(browser, "And then?")
        self.click(browser, ".user .tools [title^=Edit]")
        browser.evaluate("document.querySelector('.edit textarea').value = 'And Ruth said, '")
        self.click(browser, ".edit .main")
        browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
        self.assertEqual(browser.evaluate(TURNS)[0][1], "And Ruth said,")
        self.assertEqual(browser.bodies[-1]["messages"],
                         [{"role": "user", "content": "And Ruth said,"}])
        said = browser.evaluate(LAST)
        self.click(browser, ".assistant [title='Answer again']")
        browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
        self.assertEqual(browser.evaluate(LAST), said)  # at temperature 0
        self.click(browser, ".assistant [title^=Copy]")
        self.assertEqual(browser.wait_for("navigator.clipboard.readText()").strip(), said.strip())
        self.click(browser, ".user .tools [title^=Edit]")
        browser.press("Escape", 27)
        self.assertEqual(len(browser.evaluate(TURNS)), 2)

    def test_settings_are_sent(self):
        model = self.chat_model()
        self.replace(model, "generation_config.json", json.dumps(
            {"do_sample": True, "temperature": 0.3, "top_k": 7}))
        browser = self.open(self.serve(), max_tokens=4)
        self.click(browser, "#show-settings")
        self.assertIn("0.3", browser.evaluate(by_id("temperature", "placeholder")))
        self.assertIn("7", browser.evaluate(by_id("top_k", "placeholder")))
        self.screenshot(browser, "settings.png")
        self.close_settings(browser)
        self.ask(browser, "One")
        self.assertNotIn("temperature", browser.bodies[-1])  # the model's own
        self.click(browser, "#show-settings")
        for name, value in (("system", "Be brief."), ("temperature", 0.5), ("top_k", 3),
                            ("max_tokens", 6)):
            browser.evaluate(f"{by_id(name)} = {json.dumps(value)}")
        self.close_settings(browser)
        self.ask(browser, "Two")
        sent = browser.bodies[-1]
        self.assertEqual((sent["temperature"], sent["top_k"], sent["max_tokens"]), (0.5, 3, 6))
        self.assertEqual(sent["messages"][0], {"role": "system", "content": "Be brief."})
        self.reload(browser)
        self.click(browser, "#show-settings")
        self.assertEqual(browser.evaluate(by_id("system")), "Be brief.")

    def sampling(self, browser):
        return {name: browser.bodies[-1].get(name)
                for name in ("temperature", "top_k", "top_p", "min_p")}

    def test_a_model_that_states_nothing_gets_the_usual_limits(self):
        browser = self.open(self.serve(), max_tokens=4)
        self.ask(browser, "One")
        self.assertEqual(self.sampling(browser),
                         {"temperature": 0.7, "top_k": None, "top_p": 0.95, "min_p": 0.05})
        self.click(browser, "#show-settings")
        for name, usual in (("temperature", "0.7"), ("top_p", "0.95"), ("min_p", "0.05")):
            self.assertEqual(browser.evaluate(by_id(name, "placeholder")), usual)
        browser.evaluate(f"{by_id('top_p')} = 1; {by_id('min_p')} = 0")
        self.close_settings(browser)
        self.ask(browser, "Two")
        self.assertEqual(self.sampling(browser),
                         {"temperature": 0.7, "top_k": None, "top_p": 1, "min_p": 0})

    def test_a_model_that_states_a_limit_keeps_its_own(self):
        model = self.chat_model()
        self.replace(model, "generation_config.json", json.dumps({"do_sample": True, "top_k": 7}))
        browser = self.open(self.serve(), max_tokens=4)
        self.ask(browser, "One")
        self.assertEqual(set(self.sampling(browser).values()), {None})

    def test_versions_of_an_answer_and_of_a_question(self):
        browser = self.open(self.serve(), max_tokens=10, temperature=1.5, top_p=1, min_p=0)
        self.ask(browser, "In the beginning")
        first = browser.evaluate(LAST)
        self.click(browser, ".assistant [title='Answer again']")
        browser.wait_for(f"!({RUNS}) && /2\\/2/.test({LAST_TURN})")
        second = browser.evaluate(LAST)
        self.assertNotEqual(first, second)
        self.ask(browser, "And then?")
        self.click(browser, ".assistant [title='Earlier version']")
        self.assertEqual([turn[1] for turn in browser.evaluate(TURNS)], ["In the beginning", first])
        self.reload(browser)
        self.assertEqual(browser.evaluate(LAST), first)
        self.click(browser, ".assistant [title='Later version']")
        turns = [turn[1] for turn in browser.evaluate(TURNS)]
        self.assertEqual(turns[:3], ["In the beginning", second, "And then?"])
        self.click(browser, ".user .tools [title^=Edit]")
        browser.evaluate("document.querySelector('.edit textarea').value = 'And Ruth said'")
        self.click(browser, ".edit .main")
        browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
        self.assertEqual(browser.evaluate(TURNS)[0][1], "And Ruth said")
        later = "document.querySelector('[title=\"Later version\"]')"
        self.assertTrue(browser.evaluate(f"{later}.disabled"))
        self.click(browser, ".user [title='Earlier version']")
        self.assertEqual([turn[1] for turn in browser.evaluate(TURNS)], turns)

    def test_reasoning_is_folded(self):
        browser = self.open(self.serve(template=TEMPLATE + "<think>"), max_tokens=40)
        self.ask(browser, "In the beginning")
        self.assertEqual(browser.evaluate(LAST), "")
        thought = "document.querySelector('.thought')"
        self.assertFalse(browser.evaluate(f"{thought}.hidden || {thought}.open"))
        self.assertGreater(len(browser.evaluate(f"{thought}.lastChild.textContent")), 10)

    def test_a_model_without_a_chat_template_continues_the_text(self):
        browser = self.open(Server(self), max_tokens=20, temperature=0)
        self.assertIn("continues your text", browser.evaluate(by_id("log", "innerText")))
        self.ask(browser, "And Ruth said, ")
        self.assertEqual(browser.bodies[-1]["prompt"], "And Ruth said, ")
        first = browser.evaluate(LAST)
        self.ask(browser, " And then ")
        self.assertEqual(browser.bodies[-1]["prompt"], "And Ruth said, " + first + " And then ")


class Texts(PageTest):
    long = True

    def test_files_become_context(self):
        server = self.serve("--prefill-chunk", "64")
        browser = self.open(server, max_tokens=8)
        text = RUTH[:3000]
        tokens = len(json.loads(server.ask("POST", "/tokenize", {"content": text})[2])["tokens"])
        browser.evaluate(DROP % (json.dumps(text), "'ruth.txt'"))
        shown = browser.wait_for(f"/tokens/.test({FILES}) && !/counting/.test({FILES}) && {FILES}")
        self.assertRegex(shown, rf"ruth.txt {tokens:,} tokens · [\d.]+ [KM]iB · time not measured")
        self.ask(browser, "Who is it?")
        self.assertIn(text, browser.bodies[-1]["messages"][0]["content"])
        self.assertTrue(browser.bodies[-1]["messages"][0]["content"].endswith("Who is it?"))
        browser.evaluate("document.querySelector('.attached').open = true")
        browser.wait_for("document.querySelector('.attached pre').textContent.length === 3000")
        self.assertIn(f"ruth.txt · {tokens:,} tokens", browser.evaluate(
            "document.querySelector('.attached summary').textContent"))
        browser.evaluate(DROP % (json.dumps(RUTH), "'whole.txt'"))
        self.assertRegex(browser.wait_for(f"/more than|MiB/.test({FILES}) && {FILES}"),
                         r"more than the context of 8,192")
        asked = len(browser.bodies)
        self.send(browser, "What is it?")
        self.assertRegex(browser.wait_for(PROBLEM), r"the context has room for 8,192")
        self.assertEqual(len(browser.bodies), asked)  # nothing was sent
        self.assertEqual(browser.evaluate(by_id("text")), "What is it?")
        self.click(browser, "#files button:last-child")
        browser.evaluate(DROP % (json.dumps(text[:400]), "'again.txt'"))
        self.assertRegex(browser.wait_for(f"/about/.test({FILES}) && {FILES}"), r"about [\d.]+ s")
        self.reload(browser)
        self.assertIn("again.txt", browser.wait_for(f"/about/.test({FILES}) && {FILES}"))

    def test_what_is_no_text_is_refused(self):
        browser = self.open(self.serve())
        browser.evaluate(DROP % ("new Uint8Array([0, 255, 254])", "'image.png'"))
        self.assertIn("image.png is no text", browser.wait_for(PROBLEM))
        self.assertEqual(browser.evaluate(FILES), "")

    def test_the_prompt_progress_is_shown(self):
        browser = self.open(self.serve("--prefill-chunk", "32"), max_tokens=4)
        browser.evaluate("""window.seen = new Set(); new MutationObserver(() => {
            const one = document.querySelector('.reading:not([hidden]) span');
            if (one) seen.add(one.textContent);
        }).observe(document.getElementById('log'), {subtree: true, childList: true,
                                                    characterData: true});""")
        browser.evaluate(f"{by_id('text')} = {json.dumps(RUTH[:5000])};"
                         "document.getElementById('text').dispatchEvent(new Event('input'))")
        self.ask(browser, " And?")
        seen = browser.evaluate("[...seen]")
        left = [one for one in seen if one.endswith(" s left")]
        self.assertTrue(left, seen)
        for one in left:
            self.assertRegex(one, r"^reading [\d,]+ of [\d,]+ tokens, \d+ s left$")

    def test_long_texts_are_folded(self):
        browser = self.open(self.serve(), max_tokens=4)
        browser.evaluate(PASTE % json.dumps(RUTH[:2500]))
        browser.wait_for(f"/Pasted text [\\d,]+ tokens/.test({FILES})")
        self.assertEqual(browser.evaluate(by_id("text")), "")
        self.click(browser, "#files [title='Put it into the message']")
        self.assertEqual(browser.evaluate(by_id("text")), RUTH[:2500])
        browser.evaluate(by_id("text", "focus()"))
        browser.press("Enter", 13, "\r")
        browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
        more = "document.querySelector('.more')"
        self.assertEqual(browser.evaluate(f"{more}.textContent"),
                         f"Show all {len(RUTH[:2500].strip()):,} characters")
        low = browser.evaluate(box(".said"))["height"]
        browser.evaluate(f"{more}.click()")
        self.assertEqual(browser.evaluate(f"{more}.getAttribute('aria-expanded')"), "true")
        self.assertGreater(browser.evaluate(box(".said"))["height"], 2 * low)

    def rendered(self, browser, text):
        return browser.evaluate(f"""import('/page/markdown.js').then(({{rendered}}) => {{
            const place = document.createElement('div');
            place.className = 'body';
            place.append(rendered({json.dumps(text)}));
            document.getElementById('log').append(place);
            return place.innerHTML; }})""")

    def test_markdown_and_code(self):
        browser = self.open(self.serve())
        html = self.rendered(browser, "# Head\n\n- *one*\n- `two`\n\n| a | b |\n|--|--|\n"
                             "| 1 | 2 |\n\n```python\ndef f(x):\n    return \"<b>\"\n```\n[link](https://a.example/)")
        for part in ("<h1>Head</h1>", "<em>one</em>", "<code>two</code>", "<td>1</td>",
                     '<span class="hljs-keyword">def</span>', "&lt;b&gt;", 'href="https://a.example/"',
                     'rel="noopener noreferrer nofollow"', 'aria-label="Copy the code"'):
            self.assertIn(part, html)
        self.screenshot(browser, "markdown.png")
        self.assertEqual(browser.problems, [])

    def test_answers_run_and_fetch_nothing(self):
        server = self.serve()
        browser = self.open(server)
        html = self.rendered(browser, """<script>window.bad = 1</script>
<img src="http://evil.example/a" onerror="window.bad = 2"> ![i](http://evil.example/b)
<a href="javascript:window.bad=3">a</a> [b](javascript:window.bad=4) [c](data:text/html,x)
<iframe src="http://evil.example/c"></iframe> <svg onload="window.bad=5"></svg>
<style>body { display: none }</style> <form action="http://evil.example/d"><input></form>
[d]("onmouseover="window.bad=6) ```x" onload="window.bad=7
```
""")
        self.assertIn("&lt;script&gt;", html)
        self.assertEqual(browser.evaluate(
            "[...document.querySelectorAll('#log :is(script, img, iframe, style, form, input)')]"
            ".map(one => one.tagName)"), [])
        self.assertEqual(browser.evaluate(
            "[...document.querySelectorAll('#log a')].map(one => one.getAttribute('href'))"),
            ["http://evil.example/b", None, None])
        on = ("[...document.querySelectorAll('#log *')].flatMap(one => [...one.attributes])"
              ".filter(one => one.name.startsWith('on')).length")
        self.assertEqual(browser.evaluate(on), 0)
        browser.evaluate("document.querySelectorAll('#log a').forEach(one => "
                         "one.getAttribute('href') || one.click())")
        # Even what the page itself would let through is refused by its policy.
        self.assertTrue(browser.evaluate("""(() => {
            const script = document.createElement('script');
            try { script.textContent = 'window.bad = 8'; document.body.append(script); } catch {}
            try { document.body.innerHTML = '<b>'; return false; } catch { return true; } })()"""))
        self.assertIsNone(browser.evaluate("window.bad ?? null"))
        self.assertEqual([url for url in browser.requests if "evil" in url], [])
        policy = server.ask("GET", "/")[1]["Content-Security-Policy"]
        for part in ("default-src 'none'", "script-src 'self'", "connect-src 'self'",
                     "frame-ancestors 'none'", "require-trusted-types-for 'script'"):
            self.assertIn(part, policy)


class Sides(PageTest):
    long = True

    def widths(self, browser, tier):
        return browser.evaluate(
            f"(() => {{ const bar = document.querySelector('[data-tier={tier}] .bar');"
            "return [...bar.children].reduce((sum, one) => sum + one.offsetWidth, 0)"
            " / bar.offsetWidth; })()")

    def test_memory_of_the_tiers(self):
        browser = self.open(self.serve("--device-memory", "64MiB"), max_tokens=8)
        self.ask(browser, "In the beginning")
        tiers = browser.wait_for("/Rows/.test(document.getElementById('tiers').innerText) && "
                                 "document.getElementById('tiers').innerText")
        for part in ("Device", "of 64.0 MiB", "Slices", "Weights and the rest", "Free", "Host"):
            self.assertIn(part, tiers)
        said = browser.evaluate("document.querySelector('.tier .bar').getAttribute('aria-label')")
        share = int(said.split(", ")[1].split()[0])
        self.assertAlmostEqual(100 * self.widths(browser, "device"), share, delta=3)

    def test_memory_without_a_limit(self):
        browser = self.open(self.serve())
        browser.wait_for("!!document.querySelector('[data-tier=device] .bar')")
        self.assertIn("no limit", browser.evaluate("document.querySelector('.tier').innerText"))
        self.assertTrue(browser.evaluate("document.querySelector('.bar').matches('.endless')"))
        self.assertLess(self.widths(browser, "device"), 0.55)
        self.assertGreater(self.widths(browser, "device"), 0.2)

    def test_sessions_have_titles_and_are_deleted(self):
        server = self.serve()
        browser = self.open(server, max_tokens=8, temperature=1.5, top_p=1, min_p=0)
        self.ask(browser, "In the beginning")
        self.ask(browser, "And then?")
        listed = "document.getElementById('sessions').innerText"
        self.assertRegex(browser.wait_for(f"/beginning/.test({listed}) && {listed}"),
                         r"In the beginning\s+[\d,]+ tokens · device [\d.]+ [KM]iB")
        self.click(browser, ".assistant:last-child [title='Answer again']")
        browser.wait_for(f"!({RUNS})")
        self.assertIn("2 versions", browser.wait_for(f"/versions/.test({listed}) && {listed}"))
        self.screenshot(browser, "sessions.png")
        self.click(browser, "#sessions button")
        browser.wait_for(f"/None yet/.test({listed})")
        self.assertEqual(json.loads(server.ask("GET", "/v1/sessions")[2])["data"], [])

    def test_a_key_is_asked_for_once(self):
        keys = self.folder / "keys"
        keys.write_text("a-secret-key\n")
        keys.chmod(0o600)
        server = self.serve("--api-key-file", keys)
        browser = Browser(self, self.folder / "browser")
        browser.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/")
        browser.wait_for("document.getElementById('key-dialog')?.open")
        asked = len(browser.requests)
        time.sleep(2.5)
        browser.evaluate("1")
        self.assertEqual(len(browser.requests), asked)
        self.screenshot(browser, "key.png")
        for key in ("wrong", "a-secret-key"):
            browser.evaluate(f"{by_id('key')} = '{key}'")
            self.click(browser, "#key-form .main")
            if key == "wrong":
                browser.wait_for(f"/does not know/.test({by_id('key-why', 'textContent')}) && "
                                 + by_id("key-dialog", "open"))
        browser.wait_for(f"{by_id('model', 'textContent')} === 'chat-model'")
        self.send(browser, "In the beginning")
        browser.wait_for(f"{LAST}.length > 20")
        self.click(browser, "#stop")
        self.reload(browser)  # this tab still has it
        self.assertFalse(browser.evaluate("document.getElementById('key-dialog').open"))

    def test_on_a_phone(self):
        for size in ((390, 780), (360, 560)):
            with self.subTest(size=size):
                server = self.serve()
                browser = self.open(server, phone=size, max_tokens=300)
                self.assertTrue(browser.evaluate(by_id("chats", "hidden")))
                self.assertTrue(browser.evaluate(by_id("server", "hidden")))
                self.write_text(browser, "In the beginning")
                self.click(browser, "#send")
                browser.wait_for(f"!({RUNS}) && ({TURNS}).length === 2")
                for part in ("#text", "#send"):
                    rect = browser.evaluate(box(part))
                    self.assertGreaterEqual(rect["top"], 0)
                    self.assertLessEqual(rect["bottom"], size[1], part)
                    self.assertLessEqual(rect["right"], size[0], part)
                width = browser.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(width, size[0])
                self.screenshot(browser, f"phone-{size[0]}.png")
                self.click(browser, "#show-server")
                browser.wait_for("!!document.querySelector('.tier')")
                self.screenshot(browser, f"phone-server-{size[0]}.png")
                browser.press("Escape", 27)
                self.assertTrue(browser.evaluate(by_id("server", "hidden")))
                self.click(browser, "#show-chats")
                self.click(browser, "#chat-list .open")
                self.assertTrue(browser.evaluate(by_id("chats", "hidden")))
                browser.stop()
                server.stop()

    def test_dark_and_light(self):
        browser = self.open(self.serve(), max_tokens=8)
        self.ask(browser, "In the beginning")
        brightness = """(() => { const rgb = getComputedStyle(document.body).backgroundColor
            .match(/[\\d.]+/g).map(Number); return rgb[0] + rgb[1] + rgb[2]; })()"""
        contrast = """(() => {
          const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
          const light = colour => {
            const [r, g, b] = colour.match(/[\\d.]+/g).map(one => part(+one));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const probe = document.createElement('i'); document.body.append(probe);
          const value = name => { probe.style.color = `var(--${name})`;
                                  return light(getComputedStyle(probe).color); };
          const pairs = [['text', 'back'], ['text', 'side'], ['quiet', 'back'], ['quiet', 'side'],
                         ['quiet', 'soft'], ['on-accent', 'accent'], ['bad', 'bad-back'],
                         ['accent', 'back']];
          return pairs.map(([a, b]) => [a, b, (Math.max(value(a), value(b)) + 0.05) /
                                              (Math.min(value(a), value(b)) + 0.05)]); })()"""
        for scheme, low, high in (("light", 600, 766), ("dark", 0, 150)):
            browser.prefer(scheme)
            bright = browser.evaluate(brightness)
            self.assertTrue(low <= bright <= high, (scheme, bright))
            for front, back, ratio in browser.evaluate(contrast):
                self.assertGreaterEqual(ratio, 4.5, (scheme, front, back))
            self.screenshot(browser, f"{scheme}.png")
        self.click(browser, "#show-settings")
        browser.evaluate(f"{by_id('theme')} = 'light';"
                         "document.getElementById('theme').dispatchEvent(new Event('change'))")
        self.assertGreater(browser.evaluate(brightness), 600)

    def test_keyboard_and_screen_readers(self):
        browser = self.open(self.serve(), max_tokens=8)
        self.ask(browser, "In the beginning")
        self.assertIn("Answer complete.", browser.evaluate(by_id("say", "textContent")))
        browser.call("Accessibility.enable")
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        kinds = {}
        for node in nodes:
            role = node.get("role", {}).get("value")
            if node["ignored"] or role not in ("button", "textbox", "article", "navigation",
                                               "complementary", "main", "image", "banner"):
                continue
            name = node.get("name", {}).get("value", "")
            kinds.setdefault(role, []).append(name)
            if role not in ("main", "banner"):
                self.assertTrue(name, node)
        self.assertEqual(kinds["article"], ["You", "Answer"])
        for role in ("button", "textbox", "navigation", "complementary", "main", "image"):
            self.assertIn(role, kinds)
        # Each control can be reached by the keyboard, and the focus is seen.
        browser.evaluate("document.activeElement.blur()")
        reached = set()
        for _ in range(40):
            browser.press("Tab", 9)
            reached.add(browser.evaluate("document.activeElement.id || "
                                         "document.activeElement.getAttribute('aria-label')"))
        for name in ("show-chats", "show-settings", "show-server", "fresh", "log", "text", "attach",
                     "send", "Copy the answer", "Answer again", "Edit and ask again"):
            self.assertIn(name, reached)
        browser.evaluate(by_id("text", "focus()"))
        browser.press("ArrowUp", 38)
        self.assertEqual(browser.evaluate("document.activeElement.value"), "In the beginning")
        browser.press("Escape", 27)
        self.assertEqual(browser.evaluate("document.activeElement.id"), "text")


if __name__ == "__main__":
    main()
