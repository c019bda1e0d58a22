// Passes under switches in WebAssembly: what the program and a model in plain JavaScript say.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { load, program, root, wasm } from './bundle.mjs';
import { plainModel } from './plain_model.mjs';

const folder = join(root, 'models/cephalo-small');
const rabbit = 'Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter';
const cat = 'The cat sat on the mat. The cat sat on the';

let engine;
before(async () => {
  const { Engine } = await load('engine/module.ts');
  engine = await Engine.create(wasm);
  const file = (name) => new Uint8Array(readFileSync(join(folder, name)));
  engine.load({ name: 'cephalo-small', config: file('config.json'), parameters: file('model.safetensors'),
                vocab: file('vocab.json'), merges: file('merges.txt') });
});

const look = (text, ...flags) =>
  JSON.parse(execFileSync(program, ['look', '--json', ...flags, '--', text], { maxBuffer: 1 << 28 }));
const near = (a, b, what, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${what}: ${a} and ${b}`);
const bent = (layer, head, change) => ({ layer, head, scaled: true, temperature: 1, keys: 0, off: null, ...change });
const every = (change, layers = [0, 1, 2, 3]) =>
  layers.flatMap((layer) => Array.from({ length: 8 }, (_, head) => bent(layer, head, change)));

function run(text) {
  const tokens = engine.tokenize(text);
  engine.start(tokens.map((token) => token.id));
  while (engine.advance() > 0);
  return tokens.map((token) => token.id);
}

function switched(heads, pass = 'shown') {
  engine.startSwitched(pass, heads);
  while (engine.advanceSwitched(pass) > 0);
  return engine.switchReport(pass, 5);
}

const cases = {
  'no scaling in one head': [bent(1, 6, { scaled: false })],
  'no scaling in a layer': every({ scaled: false }, [2]),
  'no scaling in all': every({ scaled: false }),
  'no mask in one head': [bent(1, 6, { keys: -1 })],
  'no mask in all': every({ keys: -1 }),
  'a window of 4 keys in all': every({ keys: 4 }),
  'a window of 1 key in one head': [bent(0, 3, { keys: 1 })],
  'temperature 10 in one head': [bent(1, 6, { temperature: 10 })],
  'temperature 0.5 in all': every({ temperature: 0.5 }),
  'several switches, several heads': [bent(0, 2, { scaled: false, keys: 3 }), bent(2, 3, { temperature: 2.5, keys: -1 }),
                                      bent(3, 1, { off: 'mean' })],
  'a head off: zero': [bent(2, 3, { off: 'zero' })],
  'a head off: mean': [bent(2, 3, { off: 'mean' })],
  'a head off: even': [bent(2, 3, { off: 'even' })],
};

for (const [name, heads] of Object.entries(cases)) {
  test(`${name}: weights, predictions and changes are those of a plain model`, () => {
    const ids = run(rabbit);
    const count = ids.length;
    const [trained, plain] = [plainModel(ids), plainModel(ids, heads)];
    const report = switched(heads);
    let worst = 0;
    for (let layer = 0; layer < 4; ++layer) {
      const weights = engine.switchedWeights(layer);
      plain.weights[layer].flat(2).forEach((weight, n) => {
        worst = Math.max(worst, Math.abs(weights[n] - weight));
      });
    }
    console.log(`${name}: weights differ by at most ${worst.toExponential(1)}`);
    // float32 rounds scores that are √32 times as large to steps that are so, too
    assert.ok(worst <= 1e-5 * (heads.some((head) => !head.scaled) ? Math.sqrt(32) : 1), `${worst}`);
    const next = plain.probabilities[count - 1];
    for (const list of [report.predictions, report.trained]) {
      assert.equal(list.length, 5);
      for (const p of list) near(p.probability, next[p.id], `P(${p.piece})`);
    }
    const best = (row) => row.indexOf(Math.max(...row));
    assert.equal(report.predictions[0].id, best(next));
    assert.equal(report.trained[0].id, best(trained.probabilities[count - 1]));
    const changes = [...engine.rowChanges(0, 5), ...engine.rowChanges(5, count - 5)];
    for (let i = 0; i < count; ++i) {
      const [p, q] = [trained.probabilities[i], plain.probabilities[i]];
      near(changes[2 * i], p.reduce((sum, v, id) => sum + v * Math.log(v / q[id]), 0), `KL of row ${i}`, 2e-5);
      if (i + 1 < count) near(changes[2 * i + 1], Math.log(q[ids[i + 1]] / p[ids[i + 1]]), `ln P of row ${i}`, 2e-5);
      else assert.ok(Number.isNaN(changes[2 * i + 1]));
    }
  });
}

test('heads that are off are those of the program, one by one and together', () => {
  run(cat);
  const kinds = { zero: 'zero', mean: 'mean', even: 'uniform' };
  for (const [off, kind] of Object.entries(kinds)) {
    const native = look(cat, '--ablate', 'L1H6,L2H3', '--with', kind).ablation;
    const report = switched([bent(1, 6, { off }), bent(2, 3, { off })]);
    for (const [list, side] of [[report.trained, 'before'], [report.predictions, 'after']]) {
      const order = [...native.next].sort((a, b) => b[side] - a[side]).slice(0, 5);
      assert.deepEqual(list.map((p) => p.id), order.map((token) => token.id));
      list.forEach((p, n) => near(p.probability, order[n].after, `${kind}: P(${p.piece})`));
    }
    near(report.divergence, native.divergence, kind);
    const changes = engine.rowChanges(0, native.losses_after.length);
    native.losses_after.forEach((loss, i) => near(changes[2 * i + 1], native.losses_before[i] - loss, `${kind}: token ${i + 1}`));
  }
});

test('each head in turn is that of the program', () => {
  run(cat);
  for (const [off, kind] of [['zero', 'zero'], ['even', 'uniform']]) {
    const native = look(cat, '--effects', '--with', kind);
    native.heads.divergence.flat().forEach((divergence, n) =>
      near(switched([bent(Math.floor(n / 8), n % 8, { off })], 'measured').divergence, divergence, `head ${n}`));
  }
});

test('a pass that measures leaves the one that is shown alone, and reads the last token only', () => {
  const count = run(cat).length;
  switched([bent(1, 6, { keys: -1 })]);
  const weights = engine.switchedWeights(1);
  switched([bent(0, 0, { off: 'zero' })], 'measured');
  assert.deepEqual(engine.switchedWeights(1), weights);
  assert.equal(weights.length, 8 * count * count);
  assert.ok(weights[6 * count * count + count - 1] > 0, 'the first token of 1.6 sees the last');
  assert.equal(weights[count - 1], 0, 'that of 1.0 does not');
});

test('without a switch it is the text as it was', () => {
  const count = run(cat).length;
  const report = switched([]);
  assert.deepEqual(report.predictions, engine.report(5).predictions.map((p, n) => ({ ...p, probability: report.trained[n].probability })));
  near(report.divergence, 0, 'divergence');
  assert.deepEqual(engine.switchedWeights(2), engine.weights(2, -1, 0, count));
});

test('switches that make no sense are refused in words', () => {
  run(cat);
  const refuse = (change, message) => assert.throws(() => engine.startSwitched('shown', [bent(1, 6, change)]), { message });
  refuse({ layer: 4 }, 'page: layer 4 is not in [0, 4)');
  refuse({ head: 8 }, 'page: head 8 is not in [0, 8)');
  refuse({ temperature: 0 }, 'page: a temperature must be a number above 0');
  refuse({ temperature: NaN }, 'page: a temperature must be a number above 0');
  refuse({ keys: -2 }, 'page: a window must have at least one key, and it has -2');
  engine.startSwitched('shown', [bent(0, 0, { off: 'zero' })]);
  assert.throws(() => engine.switchReport('shown', 5), { message: 'page: the pass under switches has layers left' });
  assert.throws(() => engine.switchedWeights(3), { message: 'page: the pass under switches has layers left' });
});

test('64 tokens: each head in turn takes less than 3 s', () => {
  const words = 'The quick brown fox met the old lady by the river and the fox said to the lady that the quick river was old';
  const count = run(`${words} ${words} and so was the lady by the river and the fox who met her`).length;
  const timed = (work) => {
    const begun = performance.now();
    work();
    return performance.now() - begun;
  };
  const shown = timed(() => {
    switched([bent(0, 0, { off: 'zero' })]);
    engine.switchedWeights(0);
    engine.rowChanges(0, count);
  });
  const all = timed(() => every({ off: 'zero' }).forEach((head) => switched([head], 'measured')));
  console.log(`${count} tokens: a head of layer 0 off ${shown.toFixed(0)} ms, each head in turn ${all.toFixed(0)} ms`);
  if (process.env.CEPHALO_TIMES !== 'report') assert.ok(all <= 3000, `${all} ms`);
});
