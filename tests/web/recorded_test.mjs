// A recorded text says what the program said when it was written.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { load, program } from './bundle.mjs';
import { blockOf, checkOf, dataOf, longModel, nativeWeights, writeLongPage } from './long_text.mjs';

const folder = mkdtempSync(join(tmpdir(), 'cephalo-recorded-'));
const near = (a, b, limit, what) => assert.ok(Math.abs(a - b) <= limit, `${what}: ${a} and ${b}`);
const stored = 1e-6;
const computed = 1e-5;

// The worker's side of a page, without the worker.
async function opened(path, cut = 0) {
  const { html, data } = dataOf(path);
  const { Host } = await load('engine/host.ts');
  const answers = [];
  const host = new Host((answer) => answers.push(answer));
  const ask = async (request) => {
    answers.length = 0;
    await host.receive({ id: 1, ...request });
    if (answers.at(-1).kind === 'error') throw new Error(answers.at(-1).message);
    return answers.at(-1);
  };
  await ask({ kind: 'engine', engine: new Uint8Array(Buffer.from(blockOf(html, 'engine'), 'base64')) });
  const recording = blockOf(html, 'recording');
  const answer = await ask({ kind: 'recording', data: recording.slice(0, recording.length - cut),
                             check: checkOf(html, 'recording'), text: data.text, recorded: data.recorded });
  return { ask, run: answer.run, bytes: answer.bytes, data, html };
}

const text = 'The cat sat on the mat. The cat sat on the';
function write(...flags) {
  const path = join(folder, `page${Math.random()}.html`);
  execFileSync(program, ['page', '--recorded', '-o', path, ...flags, '--', text], { stdio: 'pipe' });
  return path;
}

test('a short text: every weight of every head, the report, the predictions', async () => {
  const native = JSON.parse(execFileSync(program, ['look', '--json', '--all', '--', text], { maxBuffer: 1 << 28 }));
  const { run, ask } = await opened(write());
  assert.equal(run.pooled, undefined);
  assert.deepEqual(run.tokens, native.tokens.map(({ id, piece }) => ({ id, piece })));
  const count = run.tokens.length;
  native.heads.forEach((head, n) => {
    assert.deepEqual([run.heads[n].labels, run.heads[n].metrics], [head.labels, head.metrics]);
    head.weights.forEach((row, i) => row.forEach((weight, j) =>
      near(run.weights[(n * count + i) * count + j], weight, computed, `head ${n} [${i}][${j}]`)));
  });
  native.predictions.forEach((p, n) => near(run.predictions[n].probability, p.probability, stored, 'probability'));
  const { pair } = await ask({ kind: 'pair', pair: { layer: 3, head: 1, query: 9, key: 4 } });
  let score = 0;
  pair.q.forEach((q, d) => (score += q * pair.k[d]));
  const { pair: other } = await ask({ kind: 'pair', pair: { layer: 3, head: 1, query: 9, key: 2 } });
  let second = 0;
  other.q.forEach((q, d) => (second += q * other.k[d]));
  const rows = native.heads[3 * 8 + 1].weights[9];
  // Two keys of one row: their weights differ by what their scores differ.
  near((score - second) / Math.sqrt(32), Math.log(rows[4] / rows[2]), 1e-3, 'score');
});

test('look --html is the same page', () => {
  const path = join(folder, 'look.html');
  execFileSync(program, ['look', '--html', path, '--', text], { stdio: 'pipe' });
  assert.equal(dataOf(path).html, dataOf(write()).html);
});

let long;
before(async () => {
  longModel();
  long = await opened(writeLongPage());
});

test('2,048 tokens: rows of any head, exactly, and no matrix of them', async () => {
  const { run, ask, bytes, html } = long;
  assert.equal(run.tokens.length, 2048);
  assert.equal(run.weights.length, 0);
  const native = nativeWeights(1, 4);
  for (let n = 0; n < 10; ++n) {
    const query = Math.floor(Math.random() * 2048);
    const { row } = await ask({ kind: 'row', row: { layer: 1, head: 4, over: null, query, block: null } });
    native[query].forEach((weight, j) => near(row.values[j], weight, computed, `[${query}][${j}]`));
  }
  const last = run.pooled.last.subarray((8 + 4) * 2048, (8 + 5) * 2048);
  native[2047].forEach((weight, j) => near(last[j], weight, stored, `last [${j}]`));
  console.log(`2,048 tokens: page ${html.length} bytes, recording ${blockOf(html, 'recording').length} in base64, engine's memory ${bytes}`);
});

test('2,048 tokens: tiles are the largest of 8 × 8, and a block finds its strongest pair', async () => {
  const { run, ask } = long;
  const native = nativeWeights(2, 3);
  const tile = run.pooled.tiles.subarray((2 * 8 + 3) * 32896, (2 * 8 + 4) * 32896);
  for (let n = 0; n < 40; ++n) {
    const y = Math.floor(Math.random() * 256);
    const x = Math.floor(Math.random() * (y + 1));
    let most = 0;
    for (let i = 8 * y; i < 8 * y + 8; ++i) for (let j = 8 * x; j < 8 * x + 8 && j <= i; ++j) most = Math.max(most, native[i][j]);
    near(tile[(y * (y + 1)) / 2 + x], 255 * Math.sqrt(most), 0.51, `tile [${y}][${x}]`);
    const { row } = await ask({ kind: 'row', row: { layer: 2, head: 3, over: null, query: 0,
                                                    block: { queries: [8 * y, 8 * y + 8], keys: [8 * x, 8 * x + 8] } } });
    near(row.values[row.key], most, computed, 'strongest');
    near(native[row.query][row.key], most, computed, 'its place');
  }
});

test('over the heads of a layer: mean and maximum of their rows', async () => {
  const { ask } = long;
  const rows = [];
  for (let head = 0; head < 8; ++head) {
    rows.push((await ask({ kind: 'row', row: { layer: 0, head, over: null, query: 1500, block: null } })).row.values);
  }
  for (const over of ['mean', 'max']) {
    const { row } = await ask({ kind: 'row', row: { layer: 0, head: 0, over, query: 1500, block: null } });
    for (let j = 0; j <= 1500; j += 50) {
      const each = rows.map((values) => values[j]);
      near(row.values[j], over === 'max' ? Math.max(...each) : each.reduce((a, b) => a + b) / 8, 1e-6, over);
    }
  }
});

test('above --max-size: chosen heads in full, of the others the 8 strongest keys', async () => {
  const { run, ask, data, html } = await opened(writeLongPage('--max-size', '14MB', '--heads', 'L2H3,L0H1'));
  assert.ok(html.length <= 14e6, `${html.length} bytes`);
  assert.deepEqual(data.recorded.full, [19, 1]);
  const [kept, other] = [nativeWeights(2, 3), nativeWeights(2, 4)];
  const rowOf = async (head) => (await ask({ kind: 'row', row: { layer: 2, head, over: null, query: 1000, block: null } })).row.values;
  (await rowOf(3)).forEach((value, j) => j <= 1000 && near(value, kept[1000][j], computed, `[1000][${j}]`));
  const values = await rowOf(4);
  const order = [...other[1000].keys()].sort((a, b) => other[1000][b] - other[1000][a]);
  order.slice(0, 8).forEach((j) => near(values[j], other[1000][j], stored, `strongest [1000][${j}]`));
  assert.equal(values.filter((value) => value > 0).length, 8);
  assert.equal(run.pooled.tiles.length, 32 * 32896);
});

test('a recording that is cut short is refused in words', async () => {
  await assert.rejects(() => opened(write(), 4000), /recording/);
  await assert.rejects(() => opened(write(), 3), { message: 'page: the recording was cut short' });
});
