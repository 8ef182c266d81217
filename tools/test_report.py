"""What a test run left out, then how many tests passed and failed: the last lines of tools/test.

  python3 tools/test_report.py FOLDER     FOLDER holds ctest's JUnit files and the list `left-out`
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
    """[(test, number, reason)] of one test of ctest's."""
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
    sys.exit(main(sys.argv[1]))
