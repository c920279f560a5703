"""The effect of stripping accents on the words of many languages, and the resulting choice for a vocabulary.

    pip install wordfreq
    python -m benchmarks.accents

Reads wordfreq's lists (word frequencies of large corpora) and wikipedia-2015-en under $BOTHWAYS_DATA.
"""

from collections import Counter

import wordfreq

from benchmarks.learn_vocabulary import texts
from bothways.text.tokenizer.accents import KEEP_ACCENTS, AccentStats, measure_accents
from bothways.text.tokenizer.learn import count_words

RUNNING_WORDS = 10**8  # assumed size of the text behind a list


def measure_list(language: str) -> AccentStats:
    words: Counter[str] = Counter()
    for entry, frequency in wordfreq.get_frequency_dict(language).items():
        for word in KEEP_ACCENTS(entry):
            words[word] += round(frequency * RUNNING_WORDS)
    return measure_accents(words)


def row(name: str, accents: AccentStats) -> str:
    marks, merged = accents.marks / accents.letters, accents.merged / accents.words
    return f"| {name} | {marks:.3%} | {merged:.3%} | {'kept' if accents.are_needed else 'stripped'} |"


if __name__ == "__main__":
    print("| text | marks, of letters | merged, of words | accents |\n|---|---|---|---|")
    print(row("English Wikipedia", measure_accents(count_words(texts("train-*"), KEEP_ACCENTS))), flush=True)
    for language in sorted(wordfreq.available_languages()):
        print(row(language, measure_list(language)), flush=True)
