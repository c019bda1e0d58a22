// The probe in the page, and the views of entropy and values.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { load } from './bundle.mjs';
import { close, launch, look, open, rabbit, settle, state, text, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const diagnosed = (page) => page.waitForFunction(() => window.cephalo.state.diagnosis?.heads);

async function save(page, id) {
  const [file] = await Promise.all([page.waitForEvent('download'), page.click(id)]);
  return { name: file.suggestedFilename(), text: readFileSync(await file.path(), 'utf8') };
}

test('11: one button runs the probe, and its scores are those of the program', async () => {
  const page = await open(path);
  const native = look(rabbit);
  await page.click('#diagnose');
  await diagnosed(page);
  await settle(page);
  const { length, draws, seed } = native.probe;
  assert.match(await text(page, '#probe'), new RegExp(`^${length} random tokens, twice: .* ${draws} draws, seed ${seed}\\.`));
  const metrics = await page.locator('.dg').evaluateAll((all) => all.map((table) => table.dataset.metric));
  assert.deepEqual(metrics, ['induction', 'duplicate', 'previous', 'first', 'current', 'entropy', 'confidence', 'effective_tokens', 'distance']);
  const cells = (metric) => page.locator(`[data-metric=${metric}] td`).evaluateAll((all) => all.map((cell) => Number(cell.title)));
  const [induction, duplicate] = [await cells('induction'), await cells('duplicate')];
  assert.equal(induction.length, 32);
  native.heads.forEach((head, n) => {
    near(induction[n], head.metrics.probe_induction);
    near(duplicate[n], head.metrics.probe_duplicate);
  });
  // The text that is shown is still the one that steps are taken from.
  await page.click('#close');
  await page.click('#neuron');
  await settle(page);
  const weights = look(rabbit, '--layer', '3', '--head', '1').heads.find((head) => head.weights).weights;
  const shown = await page.evaluate(() => {
    const { state } = window.cephalo;
    return [state.layer, state.head, [...state.steps.steps.find((s) => s.key === 'weights').values]];
  });
  assert.deepEqual(shown.slice(0, 2), [3, 1]);
  near(shown[2][17 * 18 + 10], weights[17][10]);
});

test('11: the table goes out as CSV and as JSON', async () => {
  const page = await open(path);
  await page.click('#diagnose');
  await diagnosed(page);
  await settle(page);
  const heads = await page.evaluate(() => window.cephalo.state.diagnosis.heads);
  const csv = await save(page, '#diagnosis-csv');
  assert.equal(csv.name, 'heads-on-random-repeats.csv');
  const lines = csv.text.trimEnd().split('\n').map((line) => line.split(','));
  assert.deepEqual(lines[0].slice(0, 3), ['layer', 'head', 'induction']);
  assert.equal(lines.length, 33);
  assert.deepEqual(lines[26].slice(0, 3).map(Number), [3, 1, heads[25].metrics.induction]);
  const json = JSON.parse((await save(page, '#diagnosis-json')).text);
  assert.deepEqual(Object.keys(json), ['model', 'probe', 'heads']);
  assert.equal(json.model.parameters, look(rabbit).model.sha256.slice(0, 8));
  assert.equal(json.heads[25].metrics.distance, heads[25].metrics.distance);
});

test('11: typing goes before the probe, which goes on afterwards', async () => {
  const page = await open(path);
  await page.click('#diagnose');
  await page.click('#close');
  await page.fill('#text', 'The cat sat on the mat');
  await settle(page);
  assert.equal(await page.evaluate(() => window.cephalo.state.run.text), 'The cat sat on the mat');
  await diagnosed(page);
  near(await page.evaluate(() => window.cephalo.state.diagnosis.heads[25].metrics.induction), look(rabbit).heads[25].metrics.probe_induction);
});

test('11: of a recorded text, the scores that were stored are shown', async () => {
  const { diagnosis } = await load('views/diagnosis.ts');
  const { heads, probe } = look(rabbit);
  const sizes = { num_layers: 4, num_heads: 8 };
  const words = (node) => (typeof node === 'string' ? node : node.kids.map(words).join(''));
  const found = (node, test) => (typeof node === 'string' ? [] : [...(test(node) ? [node] : []), ...node.kids.flatMap((kid) => found(kid, test))]);
  const shown = { kids: diagnosis({ data: { recorded: {}, probe, model: {} }, run: { heads }, sizes, diagnosis: null, theme: 'light' }, {}) };
  assert.match(words(shown), /As stored with this text; the other numbers need the model\./);
  const tables = found(shown, (node) => node.tag === 'table');
  assert.deepEqual(tables.map((table) => table.props['data-metric']), ['induction', 'duplicate']);
  const cells = found(tables[0], (node) => node.tag === 'td');
  heads.forEach((head, n) => near(Number(cells[n].props.title), head.metrics.probe_induction));
});

test('12: the spread of each row, whose mean is the entropy of the head', async () => {
  const page = await open(path, '#head=3.1&rows=spread');
  const { heads } = look(rabbit, '--layer', '3', '--head', '1');
  const { metrics, weights } = heads.find((head) => head.weights);
  const bars = await page.locator('.spread').evaluateAll((all) => all.map((bar) => [Number(bar.dataset.share), Number(bar.dataset.value)]));
  assert.equal(bars.length, 18);
  weights.forEach((row, i) => {
    const entropy = -row.reduce((sum, w) => sum + (w > 0 ? w * Math.log(w) : 0), 0);
    near(bars[i][1], Math.exp(entropy), 1e-4);
  });
  const rest = bars.slice(1);
  near(rest.reduce((sum, [share]) => sum + share, 0) / 17, metrics.entropy);
  near(rest.reduce((sum, [, tokens]) => sum + tokens, 0) / 17, metrics.effective_tokens, 1e-4);
  await page.click('#display');
  await page.click('.pop div:has-text("Spread of each row") button:text("off")');
  await settle(page);
  assert.equal(await page.locator('.spread').count(), 0);
  assert.equal(await page.evaluate(() => location.hash), '#head=3.1');
});

test('12: weighed by value, numbers are those of look --value-weighted', async () => {
  const page = await open(path, '#head=0.4&by=value');
  const rowsOf = (...flags) => look(rabbit, '--layer', '0', '--head', '4', ...flags).heads.find((head) => head.weights).weights;
  const [plain, weighed] = [rowsOf(), rowsOf('--value-weighted')];
  assert.ok(plain[17][0] - weighed[17][0] > 0.1, 'this head rests on a token that moves little');
  const shown = await page.locator('#keys .rowb').evaluateAll((all) =>
    all.map((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]));
  for (const [key, value] of shown) near(value, weighed[17][key]);
  assert.equal((await state(page)).byValue, true);
});

test('12: under a switch, heads that it leaves as they were are still weighed by value, and the others say so', async () => {
  const rowsOf = (head, ...flags) => look(rabbit, '--layer', '3', '--head', String(head), ...flags).heads.find((each) => each.weights).weights;
  const shown = (page) => page.locator('#keys .rowb').evaluateAll((all) => all.map((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]));
  const [weighed, plain] = [rowsOf(0, '--value-weighted'), rowsOf(1)];
  for (const how of ['off=3.1', 'if=unscaled&in=3.1']) {
    const page = await open(path, `#head=3.0&by=value&${how}`);
    for (const [key, value] of await shown(page)) near(value, weighed[17][key]);
    assert.equal(await text(page, '#by-value'), 'by value');
    await page.keyboard.press(']');
    await settle(page);
    assert.equal(await text(page, '#by-value'), 'not by value', how);
    if (how === 'off=3.1') for (const [key, value] of await shown(page)) near(value, plain[17][key]);
    else assert.ok((await shown(page)).some(([key, value]) => Math.abs(value - plain[17][key]) > 0.01));
    await page.click('#tab-lines');
    await settle(page);
    assert.equal(await text(page, '#by-value'), 'not by value', `${how}, lines`);
  }
  const later = await open(path, '#head=3.0&by=value&if=nomask&in=1.6');
  assert.equal(await text(later, '#by-value'), 'not by value');
  const crowded = await open(path, '#head=3.1&by=value&colour=row&if=unscaled&in=3.1');
  const legend = await crowded.locator('#legend').evaluate((line) => [line.scrollWidth, line.clientWidth]);
  assert.ok(legend[0] <= legend[1], String(legend));
});

test('12: weighed by value, where a number comes from still begins with softmax', async () => {
  const page = await open(path, '#head=3.0&by=value&neuron=1&lock=17.10');
  const rowsOf = (...flags) => look(rabbit, '--layer', '3', '--head', '0', ...flags).heads.find((head) => head.weights).weights[17];
  const [plain, weighed] = [rowsOf(), rowsOf('--value-weighted')];
  assert.ok(Math.abs(plain[10] - weighed[10]) > 0.01, 'values matter here');
  const [, , softmax, valued] = await page.locator('#sums dd').allTextContents();
  near(Number(softmax), plain[10], 1e-4);
  near(Number(valued), weighed[10], 1e-4);
  const rank = 1 + plain.filter((weight) => weight > plain[10]).length;
  assert.match(await text(page, '#sums'), new RegExp(`after softmax, rank ${rank} of 18.*by value`));
  assert.equal(await text(page, '#neuron'), `Where ${valued} comes from`);
  assert.ok((await page.locator('#next').boundingBox()).y < 800);
  const bottom = await page.locator('#valued').evaluate((line) => line.getBoundingClientRect().bottom);
  const below = await page.locator('#no-scaling').evaluate((button) => button.closest('.blk').getBoundingClientRect().top);
  assert.ok(bottom <= below, `${bottom} and ${below}`);
});

test('12: where a head rests on the first token, a sentence says why', async () => {
  const page = await open(path, '#head=0.4');
  assert.equal(await text(page, '#headline'), 'Rests on the first token');
  assert.equal(await text(page, '#sinks'), 'Why does everything look at the first token?');
  await page.click('#sinks');
  await settle(page);
  assert.match(await text(page, 'dialog'), /Softmax makes every row add up to 1\./);
  const sinks = look(rabbit).heads.filter((head) => head.labels.some((l) => l.label === 'sink')).length;
  assert.match(await text(page, '#sink-numbers'), new RegExp(`^${sinks} of 32 heads rest on it here\\. .* gives it \\d+\\s% of its attention`));
  await page.click('#weigh');
  await settle(page);
  assert.equal((await state(page)).byValue, true);
  assert.equal(await page.locator('dialog[open]').count(), 0);
  await page.keyboard.press('Escape');
  const other = await open(path, '#head=2.3');
  assert.equal(await other.locator('#sinks').count(), 0);
});
