"""Selection of the model of a run among its seeds, with its reported scores, and the scores of the baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from bothways.base.log import muted
from bothways.model.checkpoint.weights import WEIGHTS
from bothways.training.finetuning.ground.score import THIS_MODEL, Score
from bothways.training.finetuning.model_scores import CrossValidation, ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.run_models import RunEncoder
from bothways.training.finetuning.seeds import SeedResult, seed_directory


def select(plan: Plan, results: Sequence[SeedResult], directory: Path) -> tuple[RunEncoder, Sequence[Score]]:
    """Select the model of the best seed on dev, or with folds the one that is trained on all of them.

    directory: of the run, which has the weights.

    Returns the model, and the scores of the baselines on the same rows.
    """
    task = plan.task
    seeds = {result.seed: result for result in results if result.fold is None}
    kept = seeds[best_seed({seed: one.metrics["dev"][task.metric] for seed, one in seeds.items()})]

    with muted():
        model = plan.prepare_model(kept.seed)
    model.model.load_state_dict(load_file(seed_directory(directory, kept.seed) / WEIGHTS), strict=False)

    calibration = kept.calibration
    metrics_by_seed = {seed: one.metrics for seed, one in seeds.items()}
    scores = ModelScores(
        task=task,
        split=plan.split,
        metrics_by_seed=metrics_by_seed,
        kept=kept.seed,
        resampled=Score.mean(THIS_MODEL, [one.scores[plan.split] for one in seeds.values()], same_rows=True),
    )

    baselines: Sequence[Score] = seeds[plan.seeds[0]].baselines

    if plan.few and plan.few.folds:
        folds = CrossValidation.out_of_fold(plan.few, plan.few.scored(plan.few.chosen))
        scores = replace(scores, folds=folds, resampled=folds.score)
        baselines = []
        if plan.compares:
            others = [candidate for candidate in plan.few.others if candidate is not plan.few.chosen]
            scored = [*map(plan.few.scored, others)]
            baselines = [Score.of(one.name, plan.few.task, plan.few.predictions(one)) for one in scored]
    elif plan.num_folds:
        folds = CrossValidation.of(plan, [result for result in results if result.fold is not None])
        scores = replace(scores, folds=folds, resampled=folds.score)
        baselines = folds.baseline_scores() if plan.compares else []
        if of_folds := task.scoring.calibrate_folds(folds.all_predictions):
            calibration = of_folds.to_json()

    encoder = RunEncoder(
        checkpoint=model,
        scores=scores,
        calibration=calibration,
        kept=kept,
    )
    return encoder, baselines


def best_seed(scores: Mapping[int, float]) -> int:
    """The seed with the best score, the first of equal ones."""
    return max(scores, key=lambda seed: (scores[seed], -seed))
