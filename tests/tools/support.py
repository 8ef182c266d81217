"""Shared by the tests of the command: python3 TEST.py FASA SOURCE_DIR."""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FASA = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
MODEL = SOURCE / "models/needle-3m"


def facts(name):
    return json.loads((SOURCE / "models/texts" / f"facts-{name}.json").read_text())


def run(*arguments, environment=None, **options):
    """Runs the command without any FASA_* variables but those given."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("FASA_")}
    variables.update(environment or {})
    return subprocess.run([FASA, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=variables, check=False, **options)


class PageCheck(html.parser.HTMLParser):
    """Checks that opened elements are closed, and that nothing is fetched; keeps the report."""
    VOID = {"meta"}

    def __init__(self):
        super().__init__()
        self.open = []
        self.report = ""

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & {name for name, _ in attrs}, attrs
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, tag

    def handle_data(self, data):
        if self.open[-1:] == [("script", "report")]:
            self.report += data


def report_of(page):
    """The data of a report's page."""
    check = PageCheck()
    check.feed(page.read_text())
    assert check.open == [], check.open
    return json.loads(check.report)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)
        return path

    def copy_model(self, name="model"):
        """A folder that links to the bundled model's files, any of which a test may replace."""
        folder = self.folder / name
        folder.mkdir()
        for file in MODEL.iterdir():
            (folder / file.name).symlink_to(file.resolve())
        return folder

    def replace(self, folder, name, content):
        (folder / name).unlink(missing_ok=True)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content)

    def assert_fails(self, code, parts, *arguments, **options):
        """Checks the exit code, that standard error holds every part, and that standard output is
        empty."""
        done = run(*arguments, **options)
        message = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, f"{arguments}: {message}")
        for part in parts:
            self.assertIn(part, message)
        self.assertEqual(done.stdout, b"", message)
        return message

    def assert_done(self, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done

    def generate_json(self, *arguments, **options):
        done = self.assert_done("generate", "--model", MODEL, "--json", *arguments, **options)
        return json.loads(done.stdout)


def main():
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    for test, reason in result.skipped:  # tools/test repeats these lines at its end
        name = test.id().replace(" ", "")
        print(f"skipped {name}: {reason}")
    sys.exit(not result.wasSuccessful())
