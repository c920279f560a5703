"""A task: how urgent a message is, as classes, with a route of its own."""

from bothways.settings.base import settings
from bothways.settings.finetune import Classify
from bothways.tasks import TaskEntry
from bothways.tasks.classify.task import ClassifyTask
from bothways.tasks.classify.training import Classification
from bothways.tasks.task import LIST, Route, firsts
from bothways.text.data.split_tables import read_tables


@settings
class Urgency(Classify):
    """Fine-tune a model that says how urgent a message is."""


class UrgencyTraining(Classification):
    name = "urgency"


def judge(model, items, reading):
    predictions = model.classify(firsts(items), **reading)
    return [{"urgency": one.label, "score": one.score} for one in predictions]


class UrgencyTask(ClassifyTask):
    name = "urgency"
    route = "/urgency"
    routes = (Route("/urgency", "How urgent a message is", LIST, "texts", judge),)

    def train(self, settings, pretrained, fold):
        return UrgencyTraining.build(settings, pretrained, read_tables(settings, fold))


URGENCY = UrgencyTask()
TASK = TaskEntry(
    "acme.urgency:URGENCY",
    head="classes",
    labelled=True,
    settings="acme.urgency:Urgency",
    help="fine-tune a model of urgency",
    example="--train messages.csv -o my-triage",
)
