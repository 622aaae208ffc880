"""Grade replies to the lab model's tasks: well-formed by the method's parser, right by the rules.

=================================  ==================================================================================
task                               right
=================================  ==================================================================================
recall, memory, recall_many        tells the object of a known fact, or declines where the fact is not among the first
                                   half by rank: a true passage is never wrong, and how rare is too rare is a matter
                                   of degree
rewrite                            other forms of the question, as many as there are, each once
allocate                           within 20 points of the percentage by rule
consolidate                        the groups by rule, with their sources, and what is dropped
astute/answer                      the best supported object
assess                             whom to trust, and the best supported object
bridge/answer, …_scored, answer    the best supported object, or declines where there is none
repair                             the same source to trust and the same answer, or declines with the reply by rule
reflect                            both objects of the contradiction, its kind, and other forms of the question
=================================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arbitrag.stages.parsing import forms
from arbitrag.stages.parsing.forms import Consolidation
from arbitrag.stages.parsing.grammar import ParseError
from arbitrag.text import agree
from training.replies import other_questions, read, read_final
from training.scene import Scene
from training.tasks import Task

_NEAR = 20  # points of a percentage
_MUST = 0.5  # rank up to which memory is to tell a fact
_MOST = 10  # sub-queries


@dataclass(frozen=True, slots=True)
class Mark:
    """The grade of a reply. ``problem`` is why it is not well-formed, empty where it is."""

    right: bool
    problem: str = ""

    @property
    def well_formed(self) -> bool:
        return not self.problem


def mark(task: Task, reply: str) -> Mark:
    """Read a reply to the task as its method does, and compare it with what is right."""
    try:
        return Mark(_right(task, reply))
    except ParseError as error:
        return Mark(False, str(error))


def _right(task: Task, reply: str) -> bool:
    scene = task.scene
    match task.name:
        case "trustrag/memory" | "astute/recall":
            return _recalls(scene, read(task.name, forms.passages(3), reply))
        case "bridge/recall":
            return _recalls(scene, [read(task.name, forms.EVIDENCE, reply)])
        case "bridge/recall_many":
            return _recalls(scene, read(task.name, forms.answers(len(task.reply.splitlines())), reply))
        case "bridge/rewrite":
            found, wanted = (read(task.name, forms.queries(_MOST), each) for each in (reply, task.reply))
            return _asks_anew(task, found, wanted)
        case "bridge/allocate":
            return abs(read(task.name, forms.BIAS, reply).retrieval - scene.bias) <= _NEAR
        case "trustrag/consolidate":
            form = forms.consolidation(scene.known)
            return _same_groups(*(read(task.name, form, each) for each in (reply, task.reply)))
        case "astute/consolidate":
            groups = forms.groups(scene.known)
            return _same_groups(*(Consolidation(read(task.name, groups, each)) for each in (reply, task.reply)))
        case "trustrag/assess":
            trust, answer = read_final(task.name, scene, reply)
            return trust is read_final(task.name, scene, task.reply)[0] and _best(scene, answer)
        case "trustrag/answer" | "astute/answer" | "bridge/answer" | "bridge/answer_scored":
            return _best(scene, read_final(task.name, scene, reply)[1])
        case "reading/repair":
            assert task.repairs is not None
            return read_final(task.repairs, scene, reply) == read_final(task.repairs, scene, task.reply)
        case "bridge/reflect":
            told, meant = (read(task.name, forms.reflection(_MOST), each) for each in (reply, task.reply))
            same = (told.contradiction, told.kind) == (meant.contradiction, meant.kind)
            return same and _asks_anew(task, told.queries, meant.queries)


def _recalls(scene: Scene, texts: Sequence[str]) -> bool:
    """Whether every text tells a fact that memory can know, or there is none of one that it need not know."""
    if not any(texts):
        return scene.rank is None or scene.rank >= _MUST
    return scene.rank is not None and all(scene.fact.object in text for text in texts)


def _asks_anew(task: Task, found: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(found) == len(set(found)) == len(wanted) and set(found) <= set(other_questions(task.scene))


def _best(scene: Scene, answer: str | None) -> bool:
    if answer is None or scene.best is None:
        return answer is scene.best
    return agree(answer, scene.best)


def _same_groups(found: Consolidation, wanted: Consolidation) -> bool:
    """The same groups and the same passages dropped, in any order."""
    gone = [{number for number, _ in each.dropped} for each in (found, wanted)]
    return set(found.groups) == set(wanted.groups) and gone[0] == gone[1]
