"""Accent stripping in learned vocabularies: measured, logged, and read alike by other libraries."""

import random
import unicodedata
from collections import Counter
from functools import cache

import pytest
from tokenizers import Tokenizer as PeerTokenizer
from transformers import BertTokenizer

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.cli import main
from bothways.settings import Pretrain, Vocab
from bothways.text.corpus.documents import sample
from bothways.text.tokenizer import accents, learn
from bothways.text.tokenizer.accents import KEEP_ACCENTS, STRIP_ACCENTS, measure_accents
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS

CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
ALIKE = (range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0x20000, 0x32000))  # ideographs, Hangul syllables
UNASSIGNED = ("Cn", "Co")  # or for private use


def is_alike(point):
    return unicodedata.category(chr(point)) in UNASSIGNED or any(point in points for points in ALIKE)


@cache
def written():
    """All up to the last letter of any script; of those that are alike, every 61st."""
    return [point for point in CODE_POINTS if 0x20 < point < 0x32000 and (point % 61 == 0 or not is_alike(point))]


NEEDED = {
    "German": """Es war schon spät, und die Straße war menschenleer. Sie hätte gern noch etwas gegessen, aber die Küche
        war geschlossen. Morgen würde sie früher aufstehen und über den Fluss zum Markt gehen, wo es schöne Äpfel gab.
        Der Brief wurde nie geschrieben, doch er hatte ihn ja auch nicht erwartet.""",
    "French": """Il était tard et la rue était vide. Elle avait déjà mangé, mais où aller maintenant ? Le marché ou le
        café, c'était à lui de décider. Des amis l'attendaient près du pont dès le matin, et la pluie tombait sur la
        forêt là-bas.""",
    "Spanish": """Era tarde y la calle estaba vacía. Él no sabía si ella vendría, pero sí sabía que el tren había
        salido. Mañana por la mañana iré al mercado, donde está el café que más te gusta, si tú quieres.""",
    "Vietnamese": """Hôm nay trời đẹp, chúng tôi đi chợ mua cá và rau. Bà tôi nấu cơm rất ngon, còn ba tôi thì pha trà.
        Ngày mai em gái sẽ đến thăm, và cả nhà cùng ăn cơm.""",
    "Hindi": """आज मौसम अच्छा है और हम बाज़ार से फल और फूल लाए हैं। मेरी बहन स्कूल में पढ़ती है। वह हर दिन सुबह दूध पीती है।""",
    "Thai": """วันนี้อากาศดีมาก เราไปตลาดซื้อปลาและผัก แม่ทำอาหารอร่อย ส่วนพ่อชงชา พรุ่งนี้น้องสาวจะมาเยี่ยม""",
    "Lao": """ມື້ນີ້ອາກາດດີ ພວກເຮົາໄປຕະຫຼາດຊື້ປາແລະຜັກ ແມ່ເຮັດອາຫານແຊບ ມື້ອື່ນນ້ອງສາວຈະມາຢາມ""",
    "Tibetan": """བོད་ཀྱི་སྐད་ཡིག་ནི་གནའ་བོའི་སྐད་ཡིག་ཅིག་ཡིན། དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག །""",
    "Arabic": """كان الوقت متأخرا والشارع فارغا. قال إن الطريق طويل وإنه يريد أن يأكل شيئا قبل أن ينام.
        إلى أين نذهب الآن؟""",
    "Hebrew with vowel signs": """בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ""",
    "Russian": """Он взял свой чёрный зонт и вышел на улицу. Мои друзья уже ждали, а мой брат ещё спал.""",
    "Japanese": """きょうは てんきが いいので、ともだちと いちばへ いきました。さかなと やさいを かいました。""",
}  # fmt: skip
NOT_NEEDED = {
    "English": """It was late, and the street outside the café was empty. She would have liked something to eat, but the
        kitchen had closed an hour ago. Tomorrow she would rise early and walk over the river to the market, where the
        apples were said to be the best in the county. He had promised a letter and never written it, and she had not
        really expected one. The naive hope of it amused her all the same, for it was a fine night and the walk home was
        not long at all.""",
    "Hebrew": """היה מאוחר והרחוב היה ריק. היא רצתה לאכול משהו אבל המטבח היה סגור. מחר היא תקום מוקדם ותלך לשוק.""",
    "Indonesian": """Hari sudah malam dan jalan itu kosong. Ia ingin makan sesuatu, tetapi dapur sudah tutup.""",
    "Korean": """오늘은 날씨가 좋아서 친구와 시장에 갔습니다. 생선과 채소를 샀습니다.""",
    "Chinese": """今天天气很好，我们去市场买鱼和菜。""",
}  # fmt: skip


def test_marks_are_kept_where_words_need_them_which_a_message_says_and_stripped_where_few_do():
    choices = {}
    for language, text in (NEEDED | NOT_NEEDED).items():
        lines = []
        with messages_to(lines.append):
            tokenizer = Tokenizer.learn([text], size=2000)
        assert tokenizer.backend.splitter.lowercase and len(lines) == 1
        choices[language] = (tokenizer.backend.splitter.strip_accents is False, "accents are kept" in lines[0])
    assert choices == dict.fromkeys(NEEDED, (True, True)) | dict.fromkeys(NOT_NEEDED, (False, False))


def test_words_that_differ_by_marks_alone_keep_different_ids():
    pairs = [("wurde", "würde"), ("फल", "फूल"), ("มา", "ม้า"), ("đã", "đa")]
    tokenizer = Tokenizer.learn([*NEEDED.values(), *(" ".join(pair) for pair in pairs)], size=3000)
    for one, other in pairs:
        assert tokenizer.ids(one) != tokenizer.ids(other)
        assert tokenizer.decode(tokenizer.ids(other)) == other
    assert tokenizer.ids("WÜRDE") == tokenizer.ids("würde")


@pytest.mark.slow
def test_english_is_read_as_bert_reads_it():
    """The novels hold some French; the vocabulary is the one that stripping gives."""
    books = [book["text"] for book in sample()[:3]]
    learned, stripped = Tokenizer.learn(books, size=1500), Tokenizer.learn(books, size=1500, strip_accents=True)
    assert learned.backend.splitter.strip_accents is None
    assert learned.tokens == stripped.tokens and "\u00e9" not in learned.tokens


def test_merged_words_are_those_that_another_word_outnumbers():
    measured = measure_accents({"schon": 7, "schön": 5, "für": 3, "wurde": 1, "würde": 2, "was": 82})
    assert (measured.words, measured.merged, measured.marks) == (100, 5 + 1, 5 + 3 + 2)
    assert measured.example == ("scho\u0308n", "schon")
    assert measured.letters == 12 * 5 + 3 * 3 + 3 * 5 + 82 * 3
    plain = "x" * 400
    for merged, needed in ((1, False), (2, True)):  # of 1,000 words
        assert measure_accents({plain: 900, "schon": 100 - merged, "schön": merged}).are_needed is needed
    for marked, needed in ((4, False), (5, True)):  # of 1,000 letters
        assert measure_accents({"a" * 10: 100 - marked, "ü" + "a" * 9: marked}).are_needed is needed


def test_one_word_in_two_encodings_is_one_word():
    word = "trẫm"  # two marks on one letter, in either order
    forms = {form: 10 for form in (*(unicodedata.normalize(form, word) for form in ("NFC", "NFD")), "tra\u0303\u0302m")}
    measured = measure_accents({**forms, "tra\u0302\u0303m": 10})
    assert measured.merged == 10 and measured.words == sum(forms.values()) + 10 * ("tra\u0302\u0303m" not in forms)
    assert measure_accents({"한국어": 5, unicodedata.normalize("NFD", "한국어"): 5}).merged == 0
    hearts = measure_accents({"\u2764\ufe0f": 500, "\u2764": 500, "love": 9})
    assert (hearts.merged, hearts.marks, hearts.are_needed) == (0, 0, False)


def test_order_and_processes_change_neither_the_choice_nor_its_reason():
    texts = [*NEEDED.values(), *NOT_NEEDED.values()] * 3
    outcomes = set()
    for seed, processes in ((0, 1), (1, 1), (2, 2)):
        random.Random(seed).shuffle(texts)
        lines = []
        with messages_to(lines.append):
            tokenizer = Tokenizer.learn(texts, size=900, processes=processes)
        outcomes.add((tuple(lines), tuple(tokenizer.tokens), tokenizer.backend.splitter.strip_accents))
    assert len(outcomes) == 1


def contexts(points):
    """Each character inside a word, at both ends of one, doubled, and before and behind marks that move."""
    for point in points:
        char = chr(point)
        yield f"a{char}b {char}{char}e {char} {char}f \u302e{char}\u0301\u0316 E\u0323{char}\u302f\u0301"


@pytest.mark.soak
@pytest.mark.slow
def test_words_read_with_marks_and_then_stripped_are_those_of_stripping_at_once():
    check_stripping(written()[::3], mixed=1_700)


def check_stripping(points, mixed):
    """Each character in its contexts, and `mixed` random texts."""
    draw, moving = random.Random(0), [point for point in CODE_POINTS if unicodedata.combining(chr(point))]
    pools = [moving, range(0x250), range(0x900, 0xF00), CODE_POINTS]
    drawn = ["".join(chr(draw.choice(draw.choice(pools))) for _ in range(12)) for _ in range(mixed)]
    for texts in (contexts(points), drawn):
        for text in texts:
            kept = Counter(word for chunk in text.split() for word in KEEP_ACCENTS(chunk))
            assert accents.strip_accents_from(kept) == Counter(
                word for chunk in text.split() for word in STRIP_ACCENTS(chunk)
            ), text


RULES = [(True, None), (True, True), (True, False), (False, None), (False, True), (False, False)]


@pytest.mark.parametrize("lowercase, strip_accents", RULES)
def test_requested_rules_are_applied_without_a_message(lowercase, strip_accents):
    lines = []
    text = NEEDED["German"]
    with messages_to(lines.append):
        tokenizer = Tokenizer.learn([text], 300, lowercase, strip_accents=strip_accents)
    strips = bool(strip_accents)
    assert len(lines) == (lowercase and strip_accents is None)
    assert ("ä" in "".join(tokenizer.tokens)) is not strips
    assert ("S" in tokenizer.tokens) is not lowercase
    expected = text if not lowercase else text.lower()
    if strips:
        expected = "".join(char for char in unicodedata.normalize("NFD", expected) if not unicodedata.combining(char))
    assert tokenizer.decode(tokenizer.ids(text)).replace(" ", "") == "".join(expected.split())


@pytest.mark.slow
def test_a_vocabulary_with_marks_gives_the_ids_of_tokenizers_for_every_third_code_point(tmp_path):
    check_ids(written()[1::3], tmp_path)


def check_ids(points, tmp_path):
    rules = Tokenizer.learn([NEEDED["German"]], 300).backend.rules
    chars = [chr(point) for point in written()]
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *chars, *("##" + char for char in chars)])}
    ours = Tokenizer(vocab, **rules)  # no character is unknown to it, so no difference can hide
    ours.save(tmp_path)
    peer = PeerTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = [f"a{chr(point)}b {chr(point)}\u0301 E{chr(point)}" for point in points]
    assert [ours.encode(text).ids for text in texts] == [theirs.ids for theirs in peer.encode_batch(texts)]


@pytest.mark.parametrize("lowercase, strip_accents", RULES)
def test_a_learned_vocabulary_keeps_its_rules_when_saved_and_loaded(lowercase, strip_accents, tmp_path):
    ours = Tokenizer.learn([NEEDED["German"]], 300, lowercase, strip_accents=strip_accents)
    ours.save(tmp_path)
    text = "Die SCHÖNE Äpfel, e\u0301"
    assert Tokenizer.load(tmp_path).backend.rules == ours.backend.rules
    assert Tokenizer.load(tmp_path).ids(text) == ours.ids(text)
    assert BertTokenizer.from_pretrained(tmp_path)(text).input_ids == ours.encode(text).ids


# --- the commands ---------------------------------------------------------------------------------------------------


def test_vocab_prints_its_choice_and_takes_flags(tmp_path, capsys):
    (tmp_path / "german.txt").write_text(NEEDED["German"], encoding="utf-8")
    for flags, splitter, is_logged in (
        ((), (True, False), True), (("--strip-accents",), (True, True), False), (("--no-lowercase",), (False, None), 0)
    ):  # fmt: skip
        out = tmp_path / f"out{len(flags)}{is_logged}"
        main.main(["vocab", str(tmp_path / "german.txt"), "-o", str(out), "--size", "300", *flags])
        loaded = Tokenizer.load(out).backend.splitter
        assert (loaded.lowercase, loaded.strip_accents) == splitter
        err = capsys.readouterr().err
        assert ("accents are kept" in err) is bool(is_logged)
    with pytest.raises(InputError, match="not allowed with argument"):
        main.parse("vocab", [str(tmp_path), "-o", str(tmp_path / "x"), "--strip-accents", "--keep-accents"])


@pytest.mark.parametrize("flag", ["--strip-accents", "--keep-accents", "--no-lowercase"])
@pytest.mark.parametrize("source", ["--tokenizer", "--from"])
def test_a_vocabulary_that_is_loaded_keeps_its_own_rules(flag, source, tmp_path):
    changes = {"lowercase": False} if flag == "--no-lowercase" else {"strip_accents": flag == "--strip-accents"}
    with pytest.raises(InputError, match=rf"^{next(iter(changes))} \("):
        main.parse("pretrain", [str(tmp_path), "-o", str(tmp_path / "run"), source, str(tmp_path), flag])
    source_option = {"tokenizer" if source == "--tokenizer" else "from_checkpoint": tmp_path}
    with pytest.raises(InputError, match=rf"^{next(iter(changes))} \("):
        Pretrain(corpus=(tmp_path,), out=tmp_path, **source_option, **changes)


def test_flags_become_one_setting():
    for flags, expected in (([], None), (["--strip-accents"], True), (["--keep-accents"], False)):
        for verb in ("vocab", "pretrain"):
            settings = main.parse(verb, ["text.txt", "-o", "out", *flags])
            assert isinstance(settings, Vocab | Pretrain) and settings.strip_accents is expected


def test_words_are_counted_once(monkeypatch):
    """Texts may be an iterator that can be read a single time."""
    assert "wurde" in Tokenizer.learn(iter([NEEDED["German"]] * 3), size=700).tokens
    calls = []
    count = learn.count_words
    monkeypatch.setattr(learn, "count_words", lambda *arguments: (calls.append(arguments), count(*arguments))[1])
    Tokenizer.learn([NEEDED["German"]], size=300)
    assert len(calls) == 1
