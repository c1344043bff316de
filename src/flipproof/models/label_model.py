"""What models that are no networks have in common: a config, scores of lists of graphs, and labels. Needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["LabelModel", "checked_config"]


def checked_config(name: str, **counts: Any) -> dict[str, Any]:
    """The config of a model whose arguments are all counts of at least 1."""
    checked = {key: checked_count(value, key, 1, f"for instance {key}=8") for key, value in counts.items()}
    return {"name": name, **checked}


class LabelModel(ABC):
    """A model that is called with a list of graphs, and returns labels."""

    name: ClassVar[str]
    """The name under which :func:`flipproof.models.build` knows the model."""

    config: dict[str, Any]
    """From this :meth:`of_config` makes the model again, not fitted; plain JSON."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that a config describes, not fitted."""
        try:
            return cls(**{key: value for key, value in config.items() if key != "name"})
        except TypeError as error:
            raise InputError(f"config of {cls.name} does not fit: {error} (compare {cls.__name__})") from error

    @property
    def num_classes(self) -> int:
        """Number of classes ``C``."""
        return int(self.config["num_classes"])

    def __call__(self, graphs: Sequence[Graph]) -> NDArray[np.int64]:
        """The label of every graph."""
        labels: NDArray[np.int64] = self.scores(graphs).argmax(axis=1)
        return labels

    @abstractmethod
    def scores(self, graphs: Sequence[Graph]) -> NDArray[np.float64]:
        """Scores of the classes, ``[graphs, C]``."""
