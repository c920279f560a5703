"""The card of a pre-trained or distilled model, README.md of its directory, in the form of the Hugging Face hub.

It has what the run knows: sizes, numbers of steps and tokens, held-out scores, limits, and how the model is loaded. It
has no text, no path, and no name of a machine or a person. The same model has the same card, byte for byte.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bothways.model.checkpoint.card_file import MODEL, card_text, fenced
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.formats import FORMATS, format_of

# The accuracies of other objectives than words, by their names for people.
ACCURACIES = {
    "next_sentence_accuracy": "next sentence, accuracy",
    "sentence_order_accuracy": "order of sentences, accuracy",
    "replaced_accuracy": "replaced tokens, accuracy",
}


def card_of(checkpoint: Checkpoint, *, figures: Mapping[str, Any], steps: int, tokens: int) -> str:
    """The card of the model of a run. figures: its held-out scores. steps, tokens: of the training."""
    return PretrainedCard(
        family=checkpoint.model_type,
        form=format_of(checkpoint).model_type or checkpoint.model_type,
        metadata=checkpoint.metadata,
        figures=figures,
        steps=steps,
        tokens=tokens,
    ).text()


@dataclass(frozen=True)
class PretrainedCard:
    """What the card of a model is made of.

    family: of the architecture, such as bert.
    form: name of the format of its files, or its family.
    metadata: content of bothways.json.
    figures: held-out scores.
    steps: of the training.
    tokens: that the training has read.
    """

    family: str
    form: str
    metadata: Mapping[str, Any]
    figures: Mapping[str, Any]
    steps: int
    tokens: int

    @property
    def fills(self) -> bool:
        """Whether it guesses masked words."""
        return "masked_lm" in self.figures

    @property
    def is_read_by_others(self) -> bool:
        return self.form not in FORMATS or FORMATS[self.form].is_read_by_others

    @property
    def is_distilled(self) -> bool:
        return self.metadata.get("verb") == "distill"

    def text(self) -> str:
        """The card."""
        sections = {
            "What it is": self._what(),
            "Data": self._data(),
            "Scores": self._scores(),
            "Limits": self._limits(),
            "How to load it": self._loading(),
            "Licence": self._licence(),
        }
        title = "A distilled text encoder" if self.is_distilled else "A pre-trained text encoder"
        return card_text(self._front_matter(), title, sections)

    def _front_matter(self) -> Iterator[str]:
        yield f"library_name: {'transformers' if self.is_read_by_others else 'bothways'}"
        yield f"pipeline_tag: {'fill-mask' if self.fills else 'feature-extraction'}"
        yield "tags:"
        yield "- bothways"
        yield f"- {self.family}"

    def _what(self) -> Iterator[str]:
        yield f"- Kind: an encoder ({self.family})."
        if "parameters" in self.metadata:
            yield f"- Parameters: {self.metadata['parameters']:,}."
        if self.is_distilled:
            yield "- It was trained on the outputs of a larger model, its teacher."
        version = (self.metadata.get("versions") or {}).get("bothways")
        yield f"- Made with Bothways{f' {version}' if version else ''}."

    def _data(self) -> Iterator[str]:
        yield f"- Read in training: {self.tokens:,} tokens in {self.steps:,} steps."
        yield "- The texts are not published with the model."

    def _scores(self) -> Iterator[str]:
        figures = self.figures
        rows = []
        if "perplexity" in figures:
            words = "masked words" if self.fills else "words"
            beside = figures.get("unigram_perplexity", math.nan)
            chance = "" if math.isnan(beside) else f"word frequencies alone {beside:,.1f}"
            rows.append(f"| {words}, perplexity | {figures['perplexity']:,.1f} | | {chance} |")
        if "vector_cosine" in figures:
            rows.append(f"| cosine to the teacher's vectors | {figures['vector_cosine']:.3f} | | |")
        for key, name in ACCURACIES.items():
            if key in figures:
                low, high = figures[f"{key}_interval"]
                bounds = f"{100 * low:.1f} % to {100 * high:.1f} %"
                chance = f"the more frequent answer {100 * figures['chance']:.1f} %"
                rows.append(f"| {name} | {100 * figures[key]:.1f} % | {bounds} | {chance} |")
        if not rows:
            yield "The run has no score of this model."
            return

        yield "| on held-out text | this model | 95 % interval | for comparison |"
        yield "|---|---|---|---|"
        yield from rows

    def _limits(self) -> Iterator[str]:
        yield "- It is not fine-tuned: for labels, train it on rows of your own."
        yield "- The held-out text is of the same kind as the training text; on other text it may be worse."
        yield "- Not measured: bias, other languages, facts."

    def _loading(self) -> Iterator[str]:
        text = "The [MASK] was late." if self.fills else "The train was late."
        use = "fill" if self.fills else "embed"
        yield "Bothways:"
        yield from fenced(
            "python", "import bothways", "", f'model = bothways.load("{MODEL}")', f'print(model.{use}("{text}"))'
        )
        yield ""
        if self.is_read_by_others:
            model_class = "AutoModelForMaskedLM" if self.fills else "AutoModel"
            yield "transformers:"
            yield from fenced(
                "python",
                f"from transformers import AutoTokenizer, {model_class}",
                "",
                f'tokenizer = AutoTokenizer.from_pretrained("{MODEL}")',
                f'model = {model_class}.from_pretrained("{MODEL}")',
            )
        else:
            yield "Only Bothways reads the whole model."
        yield ""
        yield "HTTP, from any language:"
        yield from fenced(
            "sh",
            f"bothways serve {MODEL}",
            f"curl -H 'Content-Type: application/json' -d '{{\"inputs\": \"{text}\"}}' localhost:8080/{use}",
        )

    def _licence(self) -> Iterator[str]:
        if self.is_distilled:
            yield "- Of the teacher: unknown to the program that wrote this page; find out before you pass it on."
        yield "- Of the training texts: unknown to the program that wrote this page."
        yield "- Of this model: for its author to say, within these."
