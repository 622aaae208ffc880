"""The ``onnx:`` backend: decoder-only models on onnxruntime, without torch."""
