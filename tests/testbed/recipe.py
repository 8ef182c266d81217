"""recipes/NAME.toml: a model's geometry, seed, training phases and measurements."""
import dataclasses
import pathlib
import tomllib

from testbed import RecipeError
from testbed.examples import KINDS

FOLDER = pathlib.Path(__file__).resolve().parent / "recipes"


@dataclasses.dataclass(frozen=True)
class Phase:
    name: str
    length: int  # bytes an example predicts
    batch: int   # examples a step
    steps: int
    rate: float  # learning rate at the start; changes linearly to the next phase's
    mix: dict    # kind of example -> share

    def __post_init__(self):
        for field in ("length", "batch", "steps"):
            if getattr(self, field) < 1:
                raise RecipeError(f"{field} = {getattr(self, field)}: allowed: 1 or more")
        if self.rate <= 0:
            raise RecipeError(f"rate = {self.rate}: allowed: above 0")
        unknown = sorted(set(self.mix) - set(KINDS))
        if unknown or not self.mix or min(self.mix.values()) <= 0:
            raise RecipeError(f"mix = {self.mix}: allowed: shares above 0 of {', '.join(KINDS)}")
        if self.length < 128:
            raise RecipeError(f"length = {self.length}: allowed: 128 or more, so that facts and "
                              "their questions fit")


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str
    title: str      # one line, for the model's README
    seed: int
    final_rate: float
    warmup: int     # steps
    model: dict     # a transformers config: model_type and its fields
    phases: list
    lengths: list   # bytes of the texts used for measurement
    likeness: bool = True  # initialise heads as in beginning.py
    note: str = ""  # for the README

    @property
    def steps(self):
        return sum(phase.steps for phase in self.phases)

    def shortened(self, share):
        """The recipe with that share of every phase's steps."""
        phases = [dataclasses.replace(phase, steps=max(1, round(share * phase.steps)))
                  for phase in self.phases]
        return dataclasses.replace(self, phases=phases)

    def phase_of(self, step):
        """The phase of a step, counted from 0, and the completed share of the phase, in [0, 1)."""
        for phase in self.phases:
            if step < phase.steps:
                return phase, step / phase.steps
            step -= phase.steps
        raise IndexError(step)

    def rate(self, step):
        phase, through = self.phase_of(step)
        index = self.phases.index(phase)
        last = index + 1 == len(self.phases)
        following = self.final_rate if last else self.phases[index + 1].rate
        rate = phase.rate + through * (following - phase.rate)
        return rate * min(1.0, (step + 1) / self.warmup)


def known():
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name):
    """The recipe with this name, or from a file that ends in .toml."""
    path = pathlib.Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise RecipeError(f"no recipe {name}; there are {', '.join(known())}, or give a .toml file")
    try:
        return _parse(path)
    except (RecipeError, tomllib.TOMLDecodeError, KeyError, TypeError) as problem:
        raise RecipeError(f"{path}: {_words(problem)}") from problem


def _words(problem):
    return f"{problem} is missing" if isinstance(problem, KeyError) else str(problem)


def _parse(path):
    fields = tomllib.loads(path.read_text())
    phases = [Phase(**phase) for phase in fields.pop("phases")]
    if not phases:
        raise RecipeError("phases: allowed: one or more")
    recipe = Recipe(name=path.stem, phases=phases, **fields)
    if recipe.warmup < 1:
        raise RecipeError(f"warmup = {recipe.warmup}: allowed: 1 or more")
    if "model_type" not in recipe.model:
        raise RecipeError("model.model_type is missing")
    return recipe
