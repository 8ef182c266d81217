"""DIR/report.json, which is also the state that the next call continues from, and DIR/all.log."""

import json
import sys

FINISHED = ("passed", "failed", "skipped", "timed out")


def note(text):
    print(f"gpu-check: {text}", file=sys.stderr, flush=True)


class Report:
    """Whole after each change. A step's outcome: passed, failed, skipped (it cannot run here),
    timed out (it took longer than it may), out of time (this call ended; the next repeats it)."""

    TAIL = 100  # lines of a step's log in the report, if it did not pass

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / "report.json"
        self.log_file = folder / "all.log"
        self.values = {"steps": {}}

    def resume(self, commit, gpu):
        """Keeps the results of an earlier call if they are of this commit and GPU."""
        try:
            earlier = json.loads(self.file.read_text())
        except (OSError, ValueError):
            earlier = {}
        if (earlier.get("commit"), earlier.get("gpu")) == (commit, gpu):
            self.values = earlier
            return
        if earlier.get("steps"):
            note("the earlier results are of another commit or GPU: beginning again")
        self.log_file.unlink(missing_ok=True)

    def write(self, **values):
        self.values.update(values)
        part = self.file.with_suffix(".json.part")
        part.write_text(json.dumps(self.values, indent=1) + "\n")
        part.replace(self.file)

    def log(self, text):
        with self.log_file.open("a") as log:
            log.write(text)

    def step(self, name):
        return self.values["steps"].setdefault(name, {})

    def finished(self, name):
        return self.values["steps"].get(name, {}).get("outcome", "").startswith(FINISHED)

    def cases(self, name):
        """Number of cases that a benchmark has measured."""
        return len(self.values.get("results", {}).get(name, {}).get("results", {}))

    def outcome(self, name, text, seconds=None, log="", **values):
        entry = {"outcome": text, **values}
        if seconds is not None:
            entry["seconds"] = round(seconds, 1)
        if log and text != "passed":
            entry["log"] = log.splitlines()[-self.TAIL:]
        self.values["steps"][name] = entry
        self.write()
        note(f"{name}: {text}" + (f" ({seconds:.0f} s)" if seconds is not None else ""))

    def with_outcome(self, *beginnings):
        return [name for name, step in self.values["steps"].items()
                if step.get("outcome", "").startswith(beginnings)]
