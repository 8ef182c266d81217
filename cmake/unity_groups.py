"""Groups the sources of a target that one compiler run can take together.

  python3 unity_groups.py MAX_LINES SOURCE...

Prints a group for each source, in the order given: a number, or - for a source that is compiled
alone.
Two sources that may define the same name outside of a class (helpers in unnamed namespaces, macros,
tests) are never in one group. MAX_LINES bounds a group's lines, so that groups take similar times.
"""
import pathlib
import re
import sys

NAMESPACE = re.compile(r"^(?:inline )?namespace\b.*$|^using [\w:]+;$", re.M)
DEFINED = re.compile(
    r"^(?! )(?:template <[^>]*>\s*)?(?:[\w:<>,&*\[\] ]+[ &*])??((?:\w+::)*)(\w+)"
    r"(?:\[[^\]]*\])*(?:\(|\{|;| = | \{| : )", re.M)
TYPE = re.compile(r"^(?:class|struct|enum|enum class|union) (\w+)", re.M)
ALIAS = re.compile(r"^using (\w+) = (.*)$", re.M)
MACRO = re.compile(r"^\s*#\s*define (\w+)", re.M)
TEST = re.compile(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", re.M)
# Bodies that are compiled for one instruction set or another by macros before them.
BODY = re.compile(r'^#include "([^"]*_(?:inl|body|bodies)\.h)"', re.M)
ORDINARY = {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "if", "for", "return", "using"}


def names_in(text):
    """Names that a source may define for itself; members of classes collide with nothing."""
    found = set(TYPE.findall(text)) | set(MACRO.findall(text)) | set(BODY.findall(text))
    found |= {"_".join(test) for test in TEST.findall(text)}
    found |= {name for scope, name in DEFINED.findall(NAMESPACE.sub("", text)) if not scope}
    aliases = dict(ALIAS.findall(text))
    return (found - ORDINARY - set(aliases)) | {f"{k} = {v}" for k, v in aliases.items()}


def collide(names, others):
    """An alias may be repeated as it is, and not beside another meaning of its name."""
    def meanings(all_names):
        return {name.split(" = ")[0]: name for name in all_names}
    mine, theirs = meanings(names), meanings(others)
    return any(mine[name] != theirs[name] or " = " not in mine[name]
               for name in mine.keys() & theirs.keys())


def groups_of(paths, max_lines):
    groups = []  # [lines, names]
    answer = []
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        lines, names = text.count("\n"), names_in(text)
        for number, group in enumerate(groups):
            if group[0] + lines <= max_lines and not collide(group[1], names):
                break
        else:
            number, group = len(groups), [0, set()]
            groups.append(group)
        group[0] += lines
        group[1] |= names
        answer.append(number)
    alone = {number for number in answer if answer.count(number) == 1}
    return ["-" if number in alone else str(number) for number in answer]


if __name__ == "__main__":
    print(";".join(groups_of(sys.argv[2:], int(sys.argv[1]))), end="")
