"""A Llama decoder in the layout that optimum and transformers.js export, made of plain operators.

=========================  =========================  ===========================================================
input                      shape                      meaning
=========================  =========================  ===========================================================
input_ids                  (B, T) int64               new tokens, left-padded
attention_mask             (B, P + T) int64           1 where there is a token, 0 at padding
position_ids               (B, T) int64               the place of each new token in its row's text
past_key_values.i.key      (B, KVH, P, D) float32     keys of layer i so far, rotated; ``.value`` likewise
num_logits_to_keep         () int64                   logits for the last N positions; 0 for all
=========================  =========================  ===========================================================

Outputs: ``logits`` (B, N, V); ``present.i.key|value`` (B, KVH, P + T, D); ``hidden_states.i`` (B, T, W) as in
``llm.onnx.graph``, which computes the same with other operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from arbitrag.llm.onnx.graph import Shape, Weights, _feed_forward, _float32, _Graph, _linear, _need

_OPSET = 18
_TO_END = np.iinfo(np.int64).max


def build(shape: Shape, weights: Weights) -> Any:
    """As ``llama_graph.build``, in float32."""
    from onnx import helper

    graph = _Graph("fp32")
    embedding = graph.matrix("embedding", _need(weights, "model.embed_tokens.weight"))
    hidden = graph.do("Gather", embedding, "input_ids", out="hidden_states.0")
    angles, bias = _rotary_tables(graph, shape), _attention_bias(graph)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        normal = _rms_norm(graph, hidden, weights, f"{prefix}.input_layernorm", shape)
        hidden = graph.do("Add", hidden, _attention(graph, normal, weights, layer, shape, angles, bias))
        normal = _rms_norm(graph, hidden, weights, f"{prefix}.post_attention_layernorm", shape)
        last = layer == shape.layers - 1
        inner = _feed_forward(graph, normal, weights, f"{prefix}.mlp", shape)
        hidden = graph.do("Add", hidden, inner, out="" if last else f"hidden_states.{layer + 1}")
    final = _rms_norm(graph, hidden, weights, "model.norm", shape, out=f"hidden_states.{shape.layers}")

    start = graph.do("Neg", graph.do("Reshape", "num_logits_to_keep", graph.whole(1)))  # -0 is the beginning: all
    kept = graph.do("Slice", final, start, graph.whole(_TO_END), graph.whole(1))
    head = weights("lm_head.weight")
    output = graph.do("Transpose", embedding, perm=[1, 0]) if head is None else graph.matrix("head", head.T)
    graph.do("MatMul", kept, output, out="logits")

    inputs, outputs = _signature(shape)
    proto = helper.make_graph(graph.nodes, "llama", inputs, outputs, graph.tensors)
    return helper.make_model(
        proto, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8, producer_name="arbitrag"
    )


def _rotary_tables(graph: _Graph, shape: Shape) -> tuple[str, str]:
    """Cosines and sines of the rotary embedding, (B, 1, T, D): both halves of a head turn by the same angles."""
    exponents = np.arange(0, shape.head_dim, 2, dtype=np.float32) / np.float32(shape.head_dim)
    speeds = (1.0 / np.float32(shape.rope_theta) ** exponents).astype(np.float32)
    positions = graph.do("Cast", graph.do("Unsqueeze", "position_ids", graph.whole(1, 3)), to=_float32())
    half = graph.do("Mul", positions, graph.constant(speeds, "rope_speeds"))
    angle = graph.do("Concat", half, half, axis=-1)
    return graph.do("Cos", angle), graph.do("Sin", angle)


def _attention_bias(graph: _Graph) -> str:
    """0 where a query may look and a large negative number elsewhere, (B, 1, 1, T, P + T).

    A query sees the slots up to its own that hold a token. A row of padding sees nothing and gets equal weights,
    which is harmless: nothing looks at it later.
    """
    past, slots = _size(graph, "past_key_values.0.key", 2), _size(graph, "attention_mask", 1)
    key_slots = graph.do("Range", graph.scalar(0), slots, graph.scalar(1))
    query_slots = graph.do("Range", past, slots, graph.scalar(1))
    causal = graph.do("LessOrEqual", key_slots, graph.do("Unsqueeze", query_slots, graph.whole(1)))
    real = graph.do("Greater", graph.do("Unsqueeze", "attention_mask", graph.whole(1, 2, 3)), graph.scalar(0))
    return graph.do("Where", graph.do("And", causal, real), _real(graph, 0.0), _real(graph, -1e9))


def _attention(
    graph: _Graph, x: str, weights: Weights, layer: int, shape: Shape, angles: tuple[str, str], bias: str
) -> str:
    heads, kv_heads, width = shape.heads, shape.kv_heads, shape.head_dim
    prefix = f"model.layers.{layer}.self_attn"
    joined = _linear(graph, x, weights, *(f"{prefix}.{part}_proj" for part in "qkv"))
    sizes = graph.whole(heads * width, kv_heads * width, kv_heads * width)
    parts = graph.do("Split", joined, sizes, outputs=3, axis=-1)
    query, key, value = (
        graph.do("Transpose", graph.do("Reshape", f"{parts}.{i}", graph.whole(0, 0, count, width)), perm=[0, 2, 1, 3])
        for i, count in enumerate((heads, kv_heads, kv_heads))
    )
    query, key = _turned(graph, query, angles, width), _turned(graph, key, angles, width)
    past = f"past_key_values.{layer}"
    key = graph.do("Concat", f"{past}.key", key, axis=2, out=f"present.{layer}.key")
    value = graph.do("Concat", f"{past}.value", value, axis=2, out=f"present.{layer}.value")

    # (B, KVH, G, T, D): G query heads share a key head, which is broadcast instead of copied.
    query = graph.do("Reshape", query, graph.whole(0, kv_heads, heads // kv_heads, -1, width))
    query = graph.do("Mul", query, _real(graph, width**-0.5))
    key, value = (graph.do("Unsqueeze", part, graph.whole(2)) for part in (key, value))
    scores = graph.do("MatMul", query, graph.do("Transpose", key, perm=[0, 1, 2, 4, 3]))
    attention = graph.do("Softmax", graph.do("Add", scores, bias), axis=-1)
    mixed = graph.do("Reshape", graph.do("MatMul", attention, value), graph.whole(0, heads, -1, width))
    flat = graph.do("Reshape", graph.do("Transpose", mixed, perm=[0, 2, 1, 3]), graph.whole(0, 0, heads * width))
    return _linear(graph, flat, weights, f"{prefix}.o_proj")


def _turned(graph: _Graph, x: str, angles: tuple[str, str], width: int) -> str:
    """Rotary position embedding: the two halves of a head are the two coordinates that turn."""
    halves = graph.do("Split", x, graph.whole(width // 2, width // 2), outputs=2, axis=-1)
    crossed = graph.do("Concat", graph.do("Neg", f"{halves}.1"), f"{halves}.0", axis=-1)
    return graph.do("Add", graph.do("Mul", x, angles[0]), graph.do("Mul", crossed, angles[1]))


def _rms_norm(graph: _Graph, x: str, weights: Weights, name: str, shape: Shape, out: str = "") -> str:
    """Root mean square normalisation over the width."""
    mean = graph.do("ReduceMean", graph.do("Pow", x, _real(graph, 2.0)), graph.whole(-1), keepdims=1)
    root = graph.do("Sqrt", graph.do("Add", mean, _real(graph, shape.norm_eps)))
    scale = graph.constant(_need(weights, f"{name}.weight"), f"{name}.weight")
    return graph.do("Mul", graph.do("Div", x, root), scale, out=out)


def _signature(shape: Shape) -> tuple[list[Any], list[Any]]:
    from onnx import TensorProto, helper

    def value(name: str, kind: int, *axes: str | int) -> Any:
        return helper.make_tensor_value_info(name, kind, list(axes))

    real, whole = TensorProto.FLOAT, TensorProto.INT64
    pairs = [(layer, part) for layer in range(shape.layers) for part in ("key", "value")]

    def cache(name: str, slots: str) -> list[Any]:
        heads, width = shape.kv_heads, shape.head_dim
        return [value(f"{name}.{layer}.{part}", real, "batch", heads, slots, width) for layer, part in pairs]

    inputs = [
        value("input_ids", whole, "batch", "new"),
        value("attention_mask", whole, "batch", "all"),
        value("position_ids", whole, "batch", "new"),
        *cache("past_key_values", "past"),
        value("num_logits_to_keep", whole),
    ]
    outputs = [
        value("logits", real, "batch", "kept", shape.vocabulary),
        *cache("present", "all"),
        *(value(f"hidden_states.{i}", real, "batch", "new", shape.hidden_size) for i in range(shape.layers + 1)),
    ]
    return inputs, outputs


def _real(graph: _Graph, value: float) -> str:
    return graph.constant(np.array(value, np.float32))


def _size(graph: _Graph, value: str, axis: int) -> str:
    """One dimension of a value, as a scalar."""
    return graph.do("Gather", graph.do("Shape", value), graph.scalar(axis))
