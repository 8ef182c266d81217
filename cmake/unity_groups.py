"""Groups the sources of a target that one compiler run can take together.

  python3 unity_groups.py MAX_LINES PREFIX SOURCE...

Writes PREFIX_0.cc, PREFIX_1.cc, ... that include a group each, by paths from the project's root,
and prints what the target is to compile instead of SOURCE..., separated by semicolons. Two sources
that may define the same name outside of a class (helpers in unnamed namespaces, macros, tests) are
never in one group. MAX_LINES bounds a group's lines, so that groups take similar times.
tools/check-naming groups sources in the same way.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
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


@functools.lru_cache(maxsize=None)
def names_of(path):
    return frozenset(names_in(path.read_text(encoding="utf-8")))


@functools.lru_cache(maxsize=None)
def includes_of(path):
    """Headers of the project that a file includes, directly or indirectly."""
    found = set()
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        header = ROOT / name
        if header.is_file() and header != path:
            found |= {header} | includes_of(header)
    return frozenset(found)


class Source:
    def __init__(self, path):
        self.path = path = pathlib.Path(path).resolve()
        text = path.read_text(encoding="utf-8")
        self.lines = text.count("\n")
        self.own = names_of(path)
        self.constants = set(re.findall(r"\bk[A-Z]\w*", text)) - {"kTest"}
        self.known = set().union(*(names_of(header) for header in includes_of(path)))


def meanings(names):
    return {name.split(" = ")[0]: name for name in names}


def meet(own, others):
    """Whether two sets of names have one in common. An alias may be repeated as it is."""
    mine, theirs = meanings(own), meanings(others)
    return any(mine[name] != theirs[name] or " = " not in mine[name]
               for name in mine.keys() & theirs.keys())


def collide(one, other):
    constants = {name for name in one.own if name.startswith("k")} & (other.constants - other.own)
    return bool(constants) or meet(one.own, other.own) or meet(one.own, other.known - one.known)


def groups_of(paths, max_lines):
    groups = []  # lists of sources
    for source in map(Source, paths):
        for group in groups:
            if sum(other.lines for other in group) + source.lines <= max_lines and not any(
                    collide(source, other) or collide(other, source) for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return groups


def write(path, text):
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(max_lines, prefix, paths):
    compiled = []
    for group in groups_of(paths, max_lines):
        if len(group) == 1:
            compiled.append(str(group[0].path))
            continue
        path = pathlib.Path(f"{prefix}_{len(compiled)}.cc")
        names = (source.path.relative_to(ROOT).as_posix() for source in group)
        write(path, "".join(f'#include "{name}"\n' for name in names))
        compiled.append(str(path))
    print(";".join(compiled), end="")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
