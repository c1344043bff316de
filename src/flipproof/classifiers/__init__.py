"""How a batch of noisy graphs meets a model: dense torch, PyG message passing, any callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flipproof.classifiers.classifier import DEFAULT_MEMORY, Classifier
from flipproof.errors import InputError

if TYPE_CHECKING:
    from flipproof.classifiers.features import NodeFeatures
    from flipproof.noise import FeatureNoise

__all__ = ["DEFAULT_MEMORY", "Classifier", "as_classifier", "is_torch_module", "unwrapped"]


def as_classifier(
    model: Any,
    *,
    num_classes: int,
    features: Any = None,
    convention: str | None = None,
    memory: int = DEFAULT_MEMORY,
    edge_features: Any = None,
    feature_noise: FeatureNoise | None = None,
) -> Classifier:
    """The adapter for a model: a torch module in one of three conventions, or a callable from graphs to labels.

    Args:
        model: The base classifier.
        num_classes: Declared classes.
        features: Node features computed on every noisy graph, see :func:`flipproof.classifiers.features.as_features`; by default
            the graph's own, or the degree of graphs that have none.
        convention: ``pyg``, ``dense``, ``data`` or ``nodes`` for a torch module; inferred from its ``forward`` by default.
        memory: Bytes that noisy copies and the model's work on them may take at once.
        edge_features: Makes the ``edge_attr`` of a PyG module from the features of the two ends of every edge.
        feature_noise: Noise on the graph's own features.
    """
    if edge_features is not None and not callable(edge_features):
        raise InputError(
            f"edge_features must be a function of the features of the two ends of every edge; got {edge_features!r} (for "
            "instance lambda u, v: u * v)"
        )
    model = unwrapped(model)
    if isinstance(model, Classifier):
        if model.num_classes != num_classes:
            raise InputError(
                f"num_classes must be the classifier's own, {model.num_classes}; got {num_classes} (leave it out)"
            )
        if model.feature_noise != feature_noise:
            raise InputError(
                f"feature_noise must be the classifier's own, {model.feature_noise}; got {feature_noise} (pass the model itself)"
            )
        return model
    if not is_torch_module(model):
        function = getattr(model, "predict", model)
        if not callable(function) or isinstance(model, type):
            raise InputError(
                f"model must be a torch module, or a callable from a list of graphs to labels; got {model!r} "
                "(pass an instance, not a class)"
            )
        from flipproof.classifiers.classifier import BlackBoxClassifier

        hook = _hook(features)
        return BlackBoxClassifier(
            function, num_classes=num_classes, features=hook, memory=memory, feature_noise=feature_noise
        )

    from flipproof.classifiers.features import Own, OwnOrDegree
    from flipproof.classifiers.torch_module import CONVENTIONS, DenseClassifier, convention_of

    if convention is None:
        convention = convention_of(model, extra=() if edge_features is None else ("edge_attr", "edge_weight"))
    if convention not in CONVENTIONS:
        raise InputError(f"convention must be one of {', '.join(CONVENTIONS)}; got {convention!r} (or leave it out)")
    hook = _hook(features) or (Own() if getattr(model, "edge_blind", False) else OwnOrDegree())
    if edge_features is not None and convention == "dense":
        raise InputError(
            "edge_features are for PyG modules; got a dense one (compute them in forward, or leave them out)"
        )
    settings: dict[str, Any] = {"num_classes": num_classes, "features": hook, "memory": memory}
    settings["feature_noise"] = feature_noise
    if convention == "nodes":
        from flipproof.classifiers.node_model import NodeClassifier

        return NodeClassifier(model, **settings)
    if convention == "dense" and not hasattr(model, "as_pyg"):
        return DenseClassifier(model, **settings)
    from flipproof.classifiers.shortcuts import TranslatedClassifier, TranslatedDenseClassifier  # PyG takes a while

    if convention == "dense":
        return TranslatedDenseClassifier(model, **settings)

    return TranslatedClassifier(model, as_data=convention == "data", edge_features=edge_features, **settings)


def is_torch_module(model: Any) -> bool:
    """Whether the model is a torch module; torch itself is not imported, since a black box does not need it."""
    return any(
        (base.__module__, base.__name__) == ("torch.nn.modules.module", "Module") for base in type(model).__mro__
    )


def unwrapped(model: Any) -> Any:
    """The module inside ``torch.compile`` and ``DataParallel``: the same weights, called as they were written."""
    while is_torch_module(model):
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif type(model).__name__ in ("DataParallel", "DistributedDataParallel"):
            model = model.module
        else:
            break
    return model


def _hook(features: Any) -> NodeFeatures | None:
    """The features hook; ``None`` stays, so that a black box without one needs no torch."""
    if features is None:
        return None
    from flipproof.classifiers.features import as_features

    return as_features(features)
