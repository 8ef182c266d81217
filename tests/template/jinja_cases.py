"""Random small templates of the supported syntax, and the context that they read."""
import random

WORDS = ["'abc'", "'a b  c'", "''", "' \\n x\\t'", "'É ß Σ'", "'<b>&\"q\"</b>'", "'it\\'s'",
         "'1.5'", "'42'", "'ab' 'cd'", "'ΑΣ. ΟΔΟΣ'", "'ŉ ǆ'", "'a,b,,c'", "'line\\nline\\r\\nline'",
         "'{}'", "'hello-world (x)'", "'\\x41\\u00e9'", "\"dq's\"", "'😀x'", "'\\u2028\\x7f'"]
NUMBERS = ["0", "1", "2", "3", "-1", "7", "10", "100", "1.5", "0.1", "2.0", "1e20", "-2.5", "1_000"]
CONSTANTS = ["true", "false", "none", "True", "None"]
NAMES = ["s", "t", "u", "n", "f", "yes", "nothing", "missing", "xs", "ys", "d", "e", "empty",
         "messages", "tools", "nested", "ns.a", "ns.b", "d.k", "d['items']", "d.items", "m.content"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number",
         "boolean", "true", "false", "integer", "float", "odd", "even", "equalto(1)",
         "in [1, 'abc']", "eq 'abc'", "divisibleby 2", "ne none", "gt 1", "lessthan(3)"]
FILTERS = ["length", "upper", "lower", "trim", "tojson", "string", "list", "first", "last", "join",
           "join(', ')", "default('dd')", "default('dd', true)", "capitalize", "title", "int",
           "float", "replace('a', 'Z')", "replace('', '-')", "unique|list", "sort", "min", "max",
           "items|list", "dictsort", "safe", "indent(2)", "indent(3, first=true)",
           "indent('>', blank=true)", "tojson(indent=2)", "tojson(ensure_ascii=true)",
           "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "map('upper')|list",
           "map(attribute='role')|list", "map(attribute='a.b', default='q')|list", "select|list",
           "reject('none')|list", "select('string')|list", "selectattr('role')|list",
           "selectattr('role', 'equalto', 'user')|list",
           "rejectattr('role', 'equalto', 'user')|list",
           "selectattr('content', 'defined')|map(attribute='content')|join('/')", "count",
           "sort(reverse=true)", "sort(attribute='role')", "trim('a')", "d('x')",
           "dictsort(false, 'value')", "dictsort(reverse=true)", "join('-', attribute='role')",
           "replace('a', 'b', 1)", "int(5)", "float(2.5)", "map('length')|list", "reverse",
           "unique(case_sensitive=true)|list", "max(attribute='n')"]
METHODS = ["strip()", "strip('a ')", "lstrip()", "rstrip('c')", "split()", "split(',')",
           "split('b', 1)", "split(maxsplit=1)", "startswith('a')", "endswith('c')",
           "endswith(('c', 'x'))", "upper()", "lower()", "title()", "capitalize()",
           "replace('a', 'xx')", "replace('b', '', 1)", "join(['x', 'y'])", "find('b')",
           "count('a')", "get('a')", "get('zz', 5)", "items()", "keys()", "values()",
           "format(1, 'z')", "items()|list", "keys()|list", "append(1)", "pop()", "split('a')[-1]",
           "splitlines()"]
TEXT_FILTERS = ["upper", "lower", "trim", "tojson", "string", "capitalize", "title", "length",
                "list|join('.')", "replace('a', 'Z')", "indent(2)", "indent(1, true)",
                "indent('> ', blank=true)", "default('q')", "tojson(ensure_ascii=true)",
                "trim(' a')", "first", "last", "int", "float", "safe"]
TEXT_METHODS = ["strip()", "strip('a ')", "lstrip()", "rstrip()", "upper()", "lower()", "title()",
                "capitalize()", "replace('b', 'xx')", "startswith('a')", "endswith(('c', 'x'))",
                "find('b')", "rstrip('c')"]
LIST_FILTERS = ["tojson", "list", "length", "map('string')|list", "map('tojson')|join(';')",
                "select('string')|list", "reject('string')|list", "first", "last|string",
                "unique|list", "map(attribute='role')|list", "selectattr('role', 'defined')|list",
                "selectattr('role', 'equalto', 'user')|list",
                "rejectattr('role', 'equalto', 'user')|list", "tojson(indent=1)",
                "tojson(separators=(',', ':'))", "select('in', [1, 'b'])|list", "reverse|list",
                "map('length')|list", "sort(attribute='role')",
                "selectattr('content')|map(attribute='content')|map('trim')|join('/')"]
SLICES = ["1:", ":-1", "::-1", "0", "-1", "1:3", "-2:", "::2", ":0", "5:", "-1:0:-2", "0:2:1"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
             "and", "or", "**"]
CONTEXT = {
    "s": "abc def", "t": "Tä\n <x> ", "u": "<|im_end|> it's \"q\" 世界", "n": 3, "f": 2.5,
    "yes": True, "nothing": None, "xs": [3, 1, 2], "ys": ["b", "A", "c", "a", "B"], "empty": [],
    "d": {"b": 1, "a": {"b": "deep"}, "items": [1], "k": "v", "role": "x"}, "e": {},
    "m": {"role": "user", "content": "hi"},
    "nested": [[1, [2, "x"]], {"k": [None, True, 1.0, {"z": "é'\""}]}],
    "messages": [{"role": "system", "content": "S", "n": 2},
                 {"role": "user", "content": " hi\n", "n": 3},
                 {"role": "assistant", "content": None, "n": 1}, {"role": "user"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>",
}


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def atom(self, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.45:
            return self.pick(self.pick([WORDS, NUMBERS, CONSTANTS, NAMES, NAMES, NAMES]))
        if kind < 0.55:
            return "[" + ", ".join(self.expression(depth - 1)
                                   for _ in range(self.pick([0, 1, 2, 3]))) + "]"
        if kind < 0.60:
            return "(" + self.expression(depth - 1) + self.pick([",)", ", 1)", ")"])
        if kind < 0.66:
            keys = self.random.sample(["'a'", "'b'", "1", "'z'", "none", "true"],
                                      self.pick([0, 1, 2]))
            return "{" + ", ".join(f"{key}: {self.expression(depth - 1)}" for key in keys) + "}"
        if kind < 0.72:
            return f"range({self.pick(['3', '1, 4', '5, 0, -2'])})"
        return "(" + self.expression(depth - 1) + ")"

    def typed(self, depth):
        """An expression whose types fit, most of the time."""
        kind = self.pick(["text", "text", "text", "list", "list", "dict", "number"])
        return getattr(self, kind)(depth)

    def text(self, depth):
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick([*WORDS, "s", "t", "u", "d.k", "ns.a", "m.content", "bos_token",
                              "messages[1].content"])
        inner = self.text(depth - 1)
        return self.pick([
            f"{inner} + {self.text(depth - 1)}",
            f"{inner} ~ {self.pick([self.number, self.text, self.list])(0)}",
            f"({inner})|{self.pick(TEXT_FILTERS)}", f"({inner}).{self.pick(TEXT_METHODS)}",
            f"({inner})[{self.pick(SLICES)}]",
            f"({inner}).split({self.pick(['', repr(' '), repr('b')])})|join('+')",
            f"{self.list(depth - 1)}|tojson", f"{self.dict(depth - 1)}|tojson(indent=2)",
            f"{self.list(depth - 1)}|string",
            f"({inner}) if {self.pick(NAMES)} is {self.pick(TESTS[:8])} else {self.text(0)}",
            f"{self.list(depth - 1)}|join({self.text(0)})",
            f"('{{}}-{{}}').format({inner}, {self.number(0)})",
            f"({inner})|replace({self.text(0)}, {self.text(0)})"])

    def list(self, depth):
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick(["xs", "ys", "messages", "nested", "empty", "[1, 'b', none]",
                              "(1, 'x')", "[s, u]", "tools"])
        inner = self.list(depth - 1)
        return self.pick([
            f"[{self.text(depth - 1)}, {self.typed(depth - 1)}]", f"({inner})[{self.pick(SLICES)}]",
            f"{inner}|{self.pick(LIST_FILTERS)}", f"{inner}|list",
            f"{self.dict(depth - 1)}|items|list", f"{self.dict(depth - 1)}|dictsort",
            f"({self.text(depth - 1)}).split('b')", f"{self.text(depth - 1)}|list"])

    def dict(self, depth):
        if depth <= 0 or self.random.random() < 0.5:
            return self.pick(["d", "e", "m", "messages[0]", "tools[0]", "{'a': s, 'b': [1]}",
                              "{1: none, 'z': 1.5}"])
        return "{" + f"'q': {self.typed(depth - 1)}, 'a\"': {self.typed(depth - 1)}" + "}"

    def number(self, depth):
        if depth <= 0 or self.random.random() < 0.4:
            return self.pick([*NUMBERS, "n", "f", "yes"])
        inner = self.number(depth - 1)
        return self.pick([
            f"({inner}) {self.pick(['+', '-', '*', '//', '%', '/'])} ({self.number(depth - 1)})",
            f"{self.list(depth - 1)}|length", f"{self.text(depth - 1)}|length",
            f"({self.text(0)})|int", f"-({inner})", f"({self.text(0)}).count('a')"])

    def postfix(self, depth):
        if self.random.random() < 0.7:
            return f"({self.typed(depth)})"
        text = self.atom(depth)
        for _ in range(self.pick([0, 0, 1, 1, 2])):
            kind = self.random.random()
            if kind < 0.3:
                text += "." + self.pick(METHODS)
            elif kind < 0.55:
                bounds = [self.pick(["", "", "0", "1", "-1", "2", "-2", "9"]) for _ in range(3)]
                text += "[" + self.pick([":".join(bounds[:2]), ":".join(bounds), bounds[0] or "0",
                                         "::-1", "'a'", "'role'", "1:"]) + "]"
            elif kind < 0.65:
                text += "." + self.pick(["a", "role", "content", "items", "zz", "0", "n"])
            else:
                text = f"{text}|{self.pick(FILTERS)}"
        return text

    def expression(self, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.35:
            return self.postfix(depth)
        if kind < 0.6:
            return (f"{self.postfix(depth - 1)} {self.pick(OPERATORS)} {self.postfix(depth - 1)}")
        if kind < 0.7:
            other = self.pick(["", f" else {self.postfix(depth - 1)}"])
            return f"{self.postfix(depth - 1)} if {self.expression(depth - 1)}{other}"
        if kind < 0.8:
            return f"{self.postfix(depth - 1)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind < 0.87:
            return f"not {self.postfix(depth - 1)}"
        if kind < 0.92:
            return f"{self.postfix(0)} < {self.postfix(0)} <= {self.postfix(0)}"
        return f"{self.postfix(0)} ~ {self.postfix(0)} + {self.postfix(0)}"

    def tag(self, body):
        return ("{%" + self.pick(["", "", "-", "+"]) + f" {body} "
                + self.pick(["", "", "-", "+"]) + "%}")

    def output(self, depth):
        return ("{{" + self.pick(["", "", "-"]) + f" {self.expression(depth)} "
                + self.pick(["", "", "-"]) + "}}")

    def data(self):
        return self.pick(["", " ", "\n", "x", "\n  ", "a\n\n b", "  \t", "\r\n", "<s>", "{# c #}",
                          "{#- c\n -#}\n", "  {# d #}\n"])

    def loop(self, depth):
        target, iterable = self.pick([
            ("x", self.pick(["xs", "ys", "messages", "empty", "d", "s", "missing", "range(3)",
                             "nested"])),
            ("k, v",
             self.pick(["d.items()", "d|items", "d|dictsort", "[(1, 2), (3, 4)]", "[[1, 2]]"])),
            ("x", self.postfix(1))])
        condition = self.pick(["", "", "", " if x", " if x is string", " if loop is defined"])
        inner = self.body(depth - 1) + self.pick([
            "{{ loop.index0 }}", "{{ loop.index }}{{ loop.last }}", "{{ loop.previtem }}",
            "{{ loop.nextitem|tojson }}", "{% if loop.first %}F{% endif %}",
            "{% if loop.index > 2 %}{% break %}{% endif %}{{ x }}",
            "{% if loop.first %}{% continue %}{% endif %}{{ x }}",
            "{{ loop.length }}/{{ loop.revindex }}", "{{ x }}{{ k }}", "{% set y = x %}{{ y }}",
            "{% set ns.a = ns.a ~ x %}"])
        other = self.pick(["", "", self.tag("else") + "none" + self.data()])
        return (self.tag(f"for {target} in {iterable}{condition}") + self.data() + inner + other
                + self.tag("endfor"))

    def statement(self, depth):
        kind = self.random.random()
        if kind < 0.45 or depth <= 0:
            return self.output(depth + 1)
        if kind < 0.6:
            other = self.pick(["", self.tag("else") + self.body(depth - 1),
                               self.tag(f"elif {self.expression(1)}") + "E" + self.tag("else")
                               + "O"])
            return (self.tag(f"if {self.expression(2)}") + self.body(depth - 1) + other
                    + self.tag("endif"))
        if kind < 0.75:
            return self.loop(depth)
        if kind < 0.83:
            name = self.pick(["y", "z", "ns.a", "ns.b"])
            return self.tag(f"set {name} = {self.expression(2)}") + "{{ y }}{{ ns.a }}"
        if kind < 0.88:
            filters = self.pick(["", "|upper", "|trim|length"])
            return (self.tag(f"set y{filters}") + self.body(depth - 1) + self.tag("endset")
                    + "[{{ y }}]")
        if kind < 0.92:
            return (self.tag(f"filter {self.pick(['upper', 'trim', 'indent(2)|upper'])}")
                    + self.body(depth - 1) + self.tag("endfilter"))
        if kind < 0.95:
            return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")
        signature, call = self.pick([
            ("p, q=3", "f(1)"), ("p, q=3", "f(s, q=xs)"), ("", "f()"), ("p", "f()"),
            ("p, q='x'", "f(q=1, p=2)"), ("p", "f(1, 2)"), ("p", "f(z=1)"), ("p, q=p", "f(5)")])
        shown = self.pick(["{{ p }}{{ q }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}",
                           "{{ s }}{{ y }}"])
        use = self.pick(["{{ " + call + " }}", "{{ " + call + "|upper }}",
                         self.tag("call " + call) + "C" + self.body(0) + self.tag("endcall")])
        return (self.tag(f"macro f({signature})") + shown + self.body(0)
                + self.tag("endmacro") + use)

    def body(self, depth):
        return "".join(self.data() + self.statement(depth)
                       for _ in range(self.pick([1, 1, 2]))) + self.data()

    def template(self):
        return "{% set ns = namespace(a='', b=[1]) %}" + self.body(3)
