"""Random choices of a case."""

import random


class Draws(random.Random):
    """A random generator with the choices that cases need."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def some(self, options: dict, probability: float) -> dict:
        """Draws some of the keys, each with the same probability, and calls the function of each for its value."""
        return {key: value() for key, value in options.items() if self.chance(probability)}

    def rare(self, options: dict, probability: float) -> dict:
        """Draws at most one of the keys, with this probability."""
        if not self.chance(probability):
            return {}
        key = self.choice(list(options))
        return {key: options[key]()}

    def mostly(self, usual, others: list, probability: float = 0.2):
        """The usual value, or with this probability one of the others."""
        return self.choice(others) if self.chance(probability) else usual

    def rate(self) -> float:
        return round(self.uniform(0, 0.4), 3)
