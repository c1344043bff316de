"""What is refused before any long work: graphs or a model for which certificates would be false, or asking would fail."""

from __future__ import annotations

from collections.abc import Sequence

from flipproof.classifiers.classifier import Classifier
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise

__all__ = ["Guard"]


class Guard:
    """The checks of one base classifier.

    Args:
        classifier: The base classifier.
        trust_features: Accept node features that look as if computed from the clean edges.
    """

    def __init__(self, classifier: Classifier, *, trust_features: bool = False) -> None:
        self.classifier, self._trust_features = classifier, trust_features

    def check(self, graphs: Sequence[Graph], noise: EdgeNoise) -> None:
        """Refuse graphs or a model for which certificates would be false, or asking would fail.

        The model is tried on every graph: on noisy copies, and on deliberately different graphs on the same nodes. Node
        features are compared with the edges of all the graphs: check a data set as a whole.

        Args:
            graphs: Everything that is to be asked about.
            noise: Random changes such as the model will meet.
        """
        self.check_features(graphs)
        self.classifier.begin()
        for graph in dict.fromkeys(graphs):
            classifier = self.classifier.suited(graph, noise)
            classifier.prepare()
            classifier.check_memory(graph, noise)
            classifier.probe(graph, noise)

    def check_features(self, graphs: Sequence[Graph]) -> None:
        """Refuse node features that know the clean edges, where the model may see them.

        Of a :class:`flipproof.datasets.Dataset`, the refusal gives the column's name.
        """
        own = [graph for graph in graphs if graph.node_features is not None]
        spec = getattr(getattr(self.classifier, "features", None), "spec", None)
        if spec == "own-or-degree" and 0 < len(own) < len(graphs):
            raise InputError(
                f"node features must be there for every graph or for none; got {len(own)} of {len(graphs)} graphs with some, and "
                'one graph has none (give it node_features, or pass features="degree" for all)'
            )
        if own and self.classifier.reads_own_features and not self._trust_features:
            from flipproof.classifiers.clean_edges import refuse_clean_edges

            refuse_clean_edges(own, getattr(graphs, "feature_names", ()))
