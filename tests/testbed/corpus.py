"""Plain texts for training, without those reserved for measurement."""
import hashlib
import pathlib

import numpy

from testbed import RecipeError

LEAST_BYTES = 4096  # of all texts together


class Corpus:
    """All `*.txt` of `folder`, drawn in proportion to their bytes. Excludes files that contain the
    middle of a text in `held_out` (bytes), whatever their name: those texts are for measurement."""

    def __init__(self, folder, held_out=()):
        folder = pathlib.Path(folder)
        if not folder.is_dir():
            raise RecipeError(f"--corpus {folder}: the folder does not exist; give a folder of "
                              "plain texts (*.txt)")
        found = {path: path.read_bytes() for path in sorted(folder.rglob("*.txt"))}
        middles = [text[len(text) // 2:len(text) // 2 + 80] for text in held_out]
        kept = {path: text for path, text in found.items()
                if not any(middle in text for middle in middles)}
        if not kept:
            raise RecipeError(f"--corpus {folder}: no text to train on: {len(found)} *.txt, all "
                              "reserved for measurement; add others")
        self.folder = folder
        self.paths = list(kept)
        self.texts = [numpy.frombuffer(text, numpy.uint8) for text in kept.values()]
        self.bytes = sum(len(text) for text in self.texts)
        if self.bytes < LEAST_BYTES:
            raise RecipeError(f"--corpus {folder}: {self.bytes} bytes in {len(kept)} texts; "
                               f"allowed: {LEAST_BYTES} or more; add texts")

    def require(self, length):
        """Raises RecipeError unless a passage of `length` bytes can be drawn."""
        longest = max(len(text) for text in self.texts)
        if longest < length:
            raise RecipeError(f"--corpus {self.folder}: the longest text has {longest} bytes, but "
                              f"the recipe needs passages of {length}; add longer texts")

    def passage(self, length, random):
        """`length` bytes of one text; shorter texts are never chosen."""
        rooms = numpy.array([max(0, len(text) - length + 1) for text in self.texts])
        place = int(random.integers(rooms.sum()))
        index = int(numpy.searchsorted(rooms.cumsum(), place, side="right"))
        first = place - int(rooms[:index].sum())
        return self.texts[index][first:first + length].tobytes()

    def hash(self):
        """SHA-256 over every text's name and SHA-256, in order of the names."""
        whole = hashlib.sha256()
        for path, text in zip(self.paths, self.texts):
            whole.update(f"{hashlib.sha256(text.tobytes()).hexdigest()}  {path.name}\n".encode())
        return whole.hexdigest()
