"""The compiled twin of a PyG model: the same module, its convolutions and readouts replaced by loops over lists of neighbours.

The module's ``forward`` is traced once with torch.fx. Everything between convolutions is kept as it is, since nodes keep PyG's
layout; see :mod:`flipproof.classifiers.layers`. What cannot be traced, or uses the edges in another way than in a known layer,
is not translated: the model itself is asked then.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, fx
from torch_geometric.nn.pool import glob
from torch_geometric.utils import scatter

from flipproof.classifiers.edges import NeighbourLists
from flipproof.classifiers.layers import CONVOLUTIONS, POOLS, Convolution, DegreeRows, altered, is_relu, pooled, refusal

_MODULE_NAMES = "BatchNorm1d Dropout ELU GELU Identity LayerNorm LeakyReLU Linear ReLU SELU Sigmoid SiLU Softplus Tanh"
_MODULES = tuple(getattr(torch.nn, name) for name in _MODULE_NAMES.split())
_FUNCTION_NAMES = "dropout elu gelu leaky_relu relu selu sigmoid silu tanh"
_FUNCTIONS: tuple[Any, ...] = (
    *(getattr(torch.nn.functional, name) for name in _FUNCTION_NAMES.split()),
    *(torch.relu, torch.sigmoid, torch.tanh),
)
_METHODS = ("relu", "relu_", "sigmoid", "tanh")


def _row_by_row(node: fx.Node, parts: dict[str, Any]) -> bool:
    """Whether a traced call is known to make each row from the same row of its first argument, and from nothing else traced."""
    if len(node.all_input_nodes) != 1 or not node.args or node.args[0] is not node.all_input_nodes[0]:
        return False
    if node.op == "call_module":
        return type(parts.get(str(node.target))) in _MODULES
    known: tuple[Any, ...] = {"call_function": _FUNCTIONS, "call_method": _METHODS}.get(node.op, ())
    return node.target in known and (node.target is not torch.nn.functional.dropout or _is_off(node))


def _is_off(dropout: fx.Node) -> bool:
    """Whether a traced dropout drops nothing: by default it does, whatever the mode of the model."""
    return (dropout.args[2] if len(dropout.args) > 2 else dropout.kwargs.get("training", True)) is False


class Untranslatable(Exception):
    """Why a module has no twin, in a few words."""


class Twin(torch.nn.Module):
    """A PyG model for graphs of the same nodes: its weights and logits, on lists of neighbours; not for gradients."""

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        graph = _translated(module, call)
        *_, batch = (node for node in graph.graph.nodes if node.op == "placeholder")
        self._wants_owner = bool(batch.users)
        self._stays_shared, self._known_calls = _only_rows_before_edges(graph), _only_known_calls(graph)
        self._graph = _Compiled(graph)
        self._by_degree = any(isinstance(part, DegreeRows) for part in self._graph.modules())

    def forward(self, x: Tensor | None, lists: NeighbourLists) -> Any:
        """The logits for rows ``[B * n, d]``, or ``[n, d]`` that all graphs share; ``None`` for the degree alone."""
        if x is None and not self._by_degree:
            x = lists.degrees
        if x is not None and len(x) == lists.num_nodes and not self._stays_shared:
            x = x.repeat(lists.copies, 1)
        owner = torch.arange(lists.copies).repeat_interleave(lists.num_nodes) if self._wants_owner else None
        return self._graph(x, lists, owner)

    def graph_by_graph(self) -> bool:
        """Whether the code shows that a graph's logits are made from the rows of this graph alone: all its parts are known."""
        plain = (type(part) in _KNOWN and not altered(part) for part in self._graph.modules())
        return self._known_calls and all(plain)


class _Compiled(torch.nn.Module):
    """The code that torch.fx made of a graph, and the parts that it calls. A copy does not make the code again."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self._code = type(graph).forward
        for name, held in graph.__dict__.items():
            if name in ("_modules", "_parameters", "_buffers"):
                self.__dict__[name].update(held)

    def forward(self, *inputs: Any) -> Any:
        return self._code(self, *inputs)


_KNOWN = {
    *_MODULES,
    *CONVOLUTIONS,
    *CONVOLUTIONS.values(),
    pyg.SumAggregation,  # of a convolution, whose sums are ours
    pyg.MeanAggregation,
    pyg.Linear,
    torch.nn.Module,  # holds others
    torch.nn.ModuleList,
    torch.nn.Sequential,
    DegreeRows,
    _Compiled,
}
"""Parts of a twin of which it is known that they work row by row, or graph by graph."""


class _Root(torch.nn.Module):
    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self._call = module, call

    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        return self._call(self.module, x, edge_index, batch)


class _Tracer(fx.Tracer):
    """Goes into a module only where edges or the graphs' membership go; PyG's readouts become one call of ``scatter``."""

    def __init__(self) -> None:
        super().__init__(autowrap_functions=(scatter,))
        self._autowrap_search.append(glob)

    def call_module(
        self, m: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        nodes = {value.node for value in (*args, *kwargs.values()) if isinstance(value, fx.Proxy)}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        if nodes.isdisjoint(inputs[1:]) and not _passes_messages(m):
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)
        return super().call_module(m, forward, args, kwargs)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        from_pyg = type(m).__module__.startswith("torch_geometric.") and not _passes_messages(m)
        known = isinstance(m, pyg.MessagePassing) or from_pyg
        return known or super().is_leaf_module(m, module_qualified_name)


def _passes_messages(module: torch.nn.Module) -> bool:
    return any(isinstance(part, pyg.MessagePassing) for part in module.modules())


def _traced(root: torch.nn.Module) -> fx.Graph:
    """The calls of the module's forward."""
    right = pyg.aggr.Aggregation.__call__
    # aggregations look at their input's shape before they are called like other modules
    pyg.aggr.Aggregation.__call__ = lambda part, *args, **kwargs: torch.nn.Module.__call__(part, *args, **kwargs)
    try:
        return _Tracer().trace(root)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise Untranslatable(f"its forward cannot be traced ({type(error).__name__}: {reason})") from error
    finally:
        pyg.aggr.Aggregation.__call__ = right


def _translated(module: torch.nn.Module, call: Callable[..., Any]) -> fx.GraphModule:
    # a forward that keeps something of its input must not do so in the user's module: a copy of it, without its tensors
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    root, traced = _Root(module, call), _Root(deepcopy(module, tensors), call).eval()
    graph = _traced(traced)
    _, edges, batch = (node for node in graph.nodes if node.op == "placeholder")
    parts: dict[str, Any] = {}
    for node in list(graph.nodes):
        layer = root.get_submodule(node.target) if node.op == "call_module" else None
        if edges in node.all_input_nodes:
            parts[node.target] = _checked_convolution(node, layer, edges)
            node.args = (_rows(node), edges)
        elif pool := _readout(node, layer, batch):
            node.op, node.target, node.args = "call_function", pooled, (_rows(node), edges, pool)
        else:
            if node.op in ("call_module", "get_attr"):
                # constants made in forward are kept by the copy
                home = traced if node.target in vars(traced) else root
                parts[node.target] = layer if layer is not None else attrgetter(str(node.target))(home)
            continue
        node.kwargs = {}
    _look_up_degree_rows(graph, parts)
    _end_convolutions(graph, parts)
    return fx.GraphModule(parts, graph)


def _readout(node: fx.Node, layer: torch.nn.Module | None, batch: fx.Node) -> str | None:
    """The kind of readout that a call is, if it is one of ours."""
    if node.target is not scatter:
        return POOLS.get(type(layer)) if layer is not None and _takes(node, batch, "index") else None
    options: dict[str, Any] = {"dim": 0, "reduce": "sum", "dim_size": None, **node.kwargs}
    over_nodes = node.args[1:] == (batch,) and options["dim"] in (0, -2) and options["dim_size"] is None
    return POOLS.get(options["reduce"]) if over_nodes else None


def _rows(node: fx.Node) -> Any:
    """The first argument of a call."""
    return node.args[0] if node.args else node.kwargs["x"]


def _look_up_degree_rows(graph: fx.Graph, parts: dict[str, Any]) -> None:
    """Where the features go into one convolution, and its rows into another, make one layer of the two."""
    x, edges, _ = (node for node in graph.nodes if node.op == "placeholder")
    chain = [x]
    while (user := _only_user(chain[-1])) is not None and (len(chain) == 1 or _row_by_row(user, parts)):
        chain.append(user)
    first, *steps = chain[1:] or [x]
    if user is None or not _is_convolution(first, parts) or not _is_convolution(user, parts):
        return
    inside = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {first: inside.placeholder("rows")}
    for node in steps:
        copies[node] = inside.node_copy(node, copies.__getitem__)
    inside.output(copies[[first, *steps][-1]])
    inner = {str(node.target): parts[str(node.target)] for node in steps if node.op == "call_module"}
    called, between = [_called(node, parts) for node in steps], _Compiled(fx.GraphModule(inner, inside))
    name = "degree_rows"
    parts[name] = DegreeRows(parts[str(first.target)], between, called, parts[str(user.target)])
    with graph.inserting_before(user):
        both = graph.call_module(name, (x, edges))
    user.replace_all_uses_with(both)
    for node in (user, *reversed(steps), first):
        graph.erase_node(node)


def _end_convolutions(graph: fx.Graph, parts: dict[str, Any]) -> None:
    """A ReLU right behind a convolution, and a readout behind that, become its ending: nothing else reads its rows."""
    for node in list(graph.nodes):
        if not _is_convolution(node, parts):
            continue
        user = _only_user(node)
        if user is not None and is_relu(_called(user, parts)):
            node.update_kwarg("relu", True)
            user = _merged(graph, node, user)
        if user is not None and user.target is pooled and user.args[2] != "max":
            node.update_kwarg("pool", user.args[2])
            _merged(graph, node, user)


def _merged(graph: fx.Graph, node: fx.Node, user: fx.Node) -> fx.Node | None:
    """Let a call do the work of its only user; who uses it then."""
    user.replace_all_uses_with(node)
    graph.erase_node(user)
    return _only_user(node)


def _called(node: fx.Node, parts: dict[str, Any]) -> Any:
    """The function, the name of the method, or the module that a traced call calls."""
    return parts.get(str(node.target)) if node.op == "call_module" else node.target


def _only_rows_before_edges(graph: fx.GraphModule) -> bool:
    """Whether features reach nothing but convolutions, through nothing but calls that work row by row."""
    parts = dict(graph.named_modules())
    rows = [next(iter(graph.graph.nodes))]
    for node in rows:
        by_row = [user for user in node.users if _row_by_row(user, parts)]
        if not all(user in by_row or _is_convolution(user, parts) for user in node.users):
            return False
        rows += by_row
    return True


def _only_known_calls(graph: fx.GraphModule) -> bool:
    """Whether every call works row by row, or graph by graph in a way of our own; the parts that are called apart."""
    parts = dict(graph.named_modules())
    calls = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    return all(node.target is pooled or _is_convolution(node, parts) or _row_by_row(node, parts) for node in calls)


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_convolution(node: fx.Node, parts: dict[str, Any]) -> bool:
    return isinstance(_called(node, parts), DegreeRows | Convolution)


def _checked_convolution(node: fx.Node, layer: torch.nn.Module | None, edges: fx.Node) -> Convolution:
    """Edges may go into known layers, as their second argument, with nothing else beside the node features."""
    if not isinstance(layer, pyg.MessagePassing):
        used = type(layer).__name__ if layer is not None else getattr(node.target, "__name__", node.target)
        raise Untranslatable(f"it uses edge_index in {used}")
    reason = refusal(layer)
    if reason is None and not _takes(node, edges, "edge_index"):
        reason = f"{type(layer).__name__} is called with more than x and edge_index"
    if reason is not None:
        raise Untranslatable(f"layer {str(node.target).removeprefix('module.')}: {reason}")
    return CONVOLUTIONS[type(layer)](layer)


def _takes(node: fx.Node, second: fx.Node, name: str) -> bool:
    """Whether a call is ``f(x, second)`` by position or name, and whatever else it is given is ``None``."""
    rest = dict(node.kwargs)
    first = node.args[0] if node.args else rest.pop("x", None)
    other = node.args[1] if len(node.args) > 1 else rest.pop(name, None)
    return isinstance(first, fx.Node) and other is second and not any((*node.args[2:], *rest.values()))


def call_with_fields(module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
    """How to trace a model that takes one PyG ``Data``: it may read ``x``, ``edge_index`` and ``batch`` of it."""
    return module(SimpleNamespace(x=x, edge_index=edge_index, batch=batch))
