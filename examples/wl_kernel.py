"""A GraKeL Weisfeiler-Lehman kernel with a support vector machine, certified like any function from graphs to labels.

Install GraKeL with pip install grakel. Then, in this folder:

    export FLIPPROOF_DATA=data      # the folder that holds MUTAG
    flipproof certify --model wl_kernel:trained --data MUTAG --root data --add 0.005 --remove 0.2 --out run
"""

import os

from grakel import Graph, VertexHistogram, WeisfeilerLehman
from sklearn.svm import SVC

import flipproof as fp

NOISE = fp.EdgeNoise(add=0.005, remove=0.2)


def as_grakel(graph):
    labels = dict(enumerate(graph.node_features.argmax(axis=1).tolist()))
    return Graph(graph.adjacency(), node_labels=labels)


def trained():
    """The machine, fitted to a noisy copy of every training graph that ``certify`` does not certify."""
    data = fp.datasets.tu("MUTAG", os.environ["FLIPPROOF_DATA"])
    graphs = fp.datasets.split(data, test=1 / 3, seed=0).train[:40]
    kernel = WeisfeilerLehman(n_iter=2, base_graph_kernel=VertexHistogram, normalize=True)
    noisy = [NOISE.sample(graph, seed=index) for index, graph in enumerate(graphs)]
    machine = SVC(kernel="precomputed").fit(kernel.fit_transform(map(as_grakel, noisy)), [g.label for g in graphs])

    def classify(graphs):
        return machine.predict(kernel.transform([as_grakel(graph) for graph in graphs]))

    return classify
