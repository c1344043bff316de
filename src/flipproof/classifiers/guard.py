"""What is refused before any long work: graphs or a model for which certificates would be false, or asking would fail."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from flipproof.classifiers.classifier import Classifier, ShortcutDisagrees
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise


class Guard:
    """The checks of one base classifier.

    Args:
        classifier: The base classifier.
        trust_features: Accept node features that look as if computed from the clean edges.
    """

    def __init__(self, classifier: Classifier, *, trust_features: bool = False) -> None:
        self.classifier, self._trust_features = classifier, trust_features
        self._tried = set[bytes]()

    def check(self, graphs: Sequence[Graph], noise: EdgeNoise, *, first: int | None = None) -> None:
        """Refuse graphs or a model for which certificates would be false, or asking would fail.

        Node features are compared with the edges of all the graphs: check a data set as a whole.

        Args:
            graphs: Everything that is to be asked about.
            noise: Random changes such as the model will meet.
            first: As for :meth:`check_model`.
        """
        self.check_features(graphs)
        self.check_model(graphs, noise, first=first)

    def check_model(self, graphs: Sequence[Graph], noise: EdgeNoise, *, first: int | None = None) -> None:
        """The part of :meth:`check` that is about the model.

        It is tried on every graph: on noisy copies, and on deliberately different graphs on the same nodes; on a graph of usual
        size in double precision too, where a dependence on other graphs of the batch cannot hide behind rounding.

        Args:
            graphs: Those to try it on.
            noise: Random changes such as the model will meet.
            first: Try the model on so many graphs now; the others are :meth:`untried`, and :meth:`try_on` must be called for each
                before anything that was asked about it counts. By default the model is tried on all.
        """
        try:
            self._try_model(graphs, noise, first)
        except ShortcutDisagrees as error:
            self.classifier.take_no_shortcuts(error.remark)
            self._try_model(graphs, noise, first)

    def _try_model(self, graphs: Sequence[Graph], noise: EdgeNoise, first: int | None) -> None:
        self.classifier.begin()
        self._tried.clear()
        distinct = {_identity(graph): place for place, graph in reversed(list(enumerate(graphs)))}
        for place in distinct.values():  # whether shortcuts are taken, anywhere in the run
            self.classifier.suited(graphs[place], noise)
        for known, place in reversed(distinct.items()):
            classifier = self.classifier.suited(graphs[place], noise)
            classifier.prepare()
            classifier.check_memory(graphs[place], noise)
            if first is None or len(self._tried) < first:
                classifier.probe(graphs[place], noise)
                self._tried.add(known)
        if graphs:
            sizes = sorted((graph.num_nodes, place) for place, graph in enumerate(graphs))
            usual = graphs[sizes[len(sizes) // 2][1]]
            self.classifier.suited(usual, noise).probe_finely(usual, noise)

    def untried(self, graph: Graph) -> bool:
        """Whether the model has not been tried on the graph since :meth:`check` was called last."""
        return _identity(graph) not in self._tried

    def try_on(self, graph: Graph, noise: EdgeNoise) -> None:
        """Try the model on a graph, and refuse it as :meth:`check` does; in any process."""
        classifier = self.classifier.suited(graph, noise)
        classifier.prepare()
        classifier.probe(graph, noise)

    def passed(self, graph: Graph) -> None:
        """Remember that :meth:`try_on` did not refuse the graph."""
        self._tried.add(_identity(graph))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tried": set()}  # whoever gets a copy does not ask what was tried

    def check_features(self, graphs: Sequence[Graph]) -> None:
        """Refuse node features that know the clean edges, where the model may see them.

        Of a :class:`flipproof.datasets.Dataset`, the refusal gives the column's name.
        """
        own = sum(graph.node_features is not None for graph in graphs)
        spec = getattr(getattr(self.classifier, "features", None), "spec", None)
        if spec == "own-or-degree" and 0 < own < len(graphs):
            raise InputError(
                f"node features must be there for every graph or for none; got {own} of {len(graphs)} graphs with some, and "
                'one graph has none (give it node_features, or pass features="degree" for all)'
            )
        if own and self.classifier.reads_own_features and not self._trust_features:
            from flipproof.classifiers.clean_edges import refuse_clean_edges

            refuse_clean_edges(graphs, getattr(graphs, "feature_names", ()))


def _identity(graph: Graph) -> bytes:
    """The same for equal graphs; thousands of them take less memory than the graphs."""
    features = graph.node_features
    found = hashlib.blake2b(f"{graph.topology} {graph.label}".encode(), digest_size=16)
    if features is not None:
        found.update(f" {features.shape} {features.dtype.str} ".encode() + features.tobytes())
    return found.digest()
