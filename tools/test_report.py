"""Lists what a test run left out and counts passed and failed tests: the end of tools/test.

  python3 tools/test_report.py FOLDER          FOLDER: ctest's JUnit files and the list `left-out`
  python3 tools/test_report.py --times FOLDER  how long each step and the slowest tests took
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

GTEST_SKIP = re.compile(r"^\S+:\d+: Skipped\n(.*)$", re.M)
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (.*)$", re.M)
UNITTEST_SKIP = re.compile(r"^skipped (\S+): (.*)$", re.M)


def skips(name, case):
    """[(test, number, reason)] of one ctest test."""
    output = case.findtext("system-out") or ""
    found = collections.Counter()
    for reason in GTEST_SKIP.findall(output):
        found[reason.strip()] += 1
    for number, reason in PYTEST_SKIP.findall(output):
        found[reason.strip()] += int(number)
    for _, reason in UNITTEST_SKIP.findall(output):
        found[reason.strip()] += 1
    if case.get("status") == "notrun" and not found:
        skipped = case.find("skipped")
        found["not run" if skipped is None else skipped.get("message", "not run")] += 1
    return [(name, number, reason) for reason, number in sorted(found.items())]


def clock(seconds):
    return f"{int(seconds) // 60:3d} min {int(seconds) % 60:02d} s"


def times(folder):
    """A step lasts until the next one begins; FOLDER/steps has a line for each: seconds, name."""
    folder = pathlib.Path(folder)
    steps = [line.split("\t", 1) for line in
             (folder / "steps").read_text(encoding="utf-8").splitlines()]
    for (begin, name), (end, _) in zip(steps, steps[1:]):
        print(f"  {clock(float(end) - float(begin))}  {name}")
    slowest = []
    for path in folder.glob("*.xml"):
        preset = path.stem.split("-", 1)[1]
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            slowest.append((float(case.get("time") or 0), f"{case.get('name')} ({preset})"))
    print("  the slowest tests:")
    for seconds, name in sorted(slowest, reverse=True)[:12]:
        print(f"  {clock(seconds)}  {name}")
    return 0


def main(folder):
    folder = pathlib.Path(folder)
    counts = collections.Counter()
    left_out = {}  # (test, reason): [number, builds]
    for path in sorted(folder.glob("*.xml")):
        preset = path.stem.split("-", 1)[1]
        for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
            status = case.get("status")
            counts["passed" if status == "run" else "failed" if status == "fail" else status] += 1
            for name, number, reason in skips(case.get("name"), case):
                entry = left_out.setdefault((name, reason), [number, []])
                entry[1].append(preset)
    lines = [f"{number} of {name} ({', '.join(builds)}): {reason}"
             for (name, reason), (number, builds) in left_out.items()]
    listed = folder / "left-out"
    if listed.exists():
        lines += listed.read_text(encoding="utf-8").splitlines()
    for line in lines or ["nothing"]:
        print(f"  {line}")
    print(f"\n{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(times(sys.argv[2]) if sys.argv[1] == "--times" else main(sys.argv[1]))
