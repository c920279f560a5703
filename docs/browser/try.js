// The form on the page "How a BERT works": the packaged model fills masks and compares texts, in the browser.

const waiting = new Map();
let worker, lastId = 0, isLoaded = false;

function startWorker() {
  const started = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  started.onmessage = ({ data }) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  };
  started.onerror = (event) => {
    // A file of the worker is missing or broken: it answers nothing, and the next question starts another one.
    event.preventDefault();
    worker = undefined;
    isLoaded = false;
    const error = `the model cannot be started (${event.message || "worker.js is not loaded"}); reload the page`;
    for (const resolve of waiting.values()) resolve({ error });
    waiting.clear();
  };
  return started;
}

function ask(method, ...texts) {
  return new Promise((resolve) => {
    waiting.set(++lastId, resolve);
    worker ??= startWorker();
    worker.postMessage({ id: lastId, method, texts });
  });
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/**
 * A form about texts, with a button for each action: [verb, methods, show].
 *
 * methods: what the model is asked about the texts. show: a function from the answers and the texts to elements.
 */
function form(fields, actions) {
  const inputs = fields.map(([, value]) => element("input", { value, required: true, autocomplete: "off" }));
  const labels = fields.map(([label], index) => element("label", {}, label, inputs[index]));
  const buttons = actions.map(([verb]) => element("button", {}, verb)), shown = element("div");
  const status = element("p", { role: "status" });
  const made = element("form", {}, ...labels, ...buttons, status, shown);
  const disable = (isDisabled) => buttons.forEach((button) => (button.disabled = isDisabled));
  made.onsubmit = async (event) => {
    event.preventDefault();
    const [, methods, show] = actions[Math.max(0, buttons.indexOf(event.submitter))];
    disable(true);
    shown.replaceChildren();
    status.textContent = isLoaded ? "Computing ..." : "Loading the model, 16 MB ...";
    const texts = inputs.map((input) => input.value);
    const answers = await Promise.all(methods.map((method) => ask(method, ...texts)));
    const failed = answers.find(({ error }) => error);
    isLoaded ||= !failed;
    const seconds = answers.reduce((sum, one) => sum + one.seconds, 0);
    status.textContent = failed ? failed.error : `${seconds.toFixed(1)} s on this computer`;
    if (!failed) shown.append(...show(answers.map(({ result }) => result), texts));
    disable(false);
  };
  return made;
}

function table(rows) {
  const cells = (name, share) => [
    element("th", { scope: "row" }, name),
    element("td", {}, element("meter", { value: Math.max(0, share), ariaHidden: "true" })),
    element("td", {}, share.toFixed(2)),
  ];
  return element("table", {}, element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(...row)))));
}

const guesses = ([masks]) => masks.map((words) => table(words.map(({ token, score }) => [token, score])));
const comparison = ([cosine, follows]) => [table([["similarity (cosine)", cosine], ["the second follows (p)", follows]])];

/** Both texts with their words marked, by the cosine that is lost without each. */
function effects([{ score, words }], texts) {
  const largest = Math.max(...words.map(({ effect }) => Math.abs(effect)), 1e-9);
  const shown = texts.map((text, number) => {
    const chars = [...text], nodes = [];
    let reached = 0;
    for (const { word, start, end, effect } of words.filter((one) => one.text === number)) {
      const title = `${effect < 0 ? "−" : "+"}${Math.abs(effect).toFixed(3)}`;
      const mark = element("mark", { className: effect < 0 ? "against" : "", title }, word);
      mark.style.setProperty("--share", Math.abs(effect) / largest);
      nodes.push(chars.slice(reached, start).join(""), mark);
      reached = end;
    }
    return element("p", { className: "text", dir: "auto" }, ...nodes, chars.slice(reached).join(""));
  });
  const strongest = [...words].sort((one, other) => Math.abs(other.effect) - Math.abs(one.effect)).slice(0, 5);
  const rows = strongest.map(({ word, effect }) => [word, effect]);
  const note = `Similarity ${score.toFixed(2)}, and what it loses without each word. Dotted: it gains.`;
  return [...shown, element("p", {}, note), table(rows)];
}

document.getElementById("try-it").replaceChildren(
  form([["Text with [MASK]", "The [MASK] was built in the 19th century."]], [["Fill", ["fill"], guesses]]),
  form(
    [["First text", "A cat sat on the mat."], ["Second text", "A kitten lay on the rug."]],
    [["Compare", ["similarity", "isNext"], comparison], ["Explain", ["explain"], effects]],
  ),
);
