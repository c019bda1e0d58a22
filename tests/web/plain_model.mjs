// The built-in model once more in plain JavaScript, in float64 and with nothing of the library: what
// passes under switches are compared with.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './bundle.mjs';

const folder = join(root, 'models/cephalo-small');
const config = JSON.parse(readFileSync(join(folder, 'config.json')));
const [width, numHeads, numLayers] = [config.n_embd, config.n_head, config.n_layer];
const dim = width / numHeads;

const file = readFileSync(join(folder, 'model.safetensors'));
const headerBytes = Number(file.readBigUInt64LE(0));
const header = JSON.parse(file.subarray(8, 8 + headerBytes));

// bfloat16 is the upper half of a float32
function parameter(name) {
  const [begin, end] = header[`transformer.${name}`].data_offsets;
  const bytes = file.subarray(8 + headerBytes + begin, 8 + headerBytes + end);
  const words = new Uint32Array(bytes.length / 2);
  for (let n = 0; n < words.length; ++n) words[n] = bytes.readUInt16LE(2 * n) << 16;
  return new Float32Array(words.buffer);
}

// row · matrix + bias; matrix: [row.length, bias.length]
function linear(row, matrix, bias) {
  const out = Float64Array.from(bias);
  row.forEach((v, i) => {
    for (let n = 0; n < out.length; ++n) out[n] += v * matrix[i * out.length + n];
  });
  return out;
}

function norm(row, name) {
  const [weight, bias] = [parameter(`${name}.weight`), parameter(`${name}.bias`)];
  const mean = row.reduce((a, b) => a + b) / width;
  const variance = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / width;
  return row.map((v, n) => ((v - mean) / Math.sqrt(variance + config.layer_norm_epsilon)) * weight[n] + bias[n]);
}

const gelu = (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));

// The first half of a head turns with the second, by its position.
function rotated(row, begin, position) {
  const out = row.slice(begin, begin + dim);
  for (let n = 0; n < dim / 2; ++n) {
    const angle = position / config.rotary_base ** ((2 * n) / dim);
    const [a, b] = [row[begin + n], row[begin + dim / 2 + n]];
    out[n] = a * Math.cos(angle) - b * Math.sin(angle);
    out[n + dim / 2] = b * Math.cos(angle) + a * Math.sin(angle);
  }
  return out;
}

function softmax(scores) {
  const most = Math.max(...scores);
  const shares = scores.map((v) => Math.exp(v - most));
  const sum = shares.reduce((a, b) => a + b);
  return shares.map((v) => v / sum);
}

const sees = (keys, i, j) => keys < 0 || (j <= i && (keys === 0 || j > i - keys));

// One head: qkv: [tokens][3 · width] -> its weights, and its context as it is passed on
function attend(qkv, head, change) {
  const count = qkv.length;
  const q = qkv.map((row, i) => rotated(row, head * dim, i));
  const k = qkv.map((row, j) => rotated(row, width + head * dim, j));
  const v = qkv.map((row) => row.slice(2 * width + head * dim, 2 * width + (head + 1) * dim));
  const scale = (change.scaled ? 1 / Math.sqrt(dim) : 1) / change.temperature;
  const mixed = (weights) => Float64Array.from({ length: dim }, (_, n) => weights.reduce((sum, w, j) => sum + w * v[j][n], 0));
  const weights = q.map((row, i) => softmax(k.map((key, j) =>
    sees(change.keys, i, j) ? scale * row.reduce((sum, x, n) => sum + x * key[n], 0) : -Infinity)));
  let context = weights.map(mixed);
  if (change.off === 'zero') context = context.map((row) => row.fill(0));
  if (change.off === 'mean') {
    const mean = context[0].map((_, n) => context.reduce((sum, row) => sum + row[n], 0) / count);
    context = context.map(() => mean);
  }
  if (change.off === 'even') context = weights.map((_, i) => mixed(v.map((_, j) => (j <= i ? 1 / (i + 1) : 0))));
  return { weights, context };
}

const asTrained = { scaled: true, temperature: 1, keys: 0, off: null };

// ids, heads that are switched -> weights: [layer][head][i][j], probabilities: [i][id]
export function plainModel(ids, switches = []) {
  const embedding = parameter('wte.weight');
  let x = ids.map((id) => Float64Array.from(embedding.subarray(id * width, (id + 1) * width)));
  const weights = [];
  const add = (rows) => {
    x = x.map((row, i) => row.map((v, n) => v + rows[i][n]));
  };
  for (let layer = 0; layer < numLayers; ++layer) {
    const of = (name) => [parameter(`h.${layer}.${name}.weight`), parameter(`h.${layer}.${name}.bias`)];
    const [qkvWeight, qkvBias] = of('attn.c_attn');
    const qkv = x.map((row) => linear(norm(row, `h.${layer}.ln_1`), qkvWeight, qkvBias));
    const heads = Array.from({ length: numHeads }, (_, head) =>
      attend(qkv, head, switches.find((s) => s.layer === layer && s.head === head) ?? asTrained));
    weights.push(heads.map((head) => head.weights));
    const [out, outBias] = of('attn.c_proj');
    add(x.map((_, i) => linear(Float64Array.from(heads.flatMap((head) => [...head.context[i]])), out, outBias)));
    const [wide, wideBias] = of('mlp.c_fc');
    const [narrow, narrowBias] = of('mlp.c_proj');
    add(x.map((row) => linear(linear(norm(row, `h.${layer}.ln_2`), wide, wideBias).map(gelu), narrow, narrowBias)));
  }
  const probabilities = x.map((row) => {
    const last = norm(row, 'ln_f');
    return softmax(Float64Array.from({ length: config.vocab_size }, (_, id) =>
      last.reduce((sum, v, n) => sum + v * embedding[id * width + n], 0)));
  });
  return { weights, probabilities };
}
