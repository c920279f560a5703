// BERT in plain JavaScript: the packaged model in a browser, without a server.
//
// Reads packed weights (bothways/model/checkpoint/formats/packed.py) and computes what
// bothways/inference/backends/forward.py does, for one text: its tokens, the encoder, guesses for masks, a vector,
// whether a text follows another, and which words make two texts alike. Letters: T tokens, H hidden size, I inputs and
// O outputs of a layer, D size of a head.

const GROUP = 32; // numbers that share a scale
const MOST_EXPLAINED = 40; // words of two texts: each is left out once, and what is left is read again
const NORMAL = [1.5957699, 0.07266617, -6.518993e-5, -1.1061239e-4, 7.9294914e-6, -2.6452688e-7, 3.5123475e-9];

// --- tokens ----------------------------------------------------------------------------------------------------------

function inRanges(ranges) {
  const parts = ranges.split(" ").map((range) => range.split("-").map((point) => `\\u{${point}}`).join("-"));
  return new RegExp(`[${parts.join("")}]`, "u");
}

/** WordPiece of an uncased BERT. tables: bothways/text/tokenizer/unicode_tables.json. */
export class Tokenizer {
  constructor(vocabulary, tables) {
    this.tokens = vocabulary.trimEnd().split("\n");
    this.ids = new Map(this.tokens.map((token, index) => [token, index]));
    this.longest = Math.max(...this.tokens.map((token) => token.length));
    for (const name of ["removed", "spaces", "chinese", "punctuation", "marks"]) this[name] = inRanges(tables[name]);
  }

  /** Words in lower case without accents; punctuation and ideographs are words of their own. */
  words(text) {
    const clean = [...text.replace(/\p{Surrogate}/gu, "")].map((char) => {
      if (this.removed.test(char)) return "";
      if (this.spaces.test(char)) return " ";
      return this.chinese.test(char) ? ` ${char} ` : char;
    });
    const letters = [...clean.join("").normalize("NFD")].map((char) => {
      if (this.marks.test(char)) return "";
      const lower = char.toLowerCase();
      return this.punctuation.test(char) ? ` ${lower} ` : lower;
    });
    return letters.join("").split(" ").filter(Boolean);
  }

  /** The ids of the longest pieces of a word, from the left. */
  pieces(word) {
    const chars = [...word], pieces = [], unknown = [this.ids.get("[UNK]")];
    if (chars.length > 100) return unknown;
    for (let start = 0, end; start < chars.length; start = end) {
      let id;
      for (end = Math.min(chars.length, start + this.longest); end > start; end--) {
        id = this.ids.get((start ? "##" : "") + chars.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return unknown;
      pieces.push(id);
    }
    return pieces;
  }

  /** {ids, segments} of a text, or of a pair, in which [MASK] is as any other characters. */
  encode(...texts) {
    const ids = [this.ids.get("[CLS]")], segments = [0];
    texts.forEach((text, segment) => {
      ids.push(...this.idsOf(text), this.ids.get("[SEP]"));
      while (segments.length < ids.length) segments.push(segment);
    });
    return { ids, segments };
  }

  /** {ids, segments} of a text in which [MASK] is the mask. */
  encodeMasked(text) {
    const mask = this.ids.get("[MASK]");
    const parts = text.split("[MASK]").map((part, index) => [...(index ? [mask] : []), ...this.idsOf(part)]);
    const ids = [this.ids.get("[CLS]"), ...parts.flat(), this.ids.get("[SEP]")];
    return { ids, segments: ids.map(() => 0) };
  }

  /** Where the words of a text are, [start, end) in code points: split_words of bothways/text/data/annotations.py. */
  spans(chars) {
    const spans = [];
    let isInside = false; // the last span goes on with the next letter
    chars.forEach((char, index) => {
      if (/\p{Surrogate}/u.test(char) || this.removed.test(char)) return;
      const isAlone = this.chinese.test(char) || this.punctuation.test(char);
      if (this.spaces.test(char)) {
        isInside = false;
      } else if (isInside && !isAlone) {
        spans.at(-1)[1] = index + 1;
      } else {
        spans.push([index, index + 1]);
        isInside = !isAlone;
      }
    });
    return spans;
  }

  /** The words of a text: {word, start, end, rest}; rest: the text without the word. */
  cuts(text) {
    const chars = [...text];
    return this.spans(chars).map(([start, end]) => {
      return { word: chars.slice(start, end).join(""), start, end, rest: withoutWord(chars, start, end) };
    });
  }

  idsOf(text) {
    return [...this.words(text)].flatMap((word) => [...this.pieces(word)]);
  }
}

// --- texts without a word --------------------------------------------------------------------------------------------

const SPACE = /[\p{White_Space}\x1c-\x1f]/u, LETTER = /[\p{L}\p{N}]/u; // str.isspace, str.isalnum

/** The text without the code points [start, end), its word: Cut.apply of bothways/inference/explanation.py. */
function withoutWord(chars, start, end) {
  const isSpace = (char) => char !== undefined && SPACE.test(char);
  const isLetter = (char) => char !== undefined && LETTER.test(char);
  const before = chars[start - 1], after = chars[end];
  const first = isSpace(before) && (after === undefined || isSpace(after)) ? start - 1 : start;
  const last = before === undefined && isSpace(after) ? end + 1 : end;
  const gap = isLetter(before) && isLetter(after) ? " " : ""; // the words on both sides stay the words that they are
  return chars.slice(0, first).join("") + gap + chars.slice(last).join("");
}

// --- weights ---------------------------------------------------------------------------------------------------------

function halfToFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? (fraction ? NaN : sign * Infinity) : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** A file of safetensors with packed matrices, as float32. bits: of each matrix, by name. */
class Weights {
  constructor(buffer, bits) {
    const size = Number(new DataView(buffer).getBigUint64(0, true));
    this.header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    this.buffer = buffer;
    this.first = 8 + size;
    this.bits = bits;
  }

  bytes(name) {
    const [start, end] = this.header[name].data_offsets;
    return new Uint8Array(this.buffer, this.first + start, end - start);
  }

  vector(name) {
    const bytes = this.bytes(name);
    return Float32Array.from({ length: bytes.length / 2 }, (_, i) => halfToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8)));
  }

  /** A function that writes row r of a matrix to an array, at a place. */
  rows(name) {
    if (!(name in this.bits)) {
      const values = this.vector(name), width = this.header[name].shape[1];
      return (row, to, at) => to.set(values.subarray(row * width, (row + 1) * width), at);
    }
    const [numRows, groups] = this.header[`${name}.scales`].shape;
    const codes = this.bytes(`${name}.codes`), scales = this.vector(`${name}.scales`), bits = this.bits[name];
    const width = groups * GROUP, highBits = bits === 8 ? 4 : bits - 4, middle = 2 ** (bits - 1);
    const half = (numRows * width) / 2, mask = (1 << highBits) - 1, shift = Math.log2(8 / highBits); // 1 << shift in a byte
    return (row, to, at) => {
      for (let column = 0, index = row * width; column < width; column += GROUP) {
        const scale = scales[row * groups + column / GROUP];
        for (let place = 0; place < GROUP; place++, index++) {
          let code = (codes[index >> 1] >> (4 * (index & 1))) & 15;
          if (highBits) {
            const inByte = index & ((1 << shift) - 1);
            code |= ((codes[half + (index >> shift)] >> (highBits * inByte)) & mask) << 4;
          }
          to[at + column + place] = (code - middle) * scale;
        }
      }
    };
  }

  /** A whole matrix, or several with the same inputs one below the other: {weight [O, I], bias [O]}. */
  linear(...names) {
    const weights = [], biases = [];
    for (const name of names) {
      const bias = this.vector(`${name}.bias`), row = this.rows(`${name}.weight`);
      const stored = this.header[`${name}.weight.scales`];
      const width = stored ? stored.shape[1] * GROUP : this.header[`${name}.weight`].shape[1];
      const weight = new Float32Array(bias.length * width);
      for (let index = 0; index < bias.length; index++) row(index, weight, index * width);
      weights.push(weight);
      biases.push(bias);
    }
    return { weight: joined(weights), bias: joined(biases) };
  }

  norm(name) {
    return { scale: this.vector(`${name}.weight`), shift: this.vector(`${name}.bias`) };
  }
}

function joined(arrays) {
  const all = new Float32Array(arrays.reduce((sum, array) => sum + array.length, 0));
  let at = 0;
  for (const array of arrays) {
    all.set(array, at);
    at += array.length;
  }
  return all;
}

// --- the forward pass ------------------------------------------------------------------------------------------------

/** x W^T + b: [T, I] -> [T, O]; two outputs of four tokens at once, so that each number is read for several products. */
function linear(x, { weight, bias }) {
  const O = bias.length, I = weight.length / O, T = x.length / I;
  const y = new Float32Array((T + 3) * O); // up to three more tokens, which repeat the last
  for (let t = 0; t < T; t += 4) {
    const [a, b, c, d] = [0, 1, 2, 3].map((more) => Math.min(t + more, T - 1) * I);
    for (let o = 0; o < O; o += 2) {
      const next = Math.min(o + 1, O - 1), at = t * O + o, last = t * O + next;
      let ya = 0, yb = 0, yc = 0, yd = 0, za = 0, zb = 0, zc = 0, zd = 0;
      for (let i = 0, row = o * I, row2 = next * I; i < I; i++, row++, row2++) {
        const w = weight[row], v = weight[row2], xa = x[a + i], xb = x[b + i], xc = x[c + i], xd = x[d + i];
        ya += w * xa;
        yb += w * xb;
        yc += w * xc;
        yd += w * xd;
        za += v * xa;
        zb += v * xb;
        zc += v * xc;
        zd += v * xd;
      }
      [ya, yb, yc, yd].forEach((sum, more) => (y[at + more * O] = sum + bias[o]));
      [za, zb, zc, zd].forEach((sum, more) => (y[last + more * O] = sum + bias[next]));
    }
  }
  return y.subarray(0, T * O);
}

/** Layer norm (Ba 2016) of each row, in place. */
function normalizeRows(x, { scale, shift }, epsilon) {
  const H = scale.length;
  for (let start = 0; start < x.length; start += H) {
    let mean = 0, variance = 0;
    for (let h = 0; h < H; h++) mean += x[start + h] / H;
    for (let h = 0; h < H; h++) variance += (x[start + h] - mean) ** 2 / H;
    const deviation = Math.sqrt(variance + epsilon);
    for (let h = 0; h < H; h++) x[start + h] = ((x[start + h] - mean) / deviation) * scale[h] + shift[h];
  }
  return x;
}

/** x times the probability that a normal variable is less than x (Hendrycks 2016), in place; as in forward.py. */
function gelu(x) {
  for (let i = 0; i < x.length; i++) {
    const square = x[i] * x[i];
    x[i] /= 1 + Math.exp(-x[i] * NORMAL.reduceRight((sum, coefficient) => sum * square + coefficient, 0));
  }
  return x;
}

/** In place. */
function softmax(x) {
  let highest = -Infinity, sum = 0;
  for (const value of x) if (value > highest) highest = value;
  for (let i = 0; i < x.length; i++) sum += x[i] = Math.exp(x[i] - highest);
  for (let i = 0; i < x.length; i++) x[i] /= sum;
  return x;
}

/** softmax(Q K^T / sqrt(D)) V in every head (Vaswani 2017, eq. 1): queries, keys and values [T, 3 H] -> [T, H]. */
function attend(qkv, T, H, heads) {
  const D = H / heads, attended = new Float32Array(T * H), weights = new Float64Array(T);
  for (let head = 0; head < heads; head++) {
    for (let t = 0; t < T; t++) {
      const query = t * 3 * H + head * D;
      for (let s = 0; s < T; s++) {
        const key = s * 3 * H + H + head * D;
        let score = 0;
        for (let d = 0; d < D; d++) score += qkv[query + d] * qkv[key + d];
        weights[s] = score / Math.sqrt(D);
      }
      softmax(weights);
      for (let d = 0; d < D; d++) {
        let sum = 0;
        for (let s = 0; s < T; s++) sum += weights[s] * qkv[s * 3 * H + 2 * H + head * D + d];
        attended[t * H + head * D + d] = sum;
      }
    }
  }
  return attended;
}

function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

function dot(u, v) {
  return u.reduce((sum, value, index) => sum + value * v[index], 0);
}

export class Bert {
  /** config: config.json. buffer: packed.safetensors. */
  constructor(config, buffer, tokenizer) {
    const weights = new Weights(buffer, config.quantization_config.bits), table = "bert.embeddings.";
    this.tokenizer = tokenizer;
    this.size = config.hidden_size;
    this.heads = config.num_attention_heads;
    this.longest = config.max_position_embeddings;
    this.epsilon = config.layer_norm_eps;
    this.embeddings = ["word", "position", "token_type"].map((name) => weights.rows(`${table}${name}_embeddings.weight`));
    this.norm = weights.norm(`${table}LayerNorm`);
    this.layers = Array.from({ length: config.num_hidden_layers }, (_, index) => {
      const layer = `bert.encoder.layer.${index}.`;
      return {
        qkv: weights.linear(...["query", "key", "value"].map((part) => `${layer}attention.self.${part}`)),
        attentionOutput: weights.linear(`${layer}attention.output.dense`),
        attentionNorm: weights.norm(`${layer}attention.output.LayerNorm`),
        inner: weights.linear(`${layer}intermediate.dense`),
        output: weights.linear(`${layer}output.dense`),
        outputNorm: weights.norm(`${layer}output.LayerNorm`),
      };
    });
    this.pooler = weights.linear("bert.pooler.dense");
    this.nextSentence = weights.linear("cls.seq_relationship");
    this.transform = weights.linear("cls.predictions.transform.dense");
    this.transformNorm = weights.norm("cls.predictions.transform.LayerNorm");
    this.wordBias = weights.vector("cls.predictions.bias");
  }

  /** The last hidden states, [T, H]. */
  hidden({ ids, segments }) {
    const T = ids.length, H = this.size, row = new Float32Array(H);
    if (T > this.longest) throw new RangeError(`${T} tokens, but the model reads ${this.longest}; use a shorter text`);
    let x = new Float32Array(T * H);
    ids.forEach((id, t) => {
      [id, t, segments[t]].forEach((index, table) => {
        this.embeddings[table](index, row, 0);
        add(x.subarray(t * H, (t + 1) * H), row);
      });
    });
    normalizeRows(x, this.norm, this.epsilon);
    for (const layer of this.layers) {
      const attended = attend(linear(x, layer.qkv), T, H, this.heads);
      x = normalizeRows(add(linear(attended, layer.attentionOutput), x), layer.attentionNorm, this.epsilon);
      const inner = gelu(linear(x, layer.inner));
      x = normalizeRows(add(linear(inner, layer.output), x), layer.outputNorm, this.epsilon);
    }
    return x;
  }

  /** The most probable words for each [MASK], best first: lists of {token, score}. */
  fill(text, top = 5) {
    const encoded = this.tokenizer.encodeMasked(text), mask = this.tokenizer.ids.get("[MASK]"), H = this.size;
    const masks = encoded.ids.flatMap((id, t) => (id === mask ? [t] : []));
    if (!masks.length) throw new RangeError("no [MASK] in the text; write [MASK] where a word is to be guessed");
    const hidden = this.hidden(encoded), row = new Float32Array(H);
    const states = joined(masks.map((t) => hidden.subarray(t * H, (t + 1) * H)));
    const guesses = normalizeRows(gelu(linear(states, this.transform)), this.transformNorm, this.epsilon);
    const scores = masks.map(() => Float64Array.from(this.wordBias));
    for (let id = 0; id < this.wordBias.length; id++) {
      this.embeddings[0](id, row, 0); // the table of words is the output layer, too (Press 2017)
      for (let m = 0; m < masks.length; m++) {
        let sum = 0;
        for (let h = 0; h < H; h++) sum += row[h] * guesses[m * H + h];
        scores[m][id] += sum;
      }
    }
    return scores.map((ofMask) => {
      const order = Array.from(softmax(ofMask).keys()).sort((a, b) => ofMask[b] - ofMask[a]);
      return order.slice(0, top).map((id) => ({ token: this.tokenizer.tokens[id], score: ofMask[id] }));
    });
  }

  /** The vector of a text: the mean of its hidden states, of length 1. */
  embed(text) {
    const hidden = this.hidden(this.tokenizer.encode(text)), vector = new Float64Array(this.size);
    hidden.forEach((value, index) => (vector[index % this.size] += value));
    const length = Math.hypot(...vector);
    return Float32Array.from(vector, (value) => value / length);
  }

  /** The cosine of the vectors of two texts, from -1 to 1. */
  similarity(first, second) {
    return dot(this.embed(first), this.embed(second));
  }

  /**
   * How much each word of two texts makes them alike: {score, words}, as Predictor.explain of a pair.
   *
   * score: the cosine. words: {word, start, end, effect, text} in the order of the texts; effect: the cosine minus that
   * of the texts without the word; text: 0 or 1.
   */
  explain(first, second) {
    const texts = [first, second], cuts = texts.map((text) => this.tokenizer.cuts(text)), count = cuts.flat().length;
    if (count > MOST_EXPLAINED) {
      throw new RangeError(`${count} words, but the page explains ${MOST_EXPLAINED}; use shorter texts, or the package`);
    }
    const vectors = texts.map((text) => this.embed(text)), score = dot(...vectors);
    const words = cuts.flatMap((ofText, text) =>
      ofText.map(({ word, start, end, rest }) => {
        return { word, start, end, effect: score - dot(this.embed(rest), vectors[1 - text]), text };
      }),
    );
    return { score, words };
  }

  /** The probability that the second text follows the first. */
  isNext(first, second) {
    const hidden = this.hidden(this.tokenizer.encode(first, second)).subarray(0, this.size);
    return softmax(linear(linear(hidden, this.pooler).map(Math.tanh), this.nextSentence))[0];
  }
}

/** Load the model. read: a function that resolves to the bytes of a file by its name, as an ArrayBuffer. */
export async function load(read) {
  const names = ["config.json", "packed.safetensors", "vocab.txt", "unicode_tables.json"];
  const [config, weights, vocabulary, tables] = await Promise.all(names.map(read));
  const text = (buffer) => new TextDecoder().decode(buffer);
  return new Bert(JSON.parse(text(config)), weights, new Tokenizer(text(vocabulary), JSON.parse(text(tables))));
}
