"""Texts of the demo: gaps, a word in several senses, and sentences that follow each other."""

GAPS = (
    "The [MASK] chased the cat.",
    "The cat sat on the [MASK].",
    "The capital of France is [MASK].",
)

SENSES: dict[str, dict[str, tuple[str, ...]]] = {  # word: {sense: sentences}
    "bank": {
        "river": (
            "We pulled the boat up on the bank and lit a fire.",
            "Willows grow along the bank of the stream.",
            "The otter slid down the muddy bank into the water.",
            "They walked along the bank until they reached the bridge.",
            "After the flood, part of the bank had been washed away.",
        ),
        "money": (
            "The bank raised the interest on her loan.",
            "He opened an account at the bank on Main Street.",
            "The bank refused to lend him any more money.",
            "She works as a cashier in a bank.",
            "Thieves broke into the bank and emptied the safe.",
        ),
    },
    "right": {
        "direction": (
            "Turn right at the next corner.",
            "The door on the right leads to the kitchen.",
            "She held the pen in her right hand.",
            "Keep to the right when you go up the stairs.",
        ),
        "correct": (
            "You were right about the weather.",
            "That is the right answer to the question.",
            "He was sure that he was right, and he was not.",
            "I hope we made the right decision.",
        ),
        "entitlement": (
            "Everyone has the right to a fair trial.",
            "Women won the right to vote in 1918.",
            "The constitution protects the right of free speech.",
            "They claimed a right to the land.",
        ),
    },
}

NEXT = (  # first sentence, the one written to follow it, one about something else
    (
        "She filled the kettle and put it on the stove.",
        "When it began to whistle, she made a pot of tea.",
        "The treaty was signed in Vienna two years later.",
    ),
    (
        "The train from London was more than an hour late.",
        "Most of the passengers had missed their connections.",
        "Its leaves are narrow and covered with fine hair.",
    ),
    (
        "The village lies in a narrow valley in the north of the country.",
        "In winter the only road that leads to it is often closed by snow.",
        "The band recorded the album in less than two weeks.",
    ),
    (
        "He had not slept for two nights.",
        "His eyes were red, and his hands shook as he poured the coffee.",
        "The museum owns a large collection of Greek coins.",
    ),
)
