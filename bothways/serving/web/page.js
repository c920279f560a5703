// The page on which people try a model. GET info says which parts to show; each part sends one request and shows the
// answer. Whatever comes from the user or the server becomes text nodes, never markup.
"use strict";

const MASK = "[MASK]";
const MOST_DRAWN = 48; // tokens of an attention matrix
const LONGEST_LABEL = 12; // characters of a token beside the matrix
const MOST_BARS = 10; // labels of an answer that are shown at once; the others on demand
const MOST_LABELS = 20; // of a model, likewise
const MOST_NAMED = 3; // labels that serve as examples
const EXPLAINED = ["classes", "tokens", "spans"]; // heads whose predictions are explained
const SVG = "http://www.w3.org/2000/svg";

const NORMANS =
  "The Normans gave their name to Normandy, a region in France. They were descended from Norse raiders and pirates " +
  "from Denmark, Iceland and Norway who, under their leader Rollo, agreed to swear fealty to King Charles III.";
const OFFICE = [
  "The radiators are controlled by the dial in the hall.",
  "Ask Helen for days off at least two weeks ahead.",
  "Put out the grey bin on Tuesday evening.",
  "Visitors join the network called Garden. Its key hangs on the fridge.",
  "Wash your own cup after coffee.",
].join("\n");

const SINGLES = [
  { text: "Where is my parcel? It should have been here on Monday." },
  { text: "A quiet, generous film that stays with you for days." },
];
const PAIRS = [
  { text: "A man plays the guitar on a stage.", pair: "Somebody makes music." },
  { text: "The shop opens at nine.", pair: "It is closed at ten in the morning." },
];

// head: which head of the model the part needs; none: every model has what it needs. examples: for every model the
// same, or a function of the facts about the model.
const PARTS = {
  documents: {
    path: "search",
    body: ({ query, how, filter }) => ({ query, how, ...(filter.trim() && { filter }) }),
    show: showHits,
    examples: [],
  },
  fill: {
    head: "masked_words",
    path: "fill",
    body: ({ text }) => ({ inputs: text }),
    show: showFilled,
    examples: [
      { text: "He plays the [MASK] in an orchestra." },
      { text: "She opened the [MASK] and read a [MASK]." },
    ],
  },
  classify: {
    head: "classes",
    path: "predict",
    body: ({ text, pair }) => ({ inputs: pair.trim() ? [text, pair] : text }),
    show: showLabels,
    examples: ({ reads_pairs, labels }) => (reads_pairs ? PAIRS : namedExamples(labels || [])),
  },
  decide: {
    path: "decide",
    body: ({ text, options, question }) => ({
      inputs: text, options: linesOf(options), ...(question.trim() && { question }),
    }),
    show: showDecision,
    examples: [
      { text: "My parcel never came, and nobody answers.", options: "a late or lost parcel\na wrong invoice\npraise" },
      { text: "A quiet, generous film.", options: "negative\npositive", question: "The sentiment is" },
    ],
  },
  tag: {
    head: "tokens",
    path: "tag",
    body: ({ text }) => ({ inputs: text }),
    show: showEntities,
    examples: [
      { text: "Ada Lovelace met Charles Babbage in London." },
      { text: "🎉 Angela Merkel spoke at the United Nations in New York." },
    ],
  },
  answer: {
    head: "spans",
    path: "answer",
    body: ({ question, context }) => ({ question, context }),
    show: showAnswer,
    examples: [
      { question: "In what country is Normandy?", context: NORMANS },
      { question: "Who was the leader of the Norse raiders?", context: NORMANS },
    ],
  },
  explain: {
    path: "explain",
    body: ({ text, pair }) => ({ inputs: pair.trim() ? [text, pair] : text }),
    show: showEffects,
    examples: ({ reads_pairs, labels }) => (reads_pairs ? PAIRS : namedExamples(labels || [])),
  },
  next: {
    head: "next_sentence",
    path: "next",
    body: ({ first, second }) => ({ inputs: [first, second] }),
    show: showNext,
    examples: [{ first: "He opened the door and went in.", second: "The room behind it was dark and cold." }],
  },
  compare: {
    path: "similarity",
    body: ({ first, second }) => ({ inputs: { source_sentence: first, sentences: [second] } }),
    show: showSimilarity,
    examples: [
      { first: "The bus was late again.", second: "Once more we waited for the coach." },
      { first: "The bus was late again.", second: "Add two eggs and a pinch of salt." },
    ],
  },
  search: {
    path: "similarity",
    body: ({ query, passages }) => ({ inputs: { source_sentence: query, sentences: linesOf(passages) } }),
    show: showRanking,
    examples: [
      { query: "How do guests get online?", passages: OFFICE },
      { query: "when is the rubbish collected", passages: OFFICE },
    ],
  },
  tokens: {
    path: "tokenize",
    body: ({ text }) => ({ inputs: text }),
    show: showTokens,
    examples: [{ text: "Unbelievably, the café stayed open." }, { text: "👩‍🚀 Tokens of naïve 日本語" }],
  },
  attention: {
    path: "attention",
    // What is left open, the server chooses.
    body: ({ text, layer, head }) => ({
      inputs: text, ...(layer && { layer: Number(layer) }), ...(head && { head: Number(head) }),
    }),
    show: showAttention,
    examples: [
      { text: "The cat sat on the mat because it was warm." },
      { text: "The trophy did not fit in the case." },
    ],
  },
};

const byId = (id) => document.getElementById(id);
const model = { info: null, name: null, key: "" };
const running = new Map(); // part -> AbortController of its request
let retry = null; // what to do once there is a key

class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// --- Elements ---

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function gauge(score, words) {
  const made = element("span", { className: "gauge" }, words);
  made.style.setProperty("--share", Math.min(1, Math.max(0, score)));
  return made;
}

function table(caption, heads, rows, numeric) {
  const kind = (column) => (numeric.includes(column) ? "number" : "");
  const titles = heads.map((head, column) => element("th", { scope: "col", className: kind(column) }, head));
  const cells = (row) => row.map((cell, column) => element("td", { className: kind(column) }, cell));
  return element(
    "table",
    {},
    ...(caption ? [element("caption", {}, caption)] : []),
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
  );
}

const percent = (score) => `${(100 * score).toFixed(1)}%`;
const decimal = (score) => score.toFixed(3).replace(/^-(0\.0+)$/, "$1");
const signed = (effect) => `${effect < 0 ? "−" : "+"}${Math.abs(effect).toFixed(3)}`;
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

// The server counts Unicode code points, JavaScript UTF-16 units: an emoji is one of the former and two of the latter.
const codePoints = (text) => Array.from(text);

// --- Requests ---

async function ask(path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (model.key) headers.Authorization = `Bearer ${model.key}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal,
      credentials: "same-origin",
    });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Failure("the server does not answer; is it still running?", 0);
  }
  let answer = null;
  try {
    answer = await response.json();
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    if (response.ok) throw new Failure("the answer of the server is not JSON", response.status);
  }
  if (!response.ok) {
    const words = answer && answer.error ? String(answer.error) : `the server answered with status ${response.status}`;
    throw new Failure(words.split(/\s+/).join(" "), response.status);
  }
  return answer;
}

function askForKey(again) {
  const wasAsked = Boolean(model.key);
  retry = again;
  model.key = "";
  byId("key-form").hidden = false;
  byId("page-error").textContent = wasAsked ? "the server does not accept this key" : "";
  byId("key").focus();
}

// --- Results: each returns the nodes to show and one sentence for the status line ---

function showFilled(answer, { text }) {
  const masks = Array.isArray(answer[0]) ? answer : [answer];
  const pieces = text.split(MASK);
  const nodes = [];
  if (pieces.length === masks.length + 1) {
    const filled = pieces.flatMap((piece, n) => (n ? [element("mark", {}, masks[n - 1][0].token), piece] : [piece]));
    nodes.push(element("p", { className: "text", dir: "auto" }, ...filled));
  }
  const tables = masks.map((guesses, n) => {
    const rows = guesses.map(({ token, score }) => [token, gauge(score, percent(score))]);
    return table(masks.length > 1 ? `Mask ${n + 1}` : "", ["Word", "Probability"], rows, [1]);
  });
  nodes.push(element("div", { className: "tables" }, ...tables));
  return [nodes, `Best: ${masks.map(([best]) => `${best.token}, ${percent(best.score)}`).join("; ")}`];
}

function showLabels(answer) {
  const sorted = [...answer].sort((one, other) => other.score - one.score);
  if (model.info.task === "regress") {
    const numbers = sorted.map(({ score }) => decimal(score)).join(", ");
    return [[], `Number: ${numbers}`];
  }
  if (!sorted.length) return [[], "No label"];
  const rows = sorted.map(({ label, score }) => [label, gauge(score, percent(score))]);
  const bars = (some) => table("", ["Label", "Probability"], some, [1]);
  const nodes = [bars(rows.slice(0, MOST_BARS))];
  const rest = rows.slice(MOST_BARS);
  if (rest.length) nodes.push(element("details", {}, element("summary", {}, `${rest.length} more`), bars(rest)));
  return [nodes, `${sorted[0].label}, ${percent(sorted[0].score)}`];
}

function showDecision({ label, score, probabilities, none }) {
  const rows = Object.entries(probabilities).sort(([, one], [, other]) => other - one);
  if (none) rows.push(["(none of these)", none]);
  const bars = rows.map(([name, share]) => [name, gauge(share, percent(share))]);
  return [[table("", ["Option", "Probability"], bars, [1])], `${label ?? "None of these"}, ${percent(score)}`];
}

// A checkpoint holds no texts, but the names of its classes: those that are words say what it was trained for.
function namedExamples(labels) {
  const sentences = labels.map((label) => label.replace(/[_\-\s]+/g, " ").trim());
  const named = sentences.filter((sentence) => sentence.split(" ").length >= 3);
  if (named.length < MOST_NAMED) return SINGLES;
  const chosen = Array.from({ length: MOST_NAMED }, (_, n) => named[Math.floor((n + 0.5) * named.length / MOST_NAMED)]);
  return chosen.map((text) => ({ text }));
}

function showEntities(entities, { text }) {
  const points = codePoints(text);
  const names = [...new Set([...(model.info.labels || []), ...entities.map(({ label }) => label)].map(kindOf))];
  const nodes = [];
  let reached = 0;
  const inOrder = [...entities].sort((one, other) => one.start - other.start || other.end - one.end);
  for (const { label, start, end } of inOrder) {
    if (start < reached) continue; // inside another entity: in the table only
    nodes.push(points.slice(reached, start).join(""));
    const series = `series${names.indexOf(kindOf(label)) % 6}`;
    nodes.push(element("mark", { className: series }, points.slice(start, end).join("")), element("small", {}, label));
    reached = end;
  }
  nodes.push(points.slice(reached).join(""));
  const shown = [element("p", { className: "text", dir: "auto" }, ...nodes)];
  if (entities.length) {
    const rows = entities.map(({ label, start, end, score }) => [
      points.slice(start, end).join(""), label, `${start}–${end}`, gauge(score, percent(score)),
    ]);
    shown.push(scrolled("Entities", table("", ["Entity", "Label", "Characters", "Score"], rows, [2, 3])));
  }
  return [shown, entities.length === 1 ? "1 entity" : `${entities.length || "No"} entities`];
}

const kindOf = (label) => label.replace(/^[BIES]-/, "");

function showAnswer({ answer, start, end, score }, { context }) {
  if (!answer || end <= start) return [[], "The passage does not say"];
  const points = codePoints(context);
  const parts = [points.slice(0, start).join(""), points.slice(start, end).join(""), points.slice(end).join("")];
  const marked = element("p", { className: "text", dir: "auto" }, parts[0], element("mark", {}, parts[1]), parts[2]);
  const place = element("p", { className: "note" }, `Characters ${start}–${end}, score ${percent(score)}`);
  return [[marked, place], `Answer: ${answer}`];
}

// The stronger the colour of a word, the larger its effect, compared with the largest of the answer.
function showEffects({ label, score, words }, { text, pair }) {
  const largest = Math.max(...words.map(({ effect }) => Math.abs(effect)), 1e-9);
  const marked = (shown, number) => {
    const points = codePoints(shown);
    const nodes = [];
    let reached = 0;
    const inOrder = words.filter((word) => word.text === number).sort((one, other) => one.start - other.start);
    for (const { start, end, effect } of inOrder) {
      const className = effect < 0 ? "effect against" : "effect";
      const word = element("mark", { className, title: signed(effect) }, points.slice(start, end).join(""));
      word.style.setProperty("--share", Math.abs(effect) / largest);
      nodes.push(points.slice(reached, start).join(""), word);
      reached = end;
    }
    return element("p", { className: "text", dir: "auto" }, ...nodes, points.slice(reached).join(""));
  };
  const texts = [marked(text, 0), ...(pair.trim() ? [marked(pair, 1)] : [])];
  const rows = words.slice(0, MOST_BARS).map(({ word, effect }) => [word, signed(effect)]);
  const caption = "What the score loses without a word: a plus supports the prediction, a minus speaks against it.";
  return [[...texts, table(caption, ["Word", "Effect"], rows, [1])], `${label ?? "Score"}, ${decimal(score)}`];
}

function showNext(answer) {
  if (Array.isArray(answer)) return showLabels(answer);
  const score = typeof answer === "number" ? answer : answer.score;
  const rows = [["follows", gauge(score, percent(score))]];
  return [[table("", ["The second text", "Probability"], rows, [1])], `Follows: ${percent(score)}`];
}

function showSimilarity([similarity]) {
  const bar = gauge(similarity, "");
  bar.classList.add("wide");
  const note = "Cosine of the two vectors: 1 for the same direction, 0 for unrelated directions.";
  return [[bar, element("p", { className: "note" }, note)], `Similarity ${decimal(similarity)}`];
}

function showRanking(similarities, { passages }) {
  const lines = linesOf(passages);
  const scored = similarities.map((score, n) => ({ score, line: lines[n] }));
  const ranked = scored.sort((one, other) => other.score - one.score);
  const rows = ranked.map(({ score, line }, n) => [String(n + 1), line, gauge(score, decimal(score))]);
  const shown = table("", ["Rank", "Passage", "Similarity"], rows, [0, 2]);
  return [[shown], `${counted(rows.length, "passage")}; first: ${ranked.length ? ranked[0].line : "none"}`];
}

function showHits({ hits, passages, relevant }) {
  const nodes = hits.map(({ path, line, page, heading, text, match: [start, end], score, weak }) => {
    const points = codePoints(text);
    const parts = [points.slice(0, start), points.slice(start, end), points.slice(end)].map((part) => part.join(""));
    const place = `${path}${page == null ? "" : `, page ${page}`}${line == null ? "" : `:${line}`}`;
    const head = element("p", { className: "place" }, place);
    if (heading) head.append(element("span", { className: "note" }, `  ${heading}`));
    head.append(element("span", { className: "note" }, `  ${decimal(score)}${weak ? " weak" : ""}`));
    return element(
      "article", {}, head, element("p", { className: "text", dir: "auto" }, parts[0], element("mark", {}, parts[1]), parts[2]),
    );
  });
  const found = hits.length ? `${counted(hits.length, "passage")} of ${passages}` : "No passage found";
  return [nodes, relevant || !hits.length ? found : `No clear match; the nearest ${found}`];
}

function showTokens([tokens]) {
  const items = tokens.map(({ id, text, special, start, stop }) => {
    const place = special || start == null ? "special" : `${start}–${stop}`;
    return element(
      "li", { className: special ? "special" : "" },
      element("span", {}, text), element("small", {}, element("b", { className: "spoken" }, "id "), String(id)),
      element("small", {}, element("b", { className: "spoken" }, "characters "), place),
    );
  });
  const limit = model.info.max_input_length;
  const note = element("p", { className: "note" }, "Under each token: its id, and the characters of the text from–to.");
  const sentence = counted(items.length, "token") + (limit ? ` of at most ${limit}` : "");
  return [[element("ol", { className: "tokens" }, ...items), note], sentence];
}

function showAttention({ tokens, weights, layer, head }) {
  const num = Math.min(tokens.length, MOST_DRAWN);
  const kept = tokens.slice(0, num);
  const shorten = (token) => {
    const points = codePoints(token);
    return points.length > LONGEST_LABEL ? `${points.slice(0, LONGEST_LABEL - 1).join("")}…` : token;
  };
  const labels = kept.map(shorten);
  const cell = 24;
  const margin = 16 + 8 * Math.max(...labels.map((label) => codePoints(label).length));
  const size = margin + num * cell + 1;
  const name = `Attention of layer ${layer}, head ${head}: a row for each token, a column for each token it looks at.`;
  const picture = drawn(
    "svg", { width: size, height: size, viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": name },
  );
  labels.forEach((label, n) => {
    const middle = margin + (n + 0.5) * cell;
    const upwards = `translate(${middle} ${margin - 8}) rotate(-90)`;
    picture.append(
      drawn("text", { x: margin - 8, y: middle, "text-anchor": "end", "dominant-baseline": "central" }, label),
      drawn("text", { transform: upwards, "dominant-baseline": "central" }, label),
    );
  });
  kept.forEach((from, row) => kept.forEach((to, column) => {
    const weight = weights[row][column];
    const place = { x: margin + column * cell, y: margin + row * cell, width: cell, height: cell };
    const words = drawn("title", {}, `${from} → ${to}: ${percent(weight)}`);
    picture.append(drawn("rect", { ...place, class: "cell", "fill-opacity": Math.max(0, Math.min(1, weight)) }, words));
  }));
  picture.append(drawn("rect", { x: margin, y: margin, width: num * cell, height: num * cell, class: "frame" }));
  const caption = "Rows look at columns; the stronger the colour of a cell, the more. Each row sums to 100%.";
  const figure = element("figure", {}, element("figcaption", {}, caption), scrolled("Attention matrix", picture));
  const rows = tokens.map((token, row) => [token, strongest(tokens, weights[row])]);
  const list = element(
    "details", {}, element("summary", {}, "As a list"), table("", ["Token", "Looks mostly at"], rows, []),
  );
  const cut = num < tokens.length ? `; the first ${num} are drawn` : "";
  return [[figure, list], `Layer ${layer}, head ${head}, ${counted(tokens.length, "token")}${cut}`];
}

function strongest(tokens, weights) {
  const order = weights.map((weight, n) => [weight, n]).sort(([one], [other]) => other - one).slice(0, 3);
  return order.map(([weight, n]) => `${tokens[n]} ${percent(weight)}`).join(", ");
}

// Wide content scrolls by itself, also by keyboard.
function scrolled(name, ...children) {
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": name }, ...children);
}

// --- Parts ---

function prepare(name) {
  const part = PARTS[name];
  const panel = byId(name);
  const form = panel.querySelector("form");
  const status = element("p", { className: "status", role: "status" });
  const error = element("p", { className: "error", role: "alert" });
  const result = element("div", { className: "result" });
  form.append(element("div", { className: "row examples", role: "group", "aria-label": "Examples", hidden: true }));
  panel.append(status, error, result);

  async function send() {
    stop(name);
    const fields = Object.fromEntries(new FormData(form));
    for (const key of Object.keys(fields)) fields[key] = fields[key].replace(/\r\n?/g, "\n");
    const request = new AbortController();
    running.set(name, request);
    status.textContent = "Working…";
    status.classList.add("busy");
    error.textContent = "";
    result.classList.add("old");
    result.setAttribute("aria-busy", "true");
    const begun = performance.now();
    try {
      const body = { ...part.body(fields), ...(model.name && { model: model.name }) };
      const answer = await ask(part.path, { body, signal: request.signal });
      const [nodes, sentence] = part.show(answer, fields);
      result.replaceChildren(...nodes);
      const time = element("small", {}, ` ${Math.round(performance.now() - begun)} ms`);
      status.replaceChildren(element("span", { dir: "auto" }, sentence), time);
    } catch (problem) {
      if (problem.name === "AbortError") return;
      result.replaceChildren();
      status.textContent = "";
      const isKnown = problem instanceof Failure;
      if (isKnown && problem.status === 401) askForKey(send);
      else error.textContent = isKnown ? problem.message : "the answer of the server is not of the expected form";
    } finally {
      if (running.get(name) === request) {
        running.delete(name);
        status.classList.remove("busy");
        result.classList.remove("old");
        result.removeAttribute("aria-busy");
      }
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  for (const select of form.querySelectorAll("select")) {
    select.addEventListener("change", () => { if (result.hasChildNodes()) send(); });
  }
}

function showExamples(name, info) {
  const { examples } = PARTS[name];
  const form = byId(name).querySelector("form");
  const buttons = (typeof examples === "function" ? examples(info) : examples).map((example) => {
    const second = example.second || example.pair;
    const label = Object.values(example)[0] + (second ? ` / ${second}` : "");
    const button = element("button", { type: "button", className: "example" }, label);
    button.addEventListener("click", () => {
      for (const field of form.querySelectorAll("textarea, input")) field.value = example[field.name] || "";
      form.requestSubmit();
    });
    return button;
  });
  const group = form.querySelector(".examples");
  group.hidden = !buttons.length;
  group.replaceChildren(element("span", { className: "note" }, "Examples:"), ...buttons);
}

function stop(name) {
  if (running.has(name)) running.get(name).abort();
}

function clear(name) {
  stop(name);
  running.delete(name);
  const panel = byId(name);
  panel.querySelector(".status").textContent = "";
  panel.querySelector(".status").classList.remove("busy");
  panel.querySelector(".error").textContent = "";
  const result = panel.querySelector(".result");
  result.classList.remove("old");
  result.removeAttribute("aria-busy");
  result.replaceChildren();
}

// --- Tabs (WAI-ARIA Authoring Practices, "Tabs with automatic activation") ---

const tabs = () => [...document.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);

function select(tab) {
  for (const other of document.querySelectorAll("[role=tab]")) {
    const isChosen = other === tab;
    other.setAttribute("aria-selected", String(isChosen));
    other.tabIndex = isChosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !isChosen;
  }
}

function choose(tab) {
  select(tab);
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

function moveInTabs(event) {
  const shown = tabs();
  const at = shown.indexOf(event.target);
  const goal = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
  if (at < 0 || goal === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const tab = shown[(goal + shown.length) % shown.length];
  choose(tab);
  tab.focus();
}

function selectFromAddress() {
  const named = tabs().find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  const current = tabs().find((tab) => tab.getAttribute("aria-selected") === "true");
  select(named || current || tabs()[0]);
}

// --- The model ---

function isPossible(name, info) {
  const { head } = PARTS[name];
  if (name === "explain") return (info.heads || []).some((one) => EXPLAINED.includes(one));
  if (name === "decide") return (info.routes || []).includes("decide");
  if (name === "documents") return Boolean(info.store);
  if (name === "attention") return info.num_layers > 0 && info.num_heads > 0;
  return !head || (info.heads || []).includes(head);
}

function numbered(select, count) {
  const before = select.value;
  const numbers = Array.from({ length: count || 0 }, (_, n) => element("option", { value: n }, String(n)));
  select.replaceChildren(element("option", { value: "" }, "the clearest"), ...numbers);
  if (before !== "" && Number(before) < count) select.value = before;
}

function describe(info) {
  model.info = info;
  const several = info.models && info.models.length > 1;
  byId("choice").hidden = !several;
  if (several) {
    byId("model").replaceChildren(...info.models.map((name) => element("option", { value: name }, name)));
    byId("model").value = model.name ?? (info.models.includes(info.model_id) ? info.model_id : info.models[0]);
    model.name ??= byId("model").value;
  }
  const facts = [
    info.model_id,
    info.num_layers && counted(info.num_layers, "layer"),
    info.max_input_length && `up to ${info.max_input_length} tokens`,
  ];
  byId("summary").textContent = facts.filter(Boolean).join(", ");
  document.title = info.model_id ? `${info.model_id} – Bothways` : "Bothways";
  describeLabels(info.labels || []);
  describePairs(info.reads_pairs);
  numbered(byId("attention-layer"), info.num_layers);
  numbered(byId("attention-head"), info.num_heads);
  for (const name of Object.keys(PARTS)) {
    clear(name);
    showExamples(name, info);
    const tab = byId(`tab-${name}`);
    tab.hidden = !isPossible(name, info);
    if (tab.hidden) tab.setAttribute("aria-selected", "false");
  }
  byId("tabs").hidden = false;
  selectFromAddress();
}

// true and false: what the model was trained on; null: not known, as of many published models.
function describePairs(readsPairs) {
  const second = byId("classify-pair");
  byId("pair-field").hidden = readsPairs === false;
  second.required = readsPairs === true;
  byId("pair-label").textContent = readsPairs ? "Second text" : "Second text, for models of pairs (optional)";
  if (readsPairs === false) second.value = "";
}

function describeLabels(labels) {
  const all = labels.join(", ");
  const isShort = labels.length <= MOST_LABELS;
  const name = `${labels.length} labels, such as ${labels.slice(0, 3).join(", ")}`;
  byId("labels").hidden = !labels.length;
  byId("labels").replaceChildren(
    isShort
      ? element("p", {}, `Labels: ${all}`)
      : element("details", {}, element("summary", {}, name), element("p", {}, all)),
  );
}

async function load() {
  stop("info");
  const request = new AbortController();
  running.set("info", request);
  byId("page-error").textContent = "";
  try {
    const address = model.name ? `info?model=${encodeURIComponent(model.name)}` : "info";
    const info = await ask(address, { signal: request.signal });
    describe(info);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (problem.status === 401) askForKey(load);
    else byId("page-error").textContent = problem.message;
  }
}

for (const name of Object.keys(PARTS)) prepare(name);
for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => choose(tab));
byId("tabs").addEventListener("keydown", moveInTabs);
addEventListener("hashchange", () => { if (model.info) selectFromAddress(); });
byId("insert-mask").addEventListener("click", () => {
  const field = byId("fill-text");
  field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
  field.focus();
});
byId("model").addEventListener("change", () => {
  model.name = byId("model").value;
  load();
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  model.key = byId("key").value.trim();
  byId("key").value = "";
  byId("key-form").hidden = true;
  byId("page-error").textContent = "";
  const again = retry;
  retry = null;
  if (again) again();
});
load();
