"""A toy defence: the majority of three views, of which each shows a third of the node pairs. Importing it registers it.

An edge flip changes one view. So if all three agree, two of three still do after any single flip: radius 1. Otherwise radius 0.
"""

from dataclasses import dataclass

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Answer
from flipproof.defences import register
from flipproof.defences.defence import Defence
from flipproof.fields import option


@dataclass(frozen=True, eq=False)
class Views(Answer):
    kind = "views"

    def certify(self, **reading):
        radius, graph, counts = min(int(self.edge_blind), self.graph.num_slots), self.graph, [0] * self.num_classes
        adds, removes = np.indices((min(radius, graph.max_adds) + 1, min(radius, graph.max_removes) + 1))
        counts[self.label] = 3 if self.edge_blind else 2
        shares = {"counts": tuple(counts), "p_lower": counts[self.label] / 3, "p_upper": 1 - counts[self.label] / 3}
        certainty = {"method": "thirds", "alpha": 0.0, "samples": 3, "noise": None, "num_slots": graph.num_slots}
        return Certificate(label=self.label, radius=radius, grid=adds + removes <= radius, **shares, **certainty)


@register
@dataclass(frozen=True)
class Thirds(Defence):
    name, evidence = "thirds", Views
    shift: int = option("Number that is added before node pairs are divided by three.", 0, least=0)

    def ask(self, classifier, graph, request, run=map):
        thirds = (graph.edges.sum(axis=1) + self.shift) % 3
        views = [graph.replaced(edges=graph.edges[thirds == third]) for third in range(3)]
        counts = np.bincount([classifier.classifier.label_of(view) for view in views], minlength=classifier.num_classes)
        return Views(int(counts.argmax()), graph, classifier.num_classes, edge_blind=bool(counts.max() == 3))
