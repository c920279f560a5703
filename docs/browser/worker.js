// Computes in the background, so that the page stays responsive: {id, method, texts} in, {id, result or error} out.

import { load } from "./bert.js";

async function read(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name}: the web server answers ${response.status}; build the site again`);
  return response.arrayBuffer();
}

let model;

self.onmessage = async ({ data: { id, method, texts } }) => {
  try {
    const bert = await (model ??= load(read));
    const began = performance.now(), result = bert[method](...texts);
    self.postMessage({ id, result, seconds: (performance.now() - began) / 1000 });
  } catch (error) {
    if (!(error instanceof RangeError)) model = undefined; // a file that could not be read is tried again
    self.postMessage({ id, error: error.message });
  }
};
