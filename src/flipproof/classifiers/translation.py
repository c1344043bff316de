"""The compiled twin of a PyG model: the same module, its convolutions and readouts replaced by loops over lists of neighbours.

The module's ``forward`` is traced once with torch.fx. Everything between convolutions is kept as it is, since nodes keep PyG's
layout; see :mod:`flipproof.classifiers.layers`. What cannot be traced, or uses the edges in another way than in a known layer,
is not translated: the model itself is asked then.
"""

from __future__ import annotations

import re
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
from flipproof.classifiers.layers import (
    CONVOLUTIONS,
    POOLS,
    Convolution,
    DegreeRows,
    is_relu,
    pooled,
    refusal,
)
from flipproof.classifiers.shortcuts import Shortcut
from flipproof.classifiers.torch_module import MessagePassingClassifier
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, NoisyBatch

_AT_ONCE = 16  # samples of a graph that are held against the model's own answers in one call
_FEW_NODES = 64  # beyond, one at a time: the model takes more memory than its twin
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
        self._stays_shared = _only_rows_before_edges(graph)
        self._known_calls = _only_known_calls(graph)
        self._graph = _Compiled(graph)
        self.by_degree = [part for part in self._graph.modules() if isinstance(part, DegreeRows)]

    def forward(self, x: Tensor | None, lists: NeighbourLists) -> Any:
        """The logits for rows ``[B * n, d]``, or ``[n, d]`` that all graphs share; ``None`` for the degree alone."""
        if x is None and not self.by_degree:
            x = lists.degrees
        if x is not None and len(x) == lists.num_nodes and not self._stays_shared:
            x = x.repeat(lists.copies, 1)
        owner = torch.arange(lists.copies).repeat_interleave(lists.num_nodes) if self._wants_owner else None
        return self._graph(x, lists, owner)

    def graph_by_graph(self) -> bool:
        """Whether the code shows that a graph's logits are made from the rows of this graph alone: all its parts are known."""
        return self._known_calls and all(_is_known(part) for part in self._graph.modules())

    def forget(self) -> None:
        """Forget what was computed from weights that may have changed."""
        for part in self.by_degree:
            part.forget()


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
        from_pyg = type(m).__module__.startswith("torch_geometric.")
        return super().is_leaf_module(m, module_qualified_name) or (from_pyg and not messages)


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
            checked = _refuse_edges(node, layer, edges)
            parts[node.target] = CONVOLUTIONS[type(checked)](checked)
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
        or _is_convolution(node, parts)
        or node.target is pooled
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
    return isinstance(_called(node, parts), DegreeRows | Convolution)


def _refuse_edges(node: fx.Node, layer: torch.nn.Module | None, edges: fx.Node) -> torch.nn.Module:
    """Edges may go into known layers, as their second argument, with nothing else beside the node features."""
    if not isinstance(layer, pyg.MessagePassing):
        used = type(layer).__name__ if layer is not None else getattr(node.target, "__name__", node.target)
        raise Untranslatable(f"it uses edge_index in {used}")
    reason = refusal(layer)
    if reason is None and not _takes(node, edges, "edge_index"):
        reason = f"{type(layer).__name__} is called with more than x and edge_index"
    if reason is not None:
        raise Untranslatable(f"layer {str(node.target).removeprefix('module.')}: {reason}")
    checked: torch.nn.Module = layer
    return checked


def _takes(node: fx.Node, second: fx.Node, name: str) -> bool:
    """Whether a call is ``f(x, second)`` by position or name, and whatever else it is given is ``None``."""
    rest = dict(node.kwargs)
    first = node.args[0] if node.args else rest.pop("x", None)
    other = node.args[1] if len(node.args) > 1 else rest.pop(name, None)
    return isinstance(first, fx.Node) and other is second and not any((*node.args[2:], *rest.values()))


def call_with_fields(module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
    """How to trace a model that takes one PyG ``Data``: it may read ``x``, ``edge_index`` and ``batch`` of it."""
    return module(SimpleNamespace(x=x, edge_index=edge_index, batch=batch))


class TranslatedClassifier(MessagePassingClassifier):
    """A PyG model, with its compiled twin for graphs on which that is faster."""

    _state: tuple[Any, ...] = ()
    _twin: _TwinClassifier | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_twin"} | {"_state": ()}

    def begin(self) -> None:
        super().begin()
        if self.shortcuts:
            self._translate()
            if self._twin is not None:
                self._twin.begin()

    def shortcut(self, graph: Graph, noise: EdgeNoise) -> Shortcut | None:
        self._translate()
        return self._twin if self._twin is not None and self._twin.suits(graph, noise) else None

    def _translate(self) -> None:
        """Make the twin, again if the module has changed in a way that the twin does not follow by itself.

        Tracing stands no other call of a module at the same time: a defence asks for every graph's way before it asks the model.
        """
        state = _state_of(self.module)
        if state == self._state:
            return
        if self._state:  # a copy in a worker has none, and keeps to what was decided
            self._agreed.clear()
        self._state, self._twin, self.remark = state, None, ""
        if getattr(self.module, "dense_twin", True) is False:
            self.remark = "the model declines a twin"
            return
        try:
            twin = Twin(self.module, call_with_fields if self._as_data else self._call_with_batch)
        except Exception as error:  # whatever a user's module makes of being traced, it works as it is
            what = "" if isinstance(error, Untranslatable) else f"{type(error).__name__}: "
            reason = f"no twin: {what}{next(iter(str(error).splitlines()), '')}"
            self.remark = re.sub("0x[0-9a-f]+", "0x...", reason)  # the same in every process
            return
        self._twin = _TwinClassifier(twin, self)


class _TwinClassifier(Shortcut):
    path = "compiled twin"
    module: Twin
    original: TranslatedClassifier
    _at_once: bool | None = None  # once it was asked: see known

    def known(self) -> bool:
        return self.features.spec is not None and self.module.graph_by_graph()

    def prepare(self) -> None:
        self.original.prepare()
        self.device, self.dtype = self.original.device, self.original.dtype
        self.unit_roundoff = self.original.unit_roundoff

    def begin(self) -> None:
        super().begin()
        self.module.forget()
        self._at_once = None

    def take_double(self) -> None:
        self.original.module.double()
        self.module.forget()
        super().take_double()

    def logits(self, batch: NoisyBatch) -> Tensor:
        own, rows = self.own_features(batch), None
        if own is not None and own.ndim == 3:
            rows = self.original.inputs(batch)[0]
        elif (shared := self.features.shared(batch.num_nodes, own)) is not None:
            rows = self.as_number(shared)
        elif not self.features.only_degree(own):
            rows = self.original.inputs(batch)[0]
        result: Tensor = self.module(rows, NeighbourLists(batch, self.dtype))
        return result

    def recheck_count(self, graph: Graph, start: int) -> int:
        # the twin takes graphs one by one, so that the samples of all blocks can be compared with the model at once
        if self._at_once is None:
            self._at_once = self.known()
        few = graph.num_nodes > _FEW_NODES or not self._at_once
        return super().recheck_count(graph, start) if few else _AT_ONCE * (start == 0)


def _state_of(module: torch.nn.Module) -> tuple[Any, ...]:
    """What the traced twin holds fixed: which parts and tensors there are, and plain attributes of the parts."""
    state: list[Any] = []
    for part in module.modules():
        state.append(id(part))
        state += [value for value in vars(part).values() if type(value) in (bool, int, float, str)]
        state += [id(tensor) for tensor in (*part._parameters.values(), *part._buffers.values())]
    return tuple(state)
