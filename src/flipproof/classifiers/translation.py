"""The dense twin of a PyG model: the same module, its convolutions and readouts replaced by matrix products.

The module's ``forward`` is traced once with torch.fx. Everything between convolutions is kept as it is, since nodes keep PyG's
layout; see :mod:`flipproof.classifiers.layers`. What cannot be traced, or uses the edges in another way than in a known layer,
is not translated; the caller then uses the module itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, fx

from flipproof.classifiers.edges import Edges
from flipproof.classifiers.layers import (
    BY_GRAPH,
    CONVOLUTIONS,
    POOL_ENDINGS,
    POOLS,
    DegreeRows,
    DenseLayer,
    is_relu,
    refusal,
)

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
    """Why a module has no dense twin, in a few words."""


class DenseTwin(torch.nn.Module):
    """A PyG model for graphs of the same nodes: its weights and logits, on matrices or lists of neighbours.

    Args:
        module: The model.
        call: How the model is called: with itself and ``(x, edge_index, batch)``.
    """

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        graph = _translated(module, call)
        *_, batch = (node for node in graph.graph.nodes if node.op == "placeholder")
        self._wants_owner = bool(batch.users)
        self._stays_shared = _only_rows_before_edges(graph)
        self._known_calls = _only_known_calls(graph)
        self._graph = _Compiled(graph)
        self._by_degree = [part for part in self._graph.modules() if isinstance(part, DegreeRows)]

    def forward(self, x: Tensor, edges: Edges | Tensor) -> Any:
        """The logits for features ``[B, n, d]``; edges may be matrices ``[B, n, n]``, also weighted ones."""
        edges = Edges(edges) if isinstance(edges, Tensor) else edges
        return self._graph(x.flatten(0, 1), edges, self._owner(edges))

    def on_shared(self, x: Tensor, edges: Edges) -> Any:
        """As :meth:`forward`, for features ``[n, d]`` that all graphs of the batch share; not for gradients."""
        rows = x if self._stays_shared else x.repeat(edges.copies, 1)
        return self._graph(rows, edges, self._owner(edges))

    def on_degrees(self, edges: Edges) -> Any:
        """As :meth:`forward`, where the degree is the only feature; not for gradients, nor for weighted edges."""
        exact = edges.dtype in (torch.float32, torch.float64)
        return self._graph(
            None if self._by_degree and exact else edges.degrees.flatten(0, 1), edges, self._owner(edges)
        )

    def graph_by_graph(self) -> bool:
        """Whether the code shows that a graph's logits are made from the rows of this graph alone: all its parts are known."""
        return self._known_calls and all(_is_known(part) for part in self._graph.modules())

    def forget(self) -> None:
        """Forget what was computed from weights that may have changed."""
        for part in self._by_degree:
            part.forget()

    def _owner(self, edges: Edges) -> Tensor | None:
        """The graph of every node."""
        if not self._wants_owner:
            return None
        return torch.arange(edges.copies, device=edges.device).repeat_interleave(edges.num_nodes)


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
    *BY_GRAPH,
    pyg.Linear,
    torch.nn.Module,  # holds others
    torch.nn.ModuleList,
    torch.nn.Sequential,
    DegreeRows,
    DenseLayer,
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
    """Goes into a module only where edges or the graphs' membership go."""

    def call_module(
        self, m: torch.nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        nodes = {id(value.node) for value in (*args, *kwargs.values()) if isinstance(value, fx.Proxy)}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        reached = any(id(node) in nodes for node in inputs[1:])
        if not reached and not any(isinstance(part, pyg.MessagePassing) for part in m.modules()):
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)
        return super().call_module(m, forward, args, kwargs)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, pyg.MessagePassing):
            return True
        messages = any(isinstance(part, pyg.MessagePassing) for part in m.modules())
        return super().is_leaf_module(m, module_qualified_name) or (_is_pyg(type(m)) and not messages)


def _translated(module: torch.nn.Module, call: Callable[..., Any]) -> fx.GraphModule:
    root = _Root(module, call)
    with _whole_functions(module):
        try:
            # a forward that keeps something of its input must not do so in the user's module: a copy of it, without its tensors
            tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
            traced = _Root(deepcopy(module, tensors), call).eval()
            graph = _Tracer().trace(traced)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            raise Untranslatable(f"its forward cannot be traced ({type(error).__name__}: {reason})") from error
    _, edges, batch = (node for node in graph.nodes if node.op == "placeholder")
    parts: dict[str, Any] = {}
    for node in list(graph.nodes):
        layer = root.get_submodule(node.target) if node.op == "call_module" else None
        if edges in node.all_input_nodes:
            _refuse_edges(node, layer, edges)
        elif not (
            any(_takes(node, batch, name) for name in ("batch", "index"))
            and (node.target in POOLS or type(layer) in BY_GRAPH)
        ):
            if node.op in ("call_module", "get_attr"):
                # constants made in forward are kept by the copy
                home = traced if node.target in vars(traced) else root
                parts[node.target] = layer if layer is not None else attrgetter(str(node.target))(home)
            continue
        rows = node.args[0] if node.args else node.kwargs["x"]
        node.args, node.kwargs = (rows, edges), {}
        if layer is None:
            node.target = POOLS[node.target]
        else:
            parts[node.target] = DenseLayer(layer)
    _look_up_degree_rows(graph, parts)
    _end_convolutions(graph, parts)
    return fx.GraphModule(parts, graph)


def _look_up_degree_rows(graph: fx.Graph, parts: dict[str, Any]) -> None:
    """Where the features go into one convolution, and its rows into another, make one layer of the two."""
    x, edges, _ = (node for node in graph.nodes if node.op == "placeholder")
    first = _only_user(x)
    if first is None or not _is_convolution(first, parts):
        return
    steps: list[fx.Node] = []
    second = _only_user(first)
    while second is not None and _row_by_row(second, parts):
        steps.append(second)
        second = _only_user(second)
    if second is None or not _is_convolution(second, parts):
        return
    chain = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {first: chain.placeholder("rows")}
    for node in steps:
        copies[node] = chain.node_copy(node, copies.__getitem__)
    chain.output(copies[[first, *steps][-1]])
    called = [_called(node, parts) for node in steps]
    inner = {str(node.target): parts[str(node.target)] for node in steps if node.op == "call_module"}
    between = _Compiled(fx.GraphModule(inner, chain))
    name = "degree_rows"
    parts[name] = DegreeRows(parts[str(first.target)], between, called, parts[str(second.target)])
    with graph.inserting_before(second):
        both = graph.call_module(name, (x, edges))
    second.replace_all_uses_with(both)
    for node in (second, *reversed(steps), first):
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
        if user is not None and user.op == "call_function" and user.target in POOL_ENDINGS:
            node.update_kwarg("pool", POOL_ENDINGS[user.target])
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
    x, *_ = graph.graph.nodes
    rows = [x]
    for node in rows:
        for user in node.users:
            if _row_by_row(user, parts):
                rows.append(user)
            elif not _is_convolution(user, parts):
                return False
    return True


def _only_known_calls(graph: fx.GraphModule) -> bool:
    """Whether every call works row by row, or graph by graph in a way of our own; the parts that are called apart."""
    parts = dict(graph.named_modules())
    return all(
        node.op in ("placeholder", "output")
        or isinstance(_called(node, parts), DegreeRows | DenseLayer)
        or node.target in POOLS.values()
        or _row_by_row(node, parts)
        for node in graph.graph.nodes
    )


def _is_known(part: torch.nn.Module) -> bool:
    """Whether a part works row by row or graph by graph, as it was made by torch, by PyG or here."""
    altered = any(name == "forward" or ("hooks" in name and held) for name, held in vars(part).items())
    return type(part) in _KNOWN and not altered


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_convolution(node: fx.Node, parts: dict[str, Any]) -> bool:
    part = _called(node, parts)
    return isinstance(part, DegreeRows) or (isinstance(part, DenseLayer) and part.convolution is not None)


def _refuse_edges(node: fx.Node, layer: torch.nn.Module | None, edges: fx.Node) -> None:
    """Edges may go into known layers, as their second argument, with nothing else beside the node features."""
    if not isinstance(layer, pyg.MessagePassing):
        used = type(layer).__name__ if layer is not None else getattr(node.target, "__name__", node.target)
        raise Untranslatable(f"it uses edge_index in {used}")
    name = str(node.target).removeprefix("module.")
    reason = refusal(layer)
    if reason is not None:
        raise Untranslatable(f"layer {name}: {reason}")
    if not _takes(node, edges, "edge_index"):
        raise Untranslatable(f"layer {name}: {type(layer).__name__} is called with more than x and edge_index")


def _takes(node: fx.Node, second: fx.Node, name: str) -> bool:
    """Whether a call is ``f(x, second)`` by position or name, and whatever else it is given is ``None``."""
    rest = dict(node.kwargs)
    first = node.args[0] if node.args else rest.pop("x", None)
    other = node.args[1] if len(node.args) > 1 else rest.pop(name, None)
    return isinstance(first, fx.Node) and other is second and not any((*node.args[2:], *rest.values()))


def _is_pyg(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("torch_geometric.")


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or, given a traced value, one call of it in the traced graph."""

    def call(*args: Any, **kwargs: Any) -> Any:
        traced = next((value for value in (*args, *kwargs.values()) if isinstance(value, fx.Proxy)), None)
        if traced is None:
            return function(*args, **kwargs)
        return traced.tracer.create_proxy("call_function", function, args, kwargs)

    return call


@contextmanager
def _whole_functions(module: torch.nn.Module) -> Iterator[None]:
    """While it lasts, PyG's functions are traced as one call each, wherever the module's code may look for them."""
    with ExitStack() as stack:
        # aggregations look at their input's shape before they are called like other modules
        stack.callback(setattr, pyg.aggr.Aggregation, "__call__", pyg.aggr.Aggregation.__call__)
        pyg.aggr.Aggregation.__call__ = lambda part, *args, **kwargs: torch.nn.Module.__call__(part, *args, **kwargs)
        for names in _namespaces(module):
            for name, value in list(names.items()):
                if isinstance(value, FunctionType) and _is_pyg(value):
                    names[name] = _whole(value)
                    stack.callback(names.__setitem__, name, value)
        yield


def _namespaces(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Where the names in the code of the module, and of the functions beside it, are looked up."""
    homes = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    homes = {home for home in homes if not home.startswith(("torch.", "builtins"))}
    for home in homes & sys.modules.keys():
        homes |= {value.__module__ for value in vars(sys.modules[home]).values() if isinstance(value, FunctionType)}
    homes |= {"torch_geometric.nn", "torch_geometric.utils"}
    return [vars(sys.modules[home]) for home in sorted(homes) if home in sys.modules]


def call_with_fields(module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
    """How to trace a model that takes one PyG ``Data``: it may read ``x``, ``edge_index`` and ``batch`` of it."""
    return module(SimpleNamespace(x=x, edge_index=edge_index, batch=batch))
