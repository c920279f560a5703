"""The page on which people try a model: its files, and what a browser makes of them beside a server without a model."""

import re

import pytest

from tests.isolation import unwatch
from tests.serving.browser import CHROMIUM, Browser
from tests.serving.pages import WEB, Tree
from tests.serving.stub import ANSWERS, INFO, serving

FILES = {file: (WEB / file).read_text(encoding="utf-8") for file in ("index.html", "page.css", "page.js")}
HOSTILE = "<img src=x onerror=\"document.title='bad'\"> & <b>Ada</b>"
PARTS = ["fill", "classify", "decide", "tag", "answer", "explain", "next", "compare", "search", "tokens", "attention"]


def browser_test(function):
    skip = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
    return pytest.mark.slow(skip(function))


@pytest.fixture(scope="module")
def tree():
    return Tree(FILES["index.html"])


def test_the_html_is_well_formed_and_each_reference_has_its_element(tree):
    assert tree.problems == [] and tree.inline == []
    identities = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    for name in ("for", "aria-labelledby", "aria-controls", "aria-describedby"):
        assert {attributes[name] for _, attributes in tree.elements if name in attributes} <= set(identities), name
    assert set(re.findall(r'byId\("([\w-]+)"\)', FILES["page.js"])) <= set(identities)


def test_each_field_has_a_label_and_each_part_a_tab(tree):
    labelled = {attributes["for"] for attributes in tree.all("label")}
    assert {attributes["id"] for attributes in tree.all("input", "textarea", "select")} == labelled
    tabs = [attributes["aria-controls"] for attributes in tree.all("button") if attributes.get("role") == "tab"]
    panels = [attributes["id"] for attributes in tree.all("section")]
    assert tabs == panels == ["documents", *PARTS]  # of which the first is for servers with an index
    assert len(tree.all("main")) == len(tree.all("h1")) == len(tree.all("header")) == len(tree.all("footer")) == 1
    assert tree.all("html") == [{"lang": "en"}]


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(tree):
    for tag, attributes in tree.elements:
        assert tag not in {"style", "iframe", "object", "img", "base"}
        assert not any(name == "style" or name.startswith("on") for name in attributes), tag
    for name, text in FILES.items():
        assert set(re.findall(r"\w+://[^\s\"'<>;]+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert "url(" not in text and "@import" not in text
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert forbidden not in FILES["page.js"]
    addresses = {attributes.get("href") or attributes.get("src") for attributes in tree.all("link", "script", "a")}
    assert addresses == {"page.css", "page.js", "docs"}  # relative: also below a path of a proxy


@pytest.fixture(scope="module")
def stub():
    with serving() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    browser = Browser(folder)
    unwatch(folder)
    yield browser
    browser.close()


@pytest.fixture
def browser(shared_browser, stub):
    """With a wide light page; each test opens the page itself. No test may ask another server, or break a rule."""
    stub.reset()
    shared_browser.look()
    yield shared_browser
    assert shared_browser.requests() and all(url.startswith(stub.address) for url in shared_browser.requests())
    failed = "the server responded with a status of"
    assert [words for words in shared_browser.complaints() if failed not in words] == []


SHOWN = """[...document.querySelectorAll("[role=tab]")].filter((e) => e.offsetParent)
  .map((e) => e.getAttribute("aria-controls"))"""
PANELS = "[...document.querySelectorAll('section')].filter((e) => !e.hidden).map((e) => e.id)"


def opened(browser, stub, part=""):
    browser.open(f"{stub.address}#{part}")
    return browser.wait(SHOWN)


def submit(browser, part, **fields):
    """Fills the form of a part as a user would, sends it, and waits for the answer; the text of the result."""
    for name, value in fields.items():
        browser.run(f"document.querySelector('#{part} [name={name}]').value = {value!r}; 0")
    browser.run(f"document.querySelector('#{part} form').requestSubmit()")
    return settled(browser, part)


def settled(browser, part):
    browser.wait(f"!document.querySelector('#{part} .busy')")
    return browser.run(f"document.querySelector('#{part} .result').innerText")


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")


def pick(browser, selector, value):
    """Chooses an option, as a user would."""
    script = f"e.value = {value!r}; e.dispatchEvent(new Event('change')); 0"
    browser.run(f"for (const e of document.querySelectorAll({selector!r})) {{ {script} }}")


def give_key(browser, key):
    browser.run(f"document.querySelector('#key').value = {key!r}; document.querySelector('#key-form').requestSubmit()")


def status(browser, part):
    return browser.run(f"document.querySelector('#{part} [role=status]').textContent")


@browser_test
def test_only_the_parts_that_the_model_can_do_are_shown(browser, stub):
    assert opened(browser, stub) == PARTS
    always = ["compare", "search", "tokens"]
    for changes, shown in (
        ({"heads": ["tokens"], "routes": []}, ["tag", "explain", *always, "attention"]),
        ({"heads": ["spans", "new"], "num_layers": 0, "routes": ["decide"]}, ["decide", "answer", "explain", *always]),
        ({"heads": [], "routes": []}, [*always, "attention"]),
    ):
        stub.reset(INFO | changes)
        assert opened(browser, stub, "fill") == shown
        assert browser.run(PANELS) == shown[:1]


@browser_test
def test_each_part_asks_its_address_and_shows_the_answer(browser, stub):
    opened(browser, stub)
    one = {"text": "a b"}
    for part, fields, path, body, words in (
        ("fill", {"text": "the [MASK]"}, "/fill", {"inputs": "the [MASK]"}, ["the medicine", "61.0%", "<b>"]),
        ("classify", one | {"pair": ""}, "/predict", {"inputs": "a b"}, ["delivery", "83.0%", "<i>refund</i>"]),
        ("classify", one | {"pair": "c"}, "/predict", {"inputs": ["a b", "c"]}, ["delivery"]),
        ("decide", one | {"options": "a\n\n c", "question": "is"}, "/decide",
         {"inputs": "a b", "options": ["a", "c"], "question": "is"}, ["<i>late</i>", "61.0%", "(none of these)"]),
        ("explain", one | {"pair": ""}, "/explain", {"inputs": "a b"}, ["What the score loses", "+0.500", "−0.250"]),
        ("next", {"first": "a", "second": "b"}, "/next", {"inputs": ["a", "b"]}, ["follows", "93.0%"]),
        ("tokens", one, "/tokenize", {"inputs": "a b"}, ["[CLS]", "1001", "2–3"]),
        ("attention", one | {"layer": "2", "head": "4"}, "/attention",
         {"inputs": "a b", "layer": 2, "head": 4}, ["[SEP]"]),
    ):  # fmt: skip
        result = submit(browser, part, **fields)
        assert stub.asked[-1] == (path, body)
        assert all(word in " ".join(result.split()) for word in words), (part, result)
        assert " ms" in status(browser, part)
    submit(browser, "compare", first="a b", second="b c")
    assert stub.asked[-1][1] == {"inputs": {"source_sentence": "a b", "sentences": ["b c"]}}
    assert status(browser, "compare").startswith("Similarity 0.333")


@browser_test
def test_several_masks_have_a_table_each_and_are_filled_in_the_text(browser, stub):
    opened(browser, stub)
    submit(browser, "fill", text="a [MASK] and [MASK].")
    assert texts(browser, "#fill .text") == ["a medicine and letter."]
    assert texts(browser, "#fill caption") == [
        "Mask 1",
        "Mask 2",
    ]


@browser_test
def test_a_list_is_ranked_without_its_empty_lines(browser, stub):
    opened(browser, stub, "search")
    submit(browser, "search", query="a b", passages="c d\n\n  b c \na b\n")
    assert stub.asked[-1][1]["inputs"]["sentences"] == ["c d", "b c", "a b"]
    rows = browser.run(
        "[...document.querySelectorAll('#search tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows == [["1", "a b", "1.000"], ["2", "b c", "0.333"], ["3", "c d", "0.000"]]


@browser_test
def test_entities_and_answers_after_an_emoji_are_marked_at_the_right_characters(browser, stub):
    opened(browser, stub)
    text = "👩‍🚀🎉 Ada of Turin 😀"
    submit(browser, "tag", text=text)
    assert texts(browser, "#tag .text mark") == ["Ada", "Turin"]
    assert texts(browser, "#tag .text") == ["👩‍🚀🎉 AdaPER of TurinLOC 😀"]
    assert f"{text.index('Ada')}–{text.index('Ada') + 3}" in browser.run(
        "document.querySelector('#tag table').innerText"
    )
    submit(browser, "answer", question="Where?", context="😀😀 In France 😀.")
    assert texts(browser, "#answer .text mark") == ["France"]
    submit(browser, "answer", question="Where?", context="Nowhere.")
    assert status(browser, "answer").startswith("The passage does not say")


@browser_test
def test_documents_are_searched_if_the_server_has_an_index(browser, stub):
    stub.reset(INFO | {"store": {"files": 3, "passages": 5}})
    assert opened(browser, stub, "documents") == ["documents", *PARTS]
    result = submit(browser, "documents", query=HOSTILE, filter="year > 2010")
    assert stub.asked[-1] == ("/search", {"query": HOSTILE, "how": "hybrid", "filter": "year > 2010"})
    assert texts(browser, "#documents mark") == ["It is <b>late</b>.", "Paid."]
    assert texts(browser, "#documents .text") == ["😀 Fees. It is <b>late</b>. Pay.", "Paid."]
    assert all(word in result for word in ("a<i>.md:14", "Late <u>fees", "scan.pdf, page 2", "0.750"))
    assert status(browser, "documents").startswith("2 passages of 5")
    submit(browser, "documents", query="weak", filter="")
    assert status(browser, "documents").startswith("No clear match; the nearest 2")
    submit(browser, "documents", query="nothing", filter="")
    assert status(browser, "documents").startswith("No passage found")
    assert stub.asked[-1][1] == {"query": "nothing", "how": "hybrid"}
    assert browser.run("document.querySelectorAll('img, #documents i, #documents u').length") == 0


@browser_test
def test_markup_in_a_text_stays_text(browser, stub):
    stub.reset(INFO | {"model_id": HOSTILE, "labels": [HOSTILE]})
    opened(browser, stub)
    fields = {
        "fill": {"text": HOSTILE + "[MASK]"}, "classify": {"text": HOSTILE},
        "decide": {"text": HOSTILE, "options": HOSTILE, "question": HOSTILE}, "tag": {"text": HOSTILE},
        "answer": {"question": HOSTILE, "context": HOSTILE + " France"}, "explain": {"text": HOSTILE},
        "next": {"first": HOSTILE, "second": HOSTILE},
        "compare": {"first": HOSTILE, "second": HOSTILE}, "search": {"query": HOSTILE, "passages": HOSTILE},
        "tokens": {"text": HOSTILE}, "attention": {"text": HOSTILE},
    }  # fmt: skip
    assert [*fields] == PARTS
    for part, values in fields.items():
        submit(browser, part, **values)
        assert browser.run(f"document.querySelector('#{part} [role=alert]').textContent") == "", part
    stub.reset(failure=(422, HOSTILE))
    submit(browser, "tag", text="a")
    assert texts(browser, "#tag [role=alert]") == [HOSTILE]
    assert browser.run("document.querySelectorAll('img, main b:not(.spoken), main i').length") == 0
    assert browser.run("document.title").startswith("<img")


@browser_test
def test_an_error_is_one_line_and_takes_the_old_answer_away(browser, stub):
    opened(browser, stub)
    assert submit(browser, "tag", text="Ada")
    stub.reset(failure=(413, "the text has 900 tokens;\n at most 512"))
    assert submit(browser, "tag", text="Ada") == ""
    assert texts(browser, "#tag [role=alert]") == ["the text has 900 tokens; at most 512"]
    assert status(browser, "tag") == ""


@browser_test
def test_a_key_is_asked_for_and_the_request_repeated_with_it(browser, stub):
    stub.reset(key="s3cret")
    browser.open(stub.address)
    browser.wait("document.activeElement?.id === 'key'")
    for key, follows in (("wrong", "document.querySelector('#page-error').textContent"), ("s3cret", f"{SHOWN}.length")):
        browser.run(
            f"document.querySelector('#key').value = '{key}'; document.querySelector('#key-form').requestSubmit()"
        )
        browser.wait(follows)
    assert browser.run("document.querySelector('#key-form').offsetParent") is None
    stub.key = "changed"  # while the page is open
    browser.run("document.querySelector('#tab-tag').click()")
    submit(browser, "tag", text="Ada")
    browser.wait("document.activeElement?.id === 'key'")
    give_key(browser, "changed")
    browser.wait("document.querySelector('#tag mark')?.textContent === 'Ada'")
    assert (
        browser.run("JSON.stringify([Object.keys(localStorage), Object.keys(sessionStorage), document.cookie])")
        == '[[],[],""]'
    )


@browser_test
def test_another_model_can_be_chosen_and_changes_the_parts(browser, stub):
    both = {"models": ["mini", "tägger/2"]}
    stub.reset(INFO | both, INFO | both | {"model_id": "tägger/2", "heads": ["tokens"], "routes": [], "num_layers": 2})
    opened(browser, stub, "tag")
    submit(browser, "tag", text="Ada")
    assert stub.asked[-1][1] == {"inputs": "Ada", "model": "mini"}
    browser.run(
        "const e = document.querySelector('#model'); e.value = 'tägger/2'; e.dispatchEvent(new Event('change')); 0"
    )
    browser.wait(f"{SHOWN}.length === 6")
    assert browser.run("document.querySelector('#tag .result').textContent") == ""
    submit(browser, "tag", text="Ada")
    assert stub.asked[-1][1] == {"inputs": "Ada", "model": "tägger/2"}
    assert texts(browser, "#attention-layer option") == ["the clearest", "0", "1"]


@browser_test
def test_the_keyboard_reaches_everything_in_order(browser, stub):
    opened(browser, stub)
    focused = "document.activeElement.id || document.activeElement.textContent"
    seen = []
    for _ in range(5):
        browser.press("Tab")
        seen.append(browser.run(focused))
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert seen[:4] == ["tab-fill", "fill-text", "Fill", "insert-mask"]
    assert seen[4] == "He plays the [MASK] in an orchestra."
    browser.press("Enter")
    assert "61.0%" in browser.wait("document.querySelector('#fill .result').innerText")
    browser.run("document.querySelector('#tab-fill').focus()")
    for key, tab in (
        ("ArrowRight", "classify"),
        ("End", "attention"),
        ("ArrowRight", "fill"),
        ("ArrowLeft", "attention"),
    ):
        browser.press(key)
        assert browser.run("document.activeElement.getAttribute('aria-controls')") == tab
        assert browser.run("location.hash") == f"#{tab}"
        assert browser.run(PANELS) == [tab]


@browser_test
def test_attention_is_a_picture_with_a_name_and_a_list(browser, stub):
    opened(browser, stub, "attention")
    submit(browser, "attention", text="a b", layer="0", head="0")
    assert browser.run("document.querySelectorAll('#attention rect.cell').length") == 4 * 4
    assert "layer 0, head 0" in browser.run("document.querySelector('#attention svg').getAttribute('aria-label')")
    assert browser.run("document.querySelectorAll('#attention details tbody tr').length") == 4
    browser.run(
        "const e = document.querySelector('#attention-head'); e.value = 3; e.dispatchEvent(new Event('change')); 0"
    )
    settled(browser, "attention")
    assert stub.asked[-1][1]["head"] == 3
    submit(browser, "attention", text="word " * 61)
    assert browser.run("document.querySelectorAll('#attention rect.cell').length") == 48 * 48
    assert "63 tokens; the first 48 are drawn" in status(browser, "attention")


@browser_test
def test_attention_opens_on_the_head_that_the_server_chooses(browser, stub):
    opened(browser, stub, "attention")
    submit(browser, "attention", text="a b")
    assert stub.asked[-1][1] == {"inputs": "a b"}
    assert status(browser, "attention").startswith("Layer 1, head 3")
    submit(browser, "attention", text="a b", layer="0")
    assert stub.asked[-1][1] == {"inputs": "a b", "layer": 0}
    assert status(browser, "attention").startswith("Layer 0, head 3")


SECOND = "Boolean(document.querySelector('#classify-pair').offsetParent)"


@browser_test
@pytest.mark.parametrize(
    "reads_pairs, is_shown, is_required", [(False, False, False), (True, True, True), (None, True, False)]
)
def test_a_second_text_is_asked_for_by_models_of_pairs_alone(browser, stub, reads_pairs, is_shown, is_required):
    stub.reset(INFO | {"reads_pairs": reads_pairs})
    opened(browser, stub, "classify")
    assert browser.run(SECOND) == is_shown
    assert browser.run("document.querySelector('#classify-pair').required") == is_required
    browser.run(EXAMPLE.format("classify"))
    settled(browser, "classify")
    assert isinstance(stub.asked[-1][1]["inputs"], list) == is_required


@browser_test
def test_a_second_text_of_another_model_is_not_sent_along(browser, stub):
    both = {"models": ["pairs", "single"]}
    pairs, single = ({"model_id": name, "reads_pairs": name == "pairs"} for name in both["models"])
    stub.reset(INFO | both | pairs, INFO | both | single)
    opened(browser, stub, "classify")
    submit(browser, "classify", text="a", pair="b")
    assert stub.asked[-1][1]["inputs"] == ["a", "b"]
    pick(browser, "#model", "single")
    browser.wait(f"!{SECOND}")
    submit(browser, "classify", text="a")
    assert stub.asked[-1][1]["inputs"] == "a"


@browser_test
@pytest.mark.parametrize("num_labels, num_more", [(77, 67), (11, 1), (10, 0), (2, 0)])
def test_ten_labels_are_shown_and_the_others_on_demand(browser, stub, monkeypatch, num_labels, num_more):
    names = [f"label {number}" for number in range(num_labels)]
    scored = [{"label": name, "score": 2.0 ** -(number + 1)} for number, name in enumerate(names)]
    monkeypatch.setitem(ANSWERS, "/predict", lambda asked: scored)
    stub.reset(INFO | {"labels": names})
    opened(browser, stub, "classify")

    seen = submit(browser, "classify", text="a")
    assert seen.count("label ") == min(10, num_labels)
    assert texts(browser, "#classify .result summary") == ([f"{num_more} more"] if num_more else [])
    assert texts(browser, "#classify .result td:first-child") == names

    # Of the model too, all names can be read.
    browser.run("for (const e of document.querySelectorAll('#classify details')) e.open = true")
    assert browser.run("document.querySelector('#labels').innerText").count(names[-1]) == 1


@browser_test
@pytest.mark.parametrize(
    "labels, first",
    [
        (["card_not_working", "top-up-failed-again", "get new card", "lost it"], "card not working"),
        (["positive", "negative"], "Where is my parcel?"),
        ([], "Where is my parcel?"),
    ],
)
def test_names_of_classes_that_are_phrases_are_the_examples(browser, stub, labels, first):
    stub.reset(INFO | {"labels": labels})
    opened(browser, stub, "classify")
    assert texts(browser, "#classify .example")[0].startswith(first)
    browser.run(EXAMPLE.format("classify"))
    settled(browser, "classify")
    assert stub.asked[-1][1]["inputs"].startswith(first)


EXAMPLE = "document.querySelector('#{} .example').click()"
# Elements with text whose contrast with what is behind them is below 4.5 (WCAG 2.2, 1.4.3).
FAINT = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (color) => { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); };
  const light = () => [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const faint = [];
  for (const e of document.body.querySelectorAll("*")) {
    if (!e.getClientRects().length || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const behind = [];
    for (let up = e; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
    behind.forEach(paint);
    const ground = light();
    paint(getComputedStyle(e)[e.namespaceURI.endsWith("svg") ? "fill" : "color"]);
    const [low, high] = [ground, light()].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) faint.push([e.tagName, e.textContent, (high + 0.05) / (low + 0.05)]);
  }
  return faint;
})()"""
OUTSIDE = """[...document.body.querySelectorAll("*")]
  .filter((e) => !e.closest(".scroll, .spoken") && e.getClientRects().length)
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1)
  .map((e) => e.outerHTML)"""


@browser_test
@pytest.mark.parametrize("dark", [False, True])
def test_each_example_works_fits_a_narrow_phone_and_can_be_read(dark, browser, stub):
    browser.look(width=320, height=640, dark=dark)
    opened(browser, stub)
    for part in PARTS:
        browser.run(f"document.querySelector('#tab-{part}').click()")
        browser.run(EXAMPLE.format(part))
        settled(browser, part)
        assert browser.run(f"document.querySelector('#{part} [role=alert]').textContent") == ""
        assert browser.run("document.documentElement.scrollWidth") <= 320, part
        assert browser.run(OUTSIDE) == [], part
        assert browser.run(FAINT) == [], part
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 24, 28)" if dark else "rgb(255, 255, 255)")


@browser_test
def test_long_words_and_right_to_left_text_fit_a_narrow_phone(browser, stub):
    browser.look(width=320, height=640)
    opened(browser, stub)
    long = "x" * 400 + " Ada " + "صلاح " * 40
    for part, fields in (
        ("tag", {"text": long}),
        ("tokens", {"text": long}),
        ("search", {"query": long, "passages": long}),
        ("attention", {"text": long}),
    ):
        browser.run(f"document.querySelector('#tab-{part}').click()")
        submit(browser, part, **fields)
        assert browser.run("document.documentElement.scrollWidth") <= 320, part
        assert browser.run(OUTSIDE) == [], part
