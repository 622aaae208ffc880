"""Ask one question of the embedded model and its world, and see why it was answered so."""

import arbitrag

verdict = arbitrag.ask("Where is Bodax Motors based?", method="trustmargin", llm="lab", index="lab")

print(verdict.answer)  # None when it refuses
print(verdict.strategy)  # Strategy.MEMORY, EVIDENCE, BOTH or REFUSE
print(verdict.why)
for candidate in verdict.candidates:
    print(candidate.origin.value, "says", candidate.text)
for passage in verdict.kept[:3]:
    print(passage.place)
