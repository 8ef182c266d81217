"""Training examples: bytes, and the weight of each byte's prediction in the loss."""
import dataclasses

import numpy

# Weight of an answer's byte; a byte of plain text weighs 1. A fact's digits cannot be predicted and
# weigh 0.
ANSWER = 4.0
# Weight of an answer's first digit relative to the others: it alone must select the right fact.
# With equal weights a model learns to continue within a fact long before it learns to find the
# right one.
FIRST = 4.0


class Example:
    """A sequence of bytes, built piece by piece. `answers` has the number of the answer that each
    byte belongs to, from 1, or 0."""

    def __init__(self):
        self.bytes = bytearray()
        self.weights = []
        self.answers = []
        self.asked = 0

    def add(self, piece, weight):
        self.bytes += piece
        self.weights += [weight] * len(piece)
        self.answers += [0] * len(piece)

    def ask(self, fact, weight):
        self.add(fact.question, 0.0)
        self.asked += 1
        self.bytes += fact.answer
        self.weights += [weight * FIRST] + [weight] * (len(fact.answer) - 1)
        self.answers += [self.asked] * len(fact.answer)

    def __len__(self):
        return len(self.bytes)


def _dense(length, template, random, digits):
    """Facts followed by as many questions as fit; only the answers count in the loss."""
    statement, asked = template.bytes_of_fact(digits)
    most = min(len(template.keys), max(1, length // (statement + asked)))
    facts = template.draw(int(random.integers(1, most + 1)), random, digits)
    example = Example()
    for fact in facts:
        example.add(fact.statement, 0.0)
    while len(example) < length:
        example.ask(facts[random.integers(len(facts))], 1.0)
    return example


def one_digit(length, corpus, template, random):
    """Facts with one-digit values: the only task is to select the fact."""
    return _dense(length, template, random, 1)


def dense_recall(length, corpus, template, random):
    return _dense(length, template, random, template.digits)


def planted_facts(length, corpus, template, random):
    """Facts planted in a text, with questions: most after the text, some within it."""
    statement, asked = template.bytes_of_fact()
    most = min(len(template.keys), max(1, length // (4 * (statement + asked))))
    facts = template.draw(int(random.integers(1, min(most, 8) + 1)), random)
    questions = [facts[i] for i in random.integers(len(facts), size=max(4, length // 128))]
    on_the_way = int(random.integers(len(questions) // 2 + 1))
    room = length - sum(len(fact.statement) for fact in facts) - sum(
        len(fact.question) + len(fact.answer) for fact in questions)
    text = corpus.passage(room, random)
    places = {fact: int(random.integers(room + 1)) for fact in facts}
    pieces = [(place, 0, fact) for fact, place in places.items()]
    for fact in questions[:on_the_way]:
        pieces.append((int(random.integers(places[fact], room + 1)), 1, fact))
    pieces += [(room, 2, fact) for fact in questions[on_the_way:]]
    example, copied = Example(), 0
    for place, kind, fact in sorted(pieces, key=lambda piece: piece[:2]):
        example.add(text[copied:place], 1.0)
        copied = place
        if kind == 0:
            example.add(fact.statement, 0.0)
        else:
            example.ask(fact, ANSWER)
    example.add(text[copied:], 1.0)
    return example


def repeated_passage(length, corpus, template, random):
    """A text in which one passage is repeated."""
    size = int(random.integers(16, max(17, length // 4)))
    text = corpus.passage(length - size, random)
    first = int(random.integers(len(text) - size + 1))
    again = int(random.integers(first + size, len(text) + 1))
    example = Example()
    example.add(text[:again], 1.0)
    example.add(text[first:first + size], 1.0)
    example.add(text[again:], 1.0)
    return example


def plain_text(length, corpus, template, random):
    example = Example()
    example.add(corpus.passage(length, random), 1.0)
    return example


KINDS = {"digit": one_digit, "recall": dense_recall, "facts": planted_facts, 
         "repeat": repeated_passage, "text": plain_text}


@dataclasses.dataclass
class Batch:
    tokens: numpy.ndarray   # [examples, length + 1]
    weights: numpy.ndarray  # [examples, length], of the predicted bytes
    answers: numpy.ndarray  # [examples, length], see Example

    def recalled(self, predictions):
        """The number of answers predicted completely, and the number of answers. `predictions` has
        the shape of `answers`: the most likely bytes, each predicted from the correct bytes before
        it. Up to the first mistake that equals greedy decoding."""
        rows = numpy.arange(len(self.answers))[:, None] * (self.answers.shape[1] + 1)
        asked = (rows + self.answers)[self.answers > 0]
        wrong = (predictions != self.tokens[:, 1:])[self.answers > 0]
        return len(set(asked)) - len(set(asked[wrong])), len(set(asked))


def batch(phase, corpus, template, random):
    """Examples of the kinds and shares in `phase.mix`."""
    kinds, shares = zip(*phase.mix.items())
    drawn = random.choice(len(kinds), size=phase.batch, p=numpy.array(shares) / sum(shares))
    size = phase.length + 1
    made = [KINDS[kinds[kind]](size, corpus, template, random) for kind in drawn]
    return Batch(
        numpy.array([list(example.bytes[:size]) for example in made], numpy.int64),
        numpy.array([example.weights[1:size] for example in made], numpy.float32),
        numpy.array([example.answers[1:size] for example in made], numpy.int64))
