// Ten cells, chosen at random, have the numbers of `cephalo trace`.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { program } from './bundle.mjs';
import { close, launch, look, open, rabbit, settle, writePage } from './browser.mjs';

before(launch);
after(close);

// mulberry32: the same cells in every run.
function random(seed) {
  return (below) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 4294967296) * below);
  };
}

function tenCells(seed) {
  const draw = random(seed);
  return Array.from({ length: 10 }, () => {
    const query = 1 + draw(17);
    return { layer: draw(4), head: draw(8), query, key: draw(query + 1) };
  });
}

const traced = ({ layer, head, query, key }) => {
  const flags = ['trace', rabbit, '--layer', layer, '--head', head, '--token', query, '--top', 18, '--json'].map(String);
  const { q, keys } = JSON.parse(execFileSync(program, flags));
  return { q, ...keys.find((each) => each.i === key) };
};

// Numbers above 1 to as many digits.
let largest = 0;
function near(a, b, limit, what) {
  const off = Math.abs(a - b) / Math.max(1, Math.abs(b));
  largest = Math.max(largest, off);
  assert.ok(off <= limit, `${what}: ${a} and ${b}`);
}
const report = (what) => {
  console.log(`${what}: largest difference ${largest.toExponential(1)}`);
  largest = 0;
};

test('6: ten cells of the steps are those of cephalo trace to 1e-5', async () => {
  const page = await open(writePage(rabbit), '#head=0.0&tab=steps');
  for (const cell of tenCells(20)) {
    const { layer, head, query, key } = cell;
    await page.click(`[data-head="${layer * 8 + head}"]`);
    await settle(page);
    const here = await page.evaluate(([i, j]) => {
      const { steps } = window.cephalo.state.steps;
      const of = (name) => steps.find((step) => step.key === name);
      const row = (name, n) => [...of(name).values].slice(n * of(name).head_shape[1], (n + 1) * of(name).head_shape[1]);
      return { q: row('q_heads', i), k: row('k_heads', j), product: row('scores', i)[j], weight: row('weights', i)[j] };
    }, [query, key]);
    const there = traced(cell);
    const name = JSON.stringify(cell);
    assert.equal(here.q.length, 32);
    here.q.forEach((value, n) => near(value, there.q[n], 1e-5, `${name} q[${n}]`));
    here.k.forEach((value, n) => near(value, there.k[n], 1e-5, `${name} k[${n}]`));
    near(here.product, there.product, 1e-5, `${name} product`);
    near(here.weight, there.weight, 1e-5, `${name} weight`);
  }
  report('steps of the page against cephalo trace');
});

test('6: of a recorded text, ten cells to 1e-5, and what is stored to 1e-6', async () => {
  const page = await open(writePage(rabbit, '--recorded'), '#head=0.0&neuron=1');
  for (const cell of tenCells(21)) {
    const { layer, head, query, key } = cell;
    await page.evaluate((hash) => { location.hash = hash; }, `#head=${layer}.${head}&lock=${query}.${key}&neuron=1`);
    await page.waitForFunction(([l, n, i, j]) => {
      const { pair } = window.cephalo.state;
      return pair && pair.layer === l && pair.head === n && pair.query === i && pair.key === j;
    }, [layer, head, query, key]);
    await settle(page);
    const here = await page.evaluate(() => {
      const { q, k } = window.cephalo.state.pair;
      return { q: [...q], k: [...k], weight: Number(document.querySelector('#keys .rowb.on .v').title) };
    });
    const there = traced(cell);
    const name = JSON.stringify(cell);
    here.q.forEach((value, n) => near(value, there.q[n], 1e-5, `${name} q[${n}]`));
    here.k.forEach((value, n) => near(value, there.k[n], 1e-5, `${name} k[${n}]`));
    near(here.weight, there.weight, 1e-5, `${name} weight`);
  }
  report('a recorded page against cephalo trace');
  const native = look(rabbit);
  const { heads, predictions } = await page.evaluate(() => window.cephalo.state.run);
  native.heads.forEach((head, n) => {
    for (const [name, value] of Object.entries(head.metrics)) {
      if (value !== null) near(heads[n].metrics[name], value, 1e-6, `${name} of head ${n}`);
    }
  });
  native.predictions.forEach((each, n) => near(predictions[n].probability, each.probability, 1e-6, `prediction ${n}`));
  report('what is stored against cephalo look');
});
