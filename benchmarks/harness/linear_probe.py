"""Small probes in numpy: does a hidden state tell whether the answer to come is right?

Two kinds of features: the state itself, and what the state says when it is read through the output head (logit lens):
its eight largest log-probabilities, their entropy and the margin of the first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

TOP = 8


def output_head(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The weight of the last normalisation (width,) and the output matrix (vocabulary, width) of a checkpoint."""
    if (folder / "model.safetensors").is_file():
        from safetensors.numpy import load_file

        weights = load_file(folder / "model.safetensors")
        return weights["model.norm.weight"], weights["model.embed_tokens.weight"]
    import onnx
    from onnx import numpy_helper

    tensors = onnx.load(str(folder / "model.onnx")).graph.initializer
    found = {tensor.name: numpy_helper.to_array(tensor).astype(np.float32) for tensor in tensors}
    norm = next(value for name, value in found.items() if name.startswith("model.norm"))
    head = next(found[name] for kind in ("", ".fp16", ".int8") if (name := f"embedding{kind}") in found)
    return norm, head * found.get("embedding.scale", np.float32(1))


def lens(states: np.ndarray, norm: np.ndarray | None, head: np.ndarray) -> np.ndarray:
    """Features (n, TOP + 2) of states (n, width); ``norm`` is None where they are normalised already."""
    if norm is not None:
        states = states / np.sqrt((states**2).mean(1, keepdims=True) + 1e-5) * norm
    logits = states @ head.T
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    largest = -np.sort(-logprobs, axis=1)[:, :TOP]
    entropy = -(np.exp(logprobs) * logprobs).sum(1)
    return np.column_stack([largest, entropy, largest[:, 0] - largest[:, 1]])


def logistic(train: np.ndarray, labels: np.ndarray, test: np.ndarray, *, ridge: float = 10.0) -> np.ndarray:
    """Scores (m,) of a logistic regression fitted by Newton's method on standardised features."""
    train, test = _standardised(train, test)
    train = np.column_stack([train, np.ones(len(train))])
    weights = np.zeros(train.shape[1])
    penalty = np.full(train.shape[1], ridge)
    penalty[-1] = 1e-6
    for _ in range(12):
        p = 1 / (1 + np.exp(-np.clip(train @ weights, -30, 30)))
        gradient = train.T @ (p - labels) + penalty * weights
        curvature = (train * (p * (1 - p) + 1e-6)[:, None]).T @ train + np.diag(penalty)
        weights -= np.linalg.solve(curvature, gradient)
    scores: np.ndarray = np.column_stack([test, np.ones(len(test))]) @ weights
    return scores


def mlp(train: np.ndarray, labels: np.ndarray, test: np.ndarray, *, seed: int, hidden: int = 32) -> np.ndarray:
    """Scores (m,) of a network with one hidden layer, 200 full-batch steps of Adam with weight decay."""
    train, test = _standardised(train, test)
    rng = np.random.default_rng(seed)
    width = train.shape[1]
    weights = [
        rng.normal(0, width**-0.5, (width, hidden)),
        np.zeros(hidden),
        rng.normal(0, hidden**-0.5, (hidden, 1)),
        np.zeros(1),
    ]
    first, second = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    for step in range(1, 201):
        inner = np.maximum(train @ weights[0] + weights[1], 0)
        p = 1 / (1 + np.exp(-np.clip(inner @ weights[2] + weights[3], -30, 30)))
        error = (p - labels[:, None]) / len(labels)
        back = (error @ weights[2].T) * (inner > 0)
        gradients = [train.T @ back, back.sum(0), inner.T @ error, error.sum(0)]
        for weight, gradient, mean, square in zip(weights, gradients, first, second, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            change = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
            weight -= 0.01 * (change + 0.1 * weight)
    scores: np.ndarray = (np.maximum(test @ weights[0] + weights[1], 0) @ weights[2])[:, 0]
    return scores


def _standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, spread = train.mean(0), train.std(0) + 1e-6
    return (train - mean) / spread, (test - mean) / spread
