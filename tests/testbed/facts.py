"""Facts in the format of needle.json: a text contains `statement`, `question` asks for it, and
`answer`, with its end mark, is expected to follow."""
import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Fact:
    statement: bytes
    question: bytes
    answer: bytes


class FactTemplate:
    """needle.json as `fasa eval needle` reads it; `text` is the file's content."""

    def __init__(self, text):
        fields = json.loads(text)
        self.text = text
        self.keys = fields["keys"]
        self.digits = fields["value"]["length"]
        self._statement = fields["fact"]
        self._question = fields["question"]
        self._end = fields["answer_ends_with"]

    def fact(self, key, value):
        return Fact(self._statement.format(key=key, value=value).encode(),
                    self._question.format(key=key).encode(), (value + self._end).encode())

    def draw(self, count, random, digits=None):
        """`count` facts with different keys; `random` is a numpy Generator. `digits` of a value
        default to the template's."""
        digits = digits or self.digits
        keys = random.choice(len(self.keys), size=count, replace=False)
        values = random.integers(0, 10**digits, size=count)
        return [self.fact(self.keys[key], f"{value:0{digits}d}")
                for key, value in zip(keys, values)]

    def bytes_of_fact(self, digits=None):
        """The maximum bytes of a statement, and of a question with its answer."""
        facts = [self.fact(key, "0" * (digits or self.digits)) for key in self.keys]
        return (max(len(fact.statement) for fact in facts),
                max(len(fact.question) + len(fact.answer) for fact in facts))
