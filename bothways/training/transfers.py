"""Copies between the processor and a GPU during which both go on computing: batches to it, numbers from it.

On a CPU there is nothing to copy.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache

import torch
from torch import Tensor

from bothways.base.device import HostCopy
from bothways.text.batch import Batch


def upload(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device. A GPU copies it while it computes what was queued before."""
    if device.type != "cuda":
        return batch.to(device)

    stream = _upload_stream(device)
    with torch.cuda.stream(stream):
        uploaded = batch.to(device)

    # What is queued from here on waits for the copies; the processor does not.
    computing = torch.cuda.current_stream(device)
    computing.wait_stream(stream)

    # The memory belongs to the stream of the copies, which would give it to the next batch as soon as this one is
    # freed here, perhaps before the GPU has read it.
    for values in _tensors(uploaded):
        values.record_stream(computing)
    return uploaded


@cache
def _upload_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _tensors(batch: Batch) -> Iterator[Tensor]:
    """The tensors of a batch that are on its device."""
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Batch):
            yield from _tensors(value)
        elif isinstance(value, Tensor) and field.name != "lengths":
            yield value


class Readout:
    """Numbers that are on their way from a device to the processor (HostCopy), all in one copy.

    numbers: tensors of one number each.
    """

    def __init__(self, numbers: Sequence[Tensor]) -> None:
        self.numbers = numbers
        self.copy: HostCopy | None = None
        if numbers and numbers[0].device.type != "cpu":
            self.copy = HostCopy(torch.stack([number.double() for number in numbers]))

    def values(self) -> list[float]:
        """The numbers, in the order given."""
        if self.copy is None:
            return [number.item() for number in self.numbers]
        values: list[float] = self.copy.read().tolist()
        return values
