"""Settings -> the task that runs them."""

from typing import Any

from bothways.errors import InputError
from bothways.settings import Classify, Pretrain


def train(settings: Any) -> Any:
    """Run what a settings dataclass of bothways.settings asks for; what the verbs pretrain and finetune do."""
    if isinstance(settings, Pretrain):
        from bothways.tasks import pretrain

        return pretrain.run(settings)
    if isinstance(settings, Classify):
        from bothways.tasks import classify

        return classify.run(settings)
    raise InputError(f"{type(settings).__name__} is no training; give bothways.settings.Pretrain or Classify")
