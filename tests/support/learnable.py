"""A problem that networks learn quickly, and networks that show what they were shown."""

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GCNConv, global_mean_pool

import flipproof as fp
from flipproof import models


def dense_or_not(count=40, seed=0):
    """Class 1 has many edges, class 0 few."""
    generator = np.random.default_rng(seed)
    graphs = []
    for index in range(count):
        n = int(generator.integers(5, 10))
        upper = np.triu(generator.random((n, n)) < (0.8 if index % 2 else 0.2), 1)
        graphs.append(fp.Graph(n, np.argwhere(upper), label=index % 2))
    return graphs


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def padded(graph):
    adj = torch.from_numpy(graph.adjacency()).unsqueeze(0)
    return adj.sum(-1, keepdim=True), adj, torch.ones(1, graph.num_nodes, dtype=torch.bool)


class Recorder(nn.Module):
    """Remembers what it is shown."""

    num_classes = 2

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.seen = []

    def forward(self, x, adj, mask):
        self.seen.append((x, adj, mask))
        return self.weight.expand(len(x), 2)


class Blind(nn.Module):
    """A network that is shown no edges."""

    edge_blind = True

    def __init__(self, network):
        super().__init__()
        self.network, self.num_classes = network, network.num_classes

    def forward(self, x, adj, mask):
        return self.network(x, torch.zeros_like(adj), mask)


class WithDropout(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.network = models.GCN(1, 2, hidden=8, seed=seed)

    def forward(self, x, adj, mask):
        return self.network(nn.functional.dropout(x, 0.5, self.training), adj, mask)


class OneLayer(nn.Module):
    """A convolution of PyG's, a readout and a linear layer, as users write it."""

    def __init__(self, in_features=1, num_classes=2, conv=None):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.head = conv or GCNConv(in_features, 8), nn.Linear(8, num_classes)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


class PygMean(nn.Module):
    """A user's model in PyG's convention: a linear function of the mean over the nodes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 2)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x, edge_index, batch):
        assert (edge_index[0] != edge_index[1]).all()
        sizes = torch.bincount(batch).unsqueeze(1)
        sums = x.new_zeros(len(sizes), 1).index_add_(0, batch, x)
        return self.linear(sums / sizes)
