"""The ONNX graph of a Llama decoder for onnxruntime, whose KV cache is written in place and whose rows are ragged.

=========================  =========================  ===========================================================
input                      shape                      meaning
=========================  =========================  ===========================================================
input_ids                  (B, T) int64               new tokens; T = 1 or B = 1, or no past, right-padded
last_slots                 (B,) int32                 the slot of each row's last new token
longest                    () int32                   the largest of them + 1
past_key_values.i.key      (B, KVH, S, D) float32     room for S slots; filled from the left, rotated; ``.value``
num_logits_to_keep         () int64                   logits for the last N positions; 0 for all
=========================  =========================  ===========================================================

Outputs: ``logits`` (B, N, V); ``present.i.key|value``, which have to be bound to the memory of the past, so that only
the new slots are written; ``hidden_states.i`` (B, T, W) for i from 0 (the embedding) to the number of layers (after the
final normalisation), as transformers numbers them. ``context_tokens`` in the metadata is the context length.

Attention is onnxruntime's GroupQueryAttention, which attends to the filled slots of a row; after a past it takes
several tokens of one row, or one token of several rows. Its rotary embedding needs heads of certain widths: others are
padded with zeros. Matrices are stored as float32, as float16, or as int8 with a scale for every output (every token, in
the embedding); they are computed in float32, to which onnxruntime converts them once, when it opens the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

Precision = Literal["fp16", "fp32", "int8"]
Weights = Callable[[str], np.ndarray | None]

_OPSET = 18
_FUSED = "com.microsoft"  # onnxruntime's own operators
_HEAD_STEP = 16  # they rotate heads whose width is a multiple of this
_TO_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama decoder, in the names of its transformers configuration where there is room."""

    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocabulary: int
    context: int
    rope_theta: float
    norm_eps: float


@dataclass
class _Graph:
    """Nodes and constants so far; every method returns the name of a value."""

    precision: Precision
    nodes: list[NodeProto] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def do(self, operation: str, *inputs: str, out: str = "", outputs: int = 1, **attributes: Any) -> str:
        """Apply an ONNX operator; several outputs are named ``NAME.0``, ``NAME.1`` …"""
        from onnx import helper

        name = out or f"{operation.lower()}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}.{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operation, list(inputs), names, **attributes))
        return name

    def fused(self, operation: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Apply an operator of onnxruntime's; an empty name leaves an input or output out."""
        from onnx import helper

        self.nodes.append(helper.make_node(operation, inputs, outputs, domain=_FUSED, **attributes))

    def constant(self, value: np.ndarray, name: str = "") -> str:
        from onnx import numpy_helper

        key = name or f"{value.dtype}:{value.tolist()}"
        if key not in self.known:
            self.known[key] = name or f"constant_{len(self.known)}"
            self.tensors.append(numpy_helper.from_array(np.asarray(value, order="C"), self.known[key]))
        return self.known[key]

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        return self.constant(np.array(value, np.int64))

    def matrix(self, name: str, value: np.ndarray, inputs: int = 0) -> str:
        """A weight matrix in the file's precision, as float32 in the graph; ``inputs`` is the axis of its inputs."""
        if self.precision == "fp32":
            return self.constant(value.astype(np.float32), name)
        if self.precision == "fp16":
            stored = self.constant(value.astype(np.float16), f"{name}.fp16")
            return self.do("Cast", stored, to=_float32())
        steps, scale = quantized(value, inputs)
        whole = self.do("Cast", self.constant(steps, f"{name}.int8"), to=_float32())
        return self.do("Mul", whole, self.constant(scale, f"{name}.scale"))


def quantized(value: np.ndarray, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix quantized to int8, with a float32 scale for each output, whose largest weight is 127 steps."""
    scale = (np.abs(value).max(axis=inputs, keepdims=True) / 127).astype(np.float32)
    steps = np.rint(value / np.where(scale > 0, scale, 1))
    return steps.astype(np.int8), scale


def build(shape: Shape, weights: Weights, precision: Precision) -> ModelProto:
    """The graph of a network whose ``weights`` are asked for by their names in a transformers checkpoint.

    ``weights`` gives float32 arrays, None for a bias that does not exist, and for ``lm_head.weight`` when the output
    is tied to the embedding.
    """
    from onnx import helper

    graph = _Graph(precision)
    angles, scale = _rotary_tables(graph, shape), shape.head_dim**-0.5
    weights, shape = _padded_heads(weights, shape)
    embedding = graph.matrix("embedding", _need(weights, "model.embed_tokens.weight"), inputs=1)
    hidden = graph.do("Gather", embedding, "input_ids", out="hidden_states.0")
    normal = _rms_norm(graph, hidden, weights, shape)
    for layer in range(shape.layers):
        prefix, last = f"model.layers.{layer}", layer == shape.layers - 1
        mixed = _attention(graph, normal, weights, layer, shape, angles, scale)
        middle = f"{prefix}.middle"
        normal = _residual_norm(
            graph, hidden, mixed, weights, f"{prefix}.post_attention_layernorm", shape, total=middle
        )
        inner = _feed_forward(graph, normal, weights, f"{prefix}.mlp", shape)
        hidden = f"hidden_states.{layer + 1}"
        if last:
            normal = _residual_norm(graph, middle, inner, weights, "model.norm", shape, out=hidden)
        else:
            following = f"model.layers.{layer + 1}.input_layernorm"
            normal = _residual_norm(graph, middle, inner, weights, following, shape, total=hidden)

    start = graph.do("Neg", graph.do("Reshape", "num_logits_to_keep", graph.whole(1)))  # -0 is the beginning: all
    kept = graph.do("Slice", normal, start, graph.whole(_TO_END), graph.whole(1))
    head = weights("lm_head.weight")
    output = graph.do("Transpose", embedding, perm=[1, 0]) if head is None else graph.matrix("head", head.T)
    graph.do("MatMul", kept, output, out="logits")

    inputs, outputs = _signature(shape)
    proto = helper.make_graph(graph.nodes, "llama", inputs, outputs, graph.tensors)
    operators = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_FUSED, 1)]
    model = helper.make_model(proto, opset_imports=operators, ir_version=8, producer_name="arbitrag")
    helper.set_model_props(model, {"context_tokens": str(shape.context)})
    return model


def _padded_heads(weights: Weights, shape: Shape) -> tuple[Weights, Shape]:
    """The same network with each half of a head padded with zeros, to a width that the rotary embedding supports."""
    half, wide = shape.head_dim // 2, _padded_width(shape.head_dim)

    def widened(value: np.ndarray) -> np.ndarray:
        halves = value.reshape(-1, half, *value.shape[1:])
        filled = np.pad(halves, [(0, 0), (0, wide // 2 - half), *[(0, 0)] * (value.ndim - 1)])
        return filled.reshape(-1, *value.shape[1:])

    def weight(name: str) -> np.ndarray | None:
        value = weights(name)
        if value is None:
            return None
        if name.endswith("o_proj.weight"):
            return widened(value.T).T
        return widened(value) if "self_attn" in name and "o_proj" not in name else value

    return weight, replace(shape, head_dim=wide)


def _padded_width(width: int) -> int:
    return -(-width // _HEAD_STEP) * _HEAD_STEP


def _rotary_tables(graph: _Graph, shape: Shape) -> tuple[str, str]:
    """Cosines and sines of the rotary embedding, (context, D / 2), computed when onnxruntime opens the file."""
    exponents = np.arange(0, shape.head_dim, 2, dtype=np.float32) / np.float32(shape.head_dim)
    speeds = (1.0 / np.float32(shape.rope_theta) ** exponents).astype(np.float32)
    speeds = np.pad(speeds, (0, (_padded_width(shape.head_dim) - shape.head_dim) // 2))
    places = graph.do("Range", graph.scalar(0), graph.scalar(shape.context), graph.scalar(1))
    column = graph.do("Unsqueeze", graph.do("Cast", places, to=_float32()), graph.whole(1))
    angle = graph.do("Mul", column, graph.constant(speeds, "rope_speeds"))
    return graph.do("Cos", angle), graph.do("Sin", angle)


def _attention(
    graph: _Graph, x: str, weights: Weights, layer: int, shape: Shape, angles: tuple[str, str], scale: float
) -> str:
    prefix = f"model.layers.{layer}.self_attn"
    joined = _linear(graph, x, weights, *(f"{prefix}.{part}_proj" for part in "qkv"))
    past, present, mixed = f"past_key_values.{layer}", f"present.{layer}", f"{prefix}.mixed"
    graph.fused(
        "GroupQueryAttention",
        [joined, "", "", f"{past}.key", f"{past}.value", "last_slots", "longest", *angles],
        [mixed, f"{present}.key", f"{present}.value"],
        num_heads=shape.heads,
        kv_num_heads=shape.kv_heads,
        do_rotary=1,
        scale=scale,
    )
    return _linear(graph, mixed, weights, f"{prefix}.o_proj")


def _feed_forward(graph: _Graph, x: str, weights: Weights, prefix: str, shape: Shape) -> str:
    """down(silu(gate(x)) * up(x))"""
    joined = _linear(graph, x, weights, f"{prefix}.gate_proj", f"{prefix}.up_proj")
    parts = graph.do("Split", joined, graph.whole(shape.intermediate_size, shape.intermediate_size), outputs=2, axis=-1)
    gate = graph.do("Mul", f"{parts}.0", graph.do("Sigmoid", f"{parts}.0"))
    return _linear(graph, graph.do("Mul", gate, f"{parts}.1"), weights, f"{prefix}.down_proj")


def _linear(graph: _Graph, x: str, weights: Weights, *names: str) -> str:
    """``x`` times one or several matrices side by side, plus their biases where they have some."""
    matrices = [_need(weights, f"{name}.weight") for name in names]
    out = graph.do("MatMul", x, graph.matrix("|".join(names), np.concatenate(matrices).T))
    biases = [weights(f"{name}.bias") for name in names]
    if all(bias is None for bias in biases):
        return out
    zeros = [np.zeros(len(matrix), np.float32) for matrix in matrices]
    whole = [zero if bias is None else bias for bias, zero in zip(biases, zeros, strict=True)]
    return graph.do("Add", out, graph.constant(np.concatenate(whole), f"{'|'.join(names)}.bias"))


def _rms_norm(graph: _Graph, x: str, weights: Weights, shape: Shape) -> str:
    """Root mean square normalisation over the width, before the first layer."""
    name = "model.layers.0.input_layernorm.weight"
    scale = graph.constant(_need(weights, name), name)
    return graph.do("SimplifiedLayerNormalization", x, scale, epsilon=shape.norm_eps, axis=-1)


def _residual_norm(
    graph: _Graph, x: str, more: str, weights: Weights, name: str, shape: Shape, *, out: str = "", total: str = ""
) -> str:
    """The normalised sum of two values, called ``out``; the sum itself is called ``total``."""
    scale = graph.constant(_need(weights, f"{name}.weight"), f"{name}.weight")
    normal = out or f"{name}.out"
    outputs = [normal, "", "", total] if total else [normal]
    graph.fused("SkipSimplifiedLayerNormalization", [x, more, scale], outputs, epsilon=shape.norm_eps)
    return normal


def _signature(shape: Shape) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    from onnx import TensorProto, helper

    def value(name: str, kind: int, *axes: str | int) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, list(axes))

    real, whole = TensorProto.FLOAT, TensorProto.INT64
    pairs = [(layer, part) for layer in range(shape.layers) for part in ("key", "value")]

    def cache(name: str) -> list[ValueInfoProto]:
        heads, width = shape.kv_heads, shape.head_dim
        return [value(f"{name}.{layer}.{part}", real, "batch", heads, "room", width) for layer, part in pairs]

    inputs = [
        value("input_ids", whole, "batch", "new"),
        value("last_slots", TensorProto.INT32, "batch"),
        value("longest", TensorProto.INT32),
        *cache("past_key_values"),
        value("num_logits_to_keep", whole),
    ]
    outputs = [
        value("logits", real, "batch", "kept", shape.vocabulary),
        *cache("present"),
        *(value(f"hidden_states.{i}", real, "batch", "new", shape.hidden_size) for i in range(shape.layers + 1)),
    ]
    return inputs, outputs


def _need(weights: Weights, name: str) -> np.ndarray:
    found = weights(name)
    if found is None:
        raise KeyError(name)
    return found


def _float32() -> int:
    from onnx import TensorProto

    return int(TensorProto.FLOAT)
