"""A toy defence: the majority of three views, of which each shows a third of the node pairs. Importing it registers it.

An edge flip changes one view. So if all three agree, two of three still do after any single flip: radius 1. Otherwise radius 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.defences import register
from flipproof.defences.defence import Defence, Option, Request
from flipproof.graphs import Graph

VIEWS = ("view 0", "view 1", "view 2")


@dataclass(frozen=True, eq=False)
class Views(Evidence):
    kind = "views"
    labels: np.ndarray
    graph: Graph
    num_classes: int
    shift: int

    def certify(self, **reading):
        counts = np.bincount(self.labels, minlength=self.num_classes)
        radius, graph = min(int(counts.max() == 3), self.graph.num_slots), self.graph
        adds, removes = np.indices((min(radius, graph.max_adds) + 1, min(radius, graph.max_removes) + 1))
        certainty = {"method": "thirds", "alpha": 0.0, "samples": 3, "noise": None, "num_slots": graph.num_slots}
        shares = {"counts": tuple(counts.tolist()), "p_lower": counts.max() / 3, "p_upper": 1 - counts.max() / 3}
        return Certificate(
            label=int(counts.argmax()), radius=radius, grid=adds + removes <= radius, **shares, **certainty
        )

    def description(self):
        return {"num_classes": self.num_classes, "shift": self.shift}

    def arrays(self):
        return {"labels": self.labels}

    @classmethod
    def from_parts(cls, graph, description, arrays):
        return cls(arrays["labels"], graph, description["num_classes"], description["shift"])


@register
class Thirds(Defence):
    name = "thirds"
    evidence_type = Views
    trait = "three-view"
    settings = (Option("shift", int, "Number that is added before node pairs are divided by three.", least=0),)

    def __init__(self, model, shift=0, **wrapped):
        self.shift = shift
        super().__init__(model, **wrapped)

    def tasks(self, graph, question, pieces):
        return [Request(key) for key in VIEWS if key not in pieces]

    def work(self, graph, question, request):
        shown = graph.edges[(graph.edges.sum(axis=1) + self.shift) % 3 == VIEWS.index(request.key)]
        return bytes([self.classifier.label_of(graph.replaced(edges=shown))])

    def evidence(self, graph, question, pieces):
        labels = np.array([pieces[key][0] for key in VIEWS], dtype=np.uint8)
        return Views(labels, graph, self.num_classes, self.shift)

    @classmethod
    def candidates(cls, graphs):
        return [{"shift": 0}]
