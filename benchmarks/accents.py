"""What stripping accents would do to the words of many languages, and which of them a learned vocabulary keeps.

    pip install wordfreq
    python -m benchmarks.accents

Reads wordfreq's lists (word frequencies of large corpora) and wikipedia-2015-en under $BOTHWAYS_DATA.
"""

from collections import Counter

import wordfreq

from benchmarks.learn_vocabulary import texts
from bothways.tokenizer.accents import KEEPING, Accents, measure
from bothways.tokenizer.learn import count_words

RUNNING_WORDS = 10**8  # that a list stands for


def of_list(language: str) -> Accents:
    words: Counter[str] = Counter()
    for entry, frequency in wordfreq.get_frequency_dict(language).items():
        for word in KEEPING(entry):
            words[word] += round(frequency * RUNNING_WORDS)
    return measure(words)


def row(name: str, accents: Accents) -> str:
    marks, merged = accents.marks / accents.letters, accents.merged / accents.words
    return f"| {name} | {marks:.3%} | {merged:.3%} | {'kept' if accents.are_needed else 'stripped'} |"


if __name__ == "__main__":
    print("| text | marks, of letters | merged, of words | accents |\n|---|---|---|---|")
    print(row("English Wikipedia", measure(count_words(texts("train-*"), KEEPING))), flush=True)
    for language in sorted(wordfreq.available_languages()):
        print(row(language, of_list(language)), flush=True)
