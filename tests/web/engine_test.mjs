// The engine in WebAssembly says what the program says.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { deflateRawSync } from 'node:zlib';
import { load, minified, program, root, wasm } from './bundle.mjs';

const folder = join(root, 'models/cephalo-small');
const deflated = deflateRawSync(wasm, { level: 9 });
const texts = ['The cat sat on the mat. The cat sat on the',
               'Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter',
               '“Naïve” <b>🐇</b>\n\tdone'];

let engine;
before(async () => {
  const { Engine } = await load('engine/module.ts');
  engine = await Engine.create(wasm);
  const file = (name) => new Uint8Array(readFileSync(join(folder, name)));
  engine.load({ name: 'cephalo-small', config: file('config.json'), parameters: file('model.safetensors'),
                vocab: file('vocab.json'), merges: file('merges.txt') });
});

const look = (text) => JSON.parse(execFileSync(program, ['look', '--json', '--all', '--', text], { maxBuffer: 1 << 28 }));
const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-5, `${what}: ${a} and ${b}`);

function run(text) {
  const tokens = engine.tokenize(text);
  engine.start(tokens.map((token) => token.id));
  while (engine.advance() > 0);
  return tokens;
}

for (const text of texts) {
  test(`tokens, weights, numbers and predictions equal the program's: ${JSON.stringify(text)}`, () => {
    const native = look(text);
    const tokens = run(text);
    assert.deepEqual(tokens, native.tokens.map(({ id, piece }) => ({ id, piece })));
    const count = tokens.length;
    const { num_layers, num_heads } = engine.sizes;
    for (let layer = 0; layer < num_layers; ++layer) {
      const weights = engine.weights(layer, -1, 0, count);
      for (let head = 0; head < num_heads; ++head) {
        const rows = native.heads[layer * num_heads + head].weights;
        rows.forEach((row, i) => row.forEach((weight, j) =>
          near(weights[(head * count + i) * count + j], weight, `layer ${layer} head ${head} [${i}][${j}]`)));
      }
    }
    const { heads, predictions } = engine.report(5);
    native.heads.forEach((head, n) => {
      for (const [name, value] of Object.entries(head.metrics)) {
        if (name.startsWith('probe_')) continue;
        if (value === null) assert.equal(heads[n].metrics[name], null);
        else near(heads[n].metrics[name], value, `${name} of head ${n}`);
      }
    });
    native.predictions.forEach((p, n) => {
      assert.equal(predictions[n].id, p.id);
      near(predictions[n].probability, p.probability, 'probability');
    });
  });
}

test('labels equal the program’s once the probe is known', () => {
  const native = look(texts[0]);
  const rows = native.probe.length * native.probe.draws;
  engine.probe(native.heads.flatMap(({ metrics: m }) => [m.probe_duplicate, rows, 0.01, m.probe_induction, rows, 0.01]));
  run(texts[0]);
  const names = (heads) => heads.map((head) => head.labels.map((l) => l.label));
  assert.deepEqual(names(engine.report(1).heads), names(native.heads));
});

test('steps of a head agree with its weights, and each follows from the one before', () => {
  const tokens = run(texts[0]);
  const count = tokens.length;
  const steps = Object.fromEntries(engine.steps(3, 1).map((step) => [step.key, step]));
  const weights = engine.weights(3, 1, 0, count);
  const dim = engine.sizes.head_dim;
  steps.weights.values.forEach((value, n) => near(value, weights[n], `weight ${n}`));
  for (let i = 0; i < count; ++i) {
    for (let j = 0; j < count; ++j) {
      let sum = 0;
      for (let d = 0; d < dim; ++d) sum += steps.q_heads.values[i * dim + d] * steps.k_heads.values[j * dim + d];
      assert.ok(Math.abs(sum - steps.scores.values[i * count + j]) <= 1e-5 * Math.max(1, Math.abs(sum)));
      if (j > i) assert.equal(steps.scores_masked.values[i * count + j], -Infinity);
    }
    let context = 0;
    for (let j = 0; j <= i; ++j) context += weights[i * count + j] * steps.v_heads.values[j * dim];
    near(steps.context_heads.values[i * dim], context, `context of ${i}`);
  }
  assert.deepEqual(steps.output.head_shape, [count, engine.sizes.d_model]);
});

test('a row can be asked for alone', () => {
  const count = run(texts[0]).length;
  const all = engine.weights(1, 6, 0, count);
  assert.deepEqual([...engine.weights(1, 6, 3, 2)], [...all.slice(3 * count, 5 * count)]);
});

test('norms of values are those that value-weighted views need', () => {
  const count = run(texts[0]).length;
  const norms = engine.valueNorms(2);
  assert.equal(norms.length, engine.sizes.num_heads * count);
  assert.ok(norms.every((norm) => Number.isFinite(norm) && norm > 0));
});

test('errors arrive as text, and the engine goes on', () => {
  assert.throws(() => engine.start([1, 2, 9999]),
                { message: 'page: id 9999 at position 2 is outside the vocabulary of 4096' });
  assert.throws(() => engine.start([-1]), { message: 'page: id -1 at position 0 is outside the vocabulary of 4096' });
  assert.throws(() => engine.start(new Array(257).fill(1)),
                { message: 'page: 257 tokens are more than cephalo-small reads at once (256)' });
  run(texts[0]);
  assert.throws(() => engine.weights(4, 0, 0, 1), { message: 'page: layer 4 is not in [0, 4)' });
  assert.throws(() => engine.weights(0, 9, 0, 1), /head/);
  assert.throws(() => engine.steps(0, 8), { message: 'page: head 8 is not in [0, 8)' });
  assert.equal(engine.report(3).predictions.length, 3);
});

test('a model that is cut short is refused in words', async () => {
  const { Engine } = await load('engine/module.ts');
  const other = await Engine.create(wasm);
  const file = (name) => new Uint8Array(readFileSync(join(folder, name)));
  assert.throws(() => other.load({ name: 'cut', config: file('config.json'), parameters: file('model.safetensors').slice(0, 5000),
                                   vocab: file('vocab.json'), merges: file('merges.txt') }), /cut\/model\.safetensors/);
  assert.throws(() => other.tokenize('a'), { message: 'page: no model is loaded' });
});

test('the engine is small, and needs nothing but a stub of WASI', async () => {
  const imports = WebAssembly.Module.imports(new WebAssembly.Module(wasm));
  for (const each of imports) {
    assert.ok(each.module === 'wasi_snapshot_preview1' || each.name === 'emscripten_notify_memory_growth',
              `${each.module}.${each.name}`);
  }
  assert.ok((await minified('engine/wasi.ts')).length < 2000);
  assert.ok(deflated.length <= 450_000, `${deflated.length} bytes`);
  console.log(`engine: ${wasm.length} bytes, ${deflated.length} deflated`);
});
