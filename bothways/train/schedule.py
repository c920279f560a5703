"""The learning rate over a run, as a share of its peak: warmed up, then falling to zero in a line."""


def linear(step: int, *, steps: int, warmup: float) -> float:
    """Share of the peak rate at a step of 0..steps-1; the first `warmup` (a fraction) of the run rises in a line.

    Devlin 2018, appendix A.2.
    """
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / (rising + 1)
    return (steps - step) / max(1, steps - rising)
