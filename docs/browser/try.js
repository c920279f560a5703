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

/** A form that asks the model `methods` about its texts; `show` turns their results into elements. */
function form(verb, fields, methods, show) {
  const inputs = fields.map(([, value]) => element("input", { value, required: true, autocomplete: "off" }));
  const labels = fields.map(([label], index) => element("label", {}, label, inputs[index]));
  const button = element("button", {}, verb), shown = element("div");
  const status = element("p", { role: "status" });
  const made = element("form", {}, ...labels, button, status, shown);
  made.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    shown.replaceChildren();
    status.textContent = isLoaded ? "Computing ..." : "Loading the model, 16 MB ...";
    const texts = inputs.map((input) => input.value);
    const answers = await Promise.all(methods.map((method) => ask(method, ...texts)));
    const failed = answers.find(({ error }) => error);
    isLoaded ||= !failed;
    const seconds = answers.reduce((sum, one) => sum + one.seconds, 0);
    status.textContent = failed ? failed.error : `${seconds.toFixed(1)} s on this computer`;
    if (!failed) shown.append(...show(...answers.map(({ result }) => result)));
    button.disabled = false;
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

const guesses = (masks) => masks.map((words) => table(words.map(({ token, score }) => [token, score])));
const comparison = (cosine, follows) => [table([["similarity (cosine)", cosine], ["the second follows (p)", follows]])];

document.getElementById("try-it").replaceChildren(
  form("Fill", [["Text with [MASK]", "The [MASK] was built in the 19th century."]], ["fill"], guesses),
  form(
    "Compare",
    [["First text", "A cat sat on the mat."], ["Second text", "A kitten lay on the rug."]],
    ["similarity", "isNext"],
    comparison,
  ),
);
