"""Keep a trace, and decide again under other thresholds without asking the model."""

import tempfile
from pathlib import Path

import arbitrag
from arbitrag.lab.model import demo_cases
from arbitrag.replay import load_trace, replay, save_trace

case = demo_cases()[2]  # a planted passage contradicts what the model knows
verdict = arbitrag.ask(case.question, "trustmargin", llm="lab", passages=case.passages)

with tempfile.TemporaryDirectory() as folder:
    save_trace(verdict.trace, Path(folder, "trace.json"))
    trace = load_trace(Path(folder, "trace.json"))

for threshold in ("-1.5", "-30"):
    again = replay(trace, {"threshold": threshold})
    print(f"threshold {threshold}: {again.answer} ({again.strategy.value}), {again.usage.calls} model calls")
