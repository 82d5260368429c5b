"""Random choices of a case."""

import random


class Draws(random.Random):
    """A random generator with choices for cases."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def some(self, options: dict, probability: float) -> dict:
        """Includes each key with the given probability, and calls its function for the value."""
        return {key: value() for key, value in options.items() if self.chance(probability)}

    def rare(self, options: dict, probability: float) -> dict:
        """Includes at most one of the keys, with the given probability."""
        if not self.chance(probability):
            return {}
        key = self.choice(list(options))
        return {key: options[key]()}

    def mostly(self, usual, others: list, probability: float = 0.2):
        """Returns the usual value, or with the given probability one of the others."""
        return self.choice(others) if self.chance(probability) else usual

    def rate(self) -> float:
        return round(self.uniform(0, 0.4), 3)
