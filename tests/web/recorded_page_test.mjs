// Recorded pages in Chromium: one text, as the program saw it, of up to 2,048 tokens.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { close, htmlOf, launch, look, measured, open, openRaw, rabbit, rendererBytes, settle, state, text, within, withFlippedBit, writePage } from './browser.mjs';
import { require } from './bundle.mjs';
import { longModel, longText, nativeWeights, writeLongPage } from './long_text.mjs';

let path;
let short;
let model;
before(async () => {
  await launch();
  ({ model } = longModel());
  path = writeLongPage();
  short = writePage(rabbit, '--recorded');
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const left = 78; // of the map in its grid
const above = 54;

async function mapOf(page) {
  const grid = await page.locator('#grid').boundingBox();
  const side = grid.width - left;
  return { at: (y, x) => ({ x: grid.x + left + ((x + 0.5) / 256) * side, y: grid.y + above + ((y + 0.5) / 256) * side }) };
}

const tasksAfterPaint = (page) => page.evaluate(() => new Promise((done) => {
  const [paint] = performance.getEntriesByType('paint');
  new PerformanceObserver((list) => done(list.getEntries().filter((task) => task.startTime + task.duration > paint.startTime)
    .map((task) => task.duration))).observe({ type: 'longtask', buffered: true });
  setTimeout(() => done([]), 1000); // there is none
}));

// Opens the page and goes through what it can show.
async function walkedThrough() {
  const page = await open(path, '#head=2.3');
  const map = await mapOf(page);
  for (const [y, x] of [[200, 20], [100, 100], [255, 0], [60, 30]]) {
    const to = map.at(y, x);
    await page.mouse.move(to.x, to.y);
    await settle(page);
  }
  for (const hash of ['#head=0.0', '#head=3.7', '#head=1.mean', '#head=1.max', '#head=2.3&tab=lines', '#head=2.3&colour=row',
                      '#head=2.3&lock=900.300&neuron=1', '#head=2.3&theme=dark', '#head=2.3']) {
    await page.evaluate((to) => { location.hash = to; }, hash);
    await settle(page);
  }
  return { page, longest: Math.max(0, ...await tasksAfterPaint(page)) };
}

test('14: 2,048 tokens open at once, hold nothing up and take little memory', async () => {
  let { page, longest } = await walkedThrough();
  // What else the machine does can only make tasks longer: the best of three.
  for (let more = 0; more < 2 && longest > 200; ++more) {
    await page.context().close();
    const again = await walkedThrough();
    [page, longest] = [again.page, Math.min(longest, again.longest)];
  }
  within('first map of 2,048 tokens', (await measured(page)).firstMap, 1500);
  within('longest task of the page after its first paint', longest, 200);
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  const { metrics } = await session.send('Performance.getMetrics');
  const heap = metrics.find((each) => each.name === 'JSHeapUsedSize').value;
  const { engineBytes, arrayBytes } = await measured(page);
  assert.ok(engineBytes > 0 && arrayBytes > 0);
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  const resident = await rendererBytes();
  console.log(`2,048 tokens: page.html ${htmlOf(path).length} bytes, heap ${megabytes(heap)} MB, engine ${megabytes(engineBytes)} MB, ` +
              `arrays ${megabytes(arrayBytes)} MB, renderer ${megabytes(resident)} MB`);
  assert.ok(heap + engineBytes + arrayBytes < 300e6);
  assert.ok(resident < 600e6);
  assert.deepEqual(page.seen.complaints, []);
  assert.equal(page.seen.requests.filter((url) => !/^(file|blob|data):/.test(url)).length, 0);
  assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]), [1280, 800]);
});

test('14: a hover shows the exact weight that its cell stands for', async () => {
  const native = nativeWeights(2, 3);
  const page = await open(path, '#head=2.3');
  const map = await mapOf(page);
  for (let n = 0; n < 10; ++n) {
    const y = Math.floor(Math.random() * 256);
    const x = Math.floor(Math.random() * (y + 1));
    const to = map.at(y, x);
    await page.mouse.move(to.x, to.y);
    await settle(page);
    const { hover } = await state(page);
    assert.ok(Math.floor(hover.query / 8) === y && Math.floor(hover.key / 8) === x, JSON.stringify(hover));
    let most = 0;
    for (let i = 8 * y; i < 8 * y + 8; ++i) for (let j = 8 * x; j < 8 * x + 8 && j <= i; ++j) most = Math.max(most, native[i][j]);
    const shown = await page.locator('#keys .rowb.on .v').evaluate((v) => Number(v.title));
    near(shown, native[hover.query][hover.key]);
    near(shown, most);
  }
  const to = map.at(180, 90);
  await page.mouse.click(to.x, to.y);
  await settle(page);
  const { lock } = await state(page);
  const sums = await page.locator('#sums dd').allTextContents();
  near(Number(sums[2].replace('<', '')), native[lock.query][lock.key], 1e-3);
  assert.match(await page.evaluate(() => location.hash), new RegExp(`lock=${lock.query}\\.${lock.key}`));
  await page.keyboard.press('Escape');
  await page.focus('#grid');
  await page.keyboard.press('ArrowUp');
  await settle(page);
  assert.equal((await state(page)).lock.query, 2046);
  const [key, value] = await page.locator('#keys .rowb.on').evaluate((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]);
  near(value, native[2046][key]);
  await page.keyboard.press('Escape');
  await page.focus('.chip.on');
  for (const query of [2046, 2045]) {
    await page.keyboard.press('ArrowLeft');
    await settle(page);
    await page.waitForFunction((n) => document.activeElement.dataset.n === String(n), query);
  }
});

test('14: a long text in one line, labels of the choice alone, and the pooling is stated', async () => {
  const page = await open(path, '#head=2.3&lock=1000.500');
  assert.equal(await text(page, '#pooling'), 'each cell: largest of 8 × 8');
  const chips = await page.locator('.chip[data-n]').evaluateAll((all) => all.map((chip) => [Number(chip.dataset.n), chip.getBoundingClientRect().top]));
  assert.deepEqual(chips.map(([n]) => n), Array.from({ length: 25 }, (_, n) => 988 + n));
  assert.equal(new Set(chips.map(([, top]) => top)).size, 1);
  assert.deepEqual(await page.locator('.more-tokens').allTextContents(), ['…', '…']);
  const labels = await page.locator('.mx svg .lb').allTextContents();
  assert.equal(labels.length, 2);
  const indices = await page.locator('.mx svg .idx').allTextContents();
  for (const each of ['1000', '500', 'looks at →', 'token ↓']) assert.ok(indices.includes(each), each);
  assert.match(await text(page, '#banner'), /^Beyond what the model was trained on: 2048 tokens, trained on 256 at a time\.$/);
  assert.match(await text(page, '#model'), / · 2048 tokens · 4 layers × 8 heads$/);
  assert.ok((await page.locator('#grid [role=gridcell]').count()) <= 25);
  assert.match(await text(page, '#live'), /looks at '.*', .*, rank \d+ of 1001$/);
});

test('14: why fades the cells in which nothing counts', async () => {
  const page = await open(path, '#head=2.3&why=previous');
  const alpha = (y, x) => page.locator('.afar').evaluate((canvas, [i, j]) =>
    canvas.getContext('2d').getImageData(3 * j + 1, 3 * i + 1, 1, 1).data[3], [y, x]);
  assert.equal(await alpha(100, 100), 255);
  assert.equal(await alpha(100, 99), 255); // the first of its eight tokens looks back into it
  assert.ok((await alpha(100, 50)) < 100);
});

test('14: it opens in the frame of a notebook, which has no address', async () => {
  const outer = short.replace('.html', '-notebook.html');
  const escaped = htmlOf(short).replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  writeFileSync(outer, `<!doctype html><iframe sandbox="allow-scripts" width="1200" height="700" srcdoc="${escaped}"></iframe>`);
  const page = await openRaw(outer);
  const frame = await (await page.waitForSelector('iframe')).contentFrame();
  await frame.waitForFunction(() => window.cephalo?.state.run);
  await frame.click('[data-head="9"]');
  await frame.waitForFunction(() => window.cephalo.state.head === 1 && window.cephalo.state.layer === 1);
  await frame.waitForFunction(() => document.querySelector('.hd1 .nm').textContent === 'Layer 1 · Head 1');
  assert.deepEqual(page.seen.complaints, []);
});

test('14: a recorded page says what it is, and how to make a live one', async () => {
  const page = await open(path);
  assert.equal(await page.locator('#text').getAttribute('readonly'), '');
  assert.match(await text(page, '#fixed'), /^A recording of this one text\. To type your own: cephalo page TEXT --live$/);
  assert.equal(await page.locator('.try').count(), 0);
  await page.click('#tab-steps');
  await settle(page);
  assert.match(await text(page, '#no-steps'), /^The steps need the whole model.*cephalo page TEXT --live$/);
  await page.click('#display');
  assert.match(await text(page, '.pop'), /cannot be weighed by value/);
  const linked = await open(path, '#text=Another+text&head=1.2');
  assert.equal((await state(linked)).text, (await state(page)).text);
});

test('14: above --max-size the page says what it keeps', async () => {
  const partly = await open(writeLongPage('--max-size', '14MB', '--heads', 'L2H3'), '#head=2.4&lock=1000');
  assert.match(await text(partly, '#model'), / · 2048 tokens · 4 layers × 8 heads, 1 in full$/);
  assert.match(await text(partly, '.sum'), /Of this head the map and the 8 strongest keys of every token were kept\.$/);
  assert.equal(await partly.locator('#neuron').count(), 0);
  const native = nativeWeights(2, 4)[1000];
  const [key, value] = await partly.locator('#keys .rowb').first().evaluate((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]);
  near(value, native[key], 1e-6);
  near(value, Math.max(...native), 1e-6);
  await partly.evaluate(() => { location.hash = '#head=2.3&lock=1000'; });
  await settle(partly);
  assert.doesNotMatch(await text(partly, '.sum'), /were kept/);
});

const weightsOf = (words, layer, head) =>
  look(words, '--model', model, '--layer', String(layer), '--head', String(head)).heads.find((each) => each.weights).weights;

for (const [count, size, pooling] of [[257, '3.3MB', 'up to 2 × 2'], [300, '3.4MB', 'up to 2 × 2'], [512, '4.2MB', '2 × 2']]) {
  test(`14: of ${count} tokens, too, a kept head has every weight and another its strongest keys`, async () => {
    const words = longText(count);
    const page = await open(writePage(words, '--model', model, '--recorded', '--max-size', size, '--heads', 'L2H3,L0H4'), '#head=2.3');
    assert.match(await text(page, '#model'), new RegExp(` · ${count} tokens · 4 layers × 8 heads, 2 in full$`));
    assert.equal(await text(page, '#pooling'), `each cell: largest of ${pooling}`);
    const map = await mapOf(page);
    const tokens = (cell) => [Math.ceil((cell * count) / 256), Math.ceil(((cell + 1) * count) / 256)];
    const hovered = async (y, x) => {
      const to = map.at(y, x);
      await page.mouse.move(to.x, to.y);
      await settle(page);
      const { query, key } = (await state(page)).hover;
      const [rows, columns] = [tokens(y), tokens(x)];
      assert.ok(rows[0] <= query && query < rows[1] && columns[0] <= key && key < columns[1], `${query} and ${key} in [${y}][${x}]`);
      return { query, key, shown: await text(page, '#keys .rowb.on .v'), title: await page.getAttribute('#keys .rowb.on .v', 'title') };
    };
    const cells = [[0, 0], [255, 255], [255, 0], [200, 199], [128, 64], [77, 20]];
    const kept = weightsOf(words, 2, 3);
    for (const [y, x] of cells) {
      const { query, key, title } = await hovered(y, x);
      near(Number(title), kept[query][key]);
      let most = 0;
      for (let i = tokens(y)[0]; i < tokens(y)[1]; ++i) for (let j = tokens(x)[0]; j < tokens(x)[1] && j <= i; ++j) most = Math.max(most, kept[i][j]);
      near(Number(title), most);
    }
    assert.doesNotMatch(await text(page, '.sum'), /kept/);
    const last = count - 1; // every head keeps its row: a page opens with it
    await page.mouse.move(5, 5);
    await page.evaluate((query) => { location.hash = `#head=2.4&lock=${query}`; }, last - 1);
    await settle(page);
    assert.match(await text(page, '.sum'), / Of this head the map and the 8 strongest keys of every token were kept\.$/);
    const other = weightsOf(words, 2, 4);
    const strongest = (query) => [...other[query].keys()].sort((a, b) => other[query][b] - other[query][a]).slice(0, 8);
    const listed = await page.locator('#keys .rowb').evaluateAll((all) => all.map((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]));
    assert.deepEqual(listed.map(([key]) => key), strongest(last - 1).slice(0, listed.length));
    for (const [key, value] of listed) near(value, other[last - 1][key], 1e-6);
    await page.keyboard.press('Escape');
    for (const [y, x] of cells) {
      const { query, key, shown, title } = await hovered(y, x);
      assert.equal(shown !== 'not kept', query === last || strongest(query).includes(key), `[${query}][${key}] ${shown}`);
      if (title) near(Number(title), other[query][key], 1e-6);
    }
    assert.equal(await page.locator('#neuron').count(), 0);
    assert.deepEqual(page.seen.complaints, []);
  });
}

// 66 tokens, of which two heads are in full: maps are as fine as the text, so it is not its length that matters.
const words66 = longText(66);
const writePartly = (...heads) => writePage(words66, '--recorded', '--max-size', '1.1MB', '--heads', heads.join(','));

test('14: a weight that was not kept is called so, and has no rank, no bar and no line', async () => {
  const page = await open(writePartly('L3H1', 'L0H4'), '#head=1.2&lock=60.1');
  const native = look(words66, '--layer', '1', '--head', '2').heads.find((head) => head.weights).weights[60];
  const order = [...native.keys()].sort((a, b) => native[b] - native[a]);
  const hidden = order[order.length - 1];
  await page.evaluate((key) => { location.hash = `#head=1.2&lock=60.${key}`; }, hidden);
  await settle(page);
  assert.equal(await text(page, '#keys .rowb.on .v'), 'not kept');
  assert.equal(await page.locator('#keys .rowb.on .tr i').count(), 0);
  assert.match(await text(page, '#live'), /looks at '.*', not kept$/);
  assert.match(await text(page, `#cell-${hidden}`), /not kept$/);
  const numbers = await page.locator('#keys .v[title]').count();
  assert.match(await text(page, '.sum'), new RegExp(`^It and ${60 - numbers} more share `));
  assert.match(await text(page, '.sum'), / Of this head the map and the 8 strongest keys of every token were kept\.$/);
  const shared = Number(/share ([\d.]+)\. /.exec(await text(page, '.sum'))[1]);
  near(shared, order.slice(numbers).reduce((sum, j) => sum + native[j], 0), 1e-3);
  await page.click('#tab-lines');
  await settle(page);
  assert.equal(await page.locator('#lines path').count(), 8);
  const listed = await page.locator('#lines .lb:not(.on)').count();
  assert.equal(listed, 8);
  // Few tokens come before: all were kept, so nothing is missing.
  await page.evaluate(() => { location.hash = '#head=1.2&lock=5'; });
  await settle(page);
  assert.match(await text(page, '.sum'), /Spread over [\d.]+ of 6\.$/);
  assert.deepEqual(page.seen.complaints, []);
});

test('14: mean and maximum of a layer are there only where all of its heads were kept in full', async () => {
  const page = await open(writePartly('L3H1', 'L0H4'), '#head=0.mean&lock=60.1');
  const refuses = /^The mean and the maximum of a layer need all of its heads in full; this recording does not keep them\.$/;
  assert.equal((await state(page)).over, null);
  assert.match(await text(page, '#toast'), refuses);
  assert.doesNotMatch(await page.evaluate(() => location.hash), /mean/);
  await page.click('[data-layer="3"]', { force: true });
  await settle(page);
  assert.equal((await state(page)).over, null);
  assert.match(await text(page, '#toast'), refuses);
  assert.match(await page.getAttribute('[data-layer="3"]', 'title'), refuses);
  const layer = Array.from({ length: 8 }, (_, head) => `L2H${head}`);
  const full = await open(writePartly(...layer), '#head=2.mean&lock=60.1');
  assert.equal((await state(full)).over, 'mean');
  const of = look(words66, '--layer', '2').heads.filter((head) => head.weights).map((head) => head.weights[60][1]);
  assert.equal(of.length, 8);
  near(await full.locator('#keys .rowb.on .v').evaluate((v) => Number(v.title)), of.reduce((a, b) => a + b) / 8);
});

test('14: what a recording of a short text lacks is not blamed on its length', async () => {
  const page = await open(writePartly('L3H1', 'L0H4'), '#head=1.2&tab=compare');
  assert.equal(await text(page, '#no-compare'), 'This recording does not keep every head in full, so heads cannot be compared cell by cell.');
  for (const menu of ['#export', '#display']) {
    await page.click(menu);
    assert.match(await text(page, '.pop .note'), /^This recording does not keep every head in full, so /);
  }
  const longer = await open(path, '#head=1.2&tab=compare');
  assert.match(await text(longer, '#no-compare'), /^This text is too long/);
});

test('14: a short recording shows every number of the live page', async () => {
  const page = await open(short, '#head=3.1');
  assert.ok(htmlOf(short).length < 1_000_000, String(htmlOf(short).length));
  console.log(`18 tokens, recorded: ${htmlOf(short).length} bytes`);
  const native = look(rabbit, '--layer', '3', '--head', '1').heads.find((head) => head.weights).weights;
  const weights = await page.evaluate(() => [...window.cephalo.state.run.weights.subarray(25 * 18 * 18, 26 * 18 * 18)]);
  native.forEach((row, i) => row.forEach((weight, j) => near(weights[i * 18 + j], weight)));
  const grid = await page.locator('#grid').boundingBox();
  const cell = (grid.width - left) / 18;
  await page.mouse.click(grid.x + left + 10.5 * cell, grid.y + above + 17.5 * cell);
  await settle(page);
  assert.equal(await page.locator('#dims tr').count(), 33);
  const live = await open(writePage(rabbit), '#head=3.1&lock=17.10&neuron=1');
  assert.deepEqual(await page.locator('#sums dd').allTextContents(), await live.locator('#sums dd').allTextContents());
});

test('14: where workers are forbidden, the page does it itself', async () => {
  const page = await open(path, '#head=2.3&lock=1500.3', { before: () => { window.Worker = null; } });
  assert.equal((await measured(page)).inWorker, false);
  const native = nativeWeights(2, 3)[1500];
  near(await page.locator('#keys .rowb.on .v').evaluate((v) => Number(v.title)), native[3]);
});

test('14: what is damaged is said, never a blank page', async () => {
  const cut = path.replace('.html', '-cut.html');
  writeFileSync(cut, htmlOf(path).replace(/id="recording">[^<]{4000}/, 'id="recording">'));
  const page = await open(cut, '', { refused: true });
  assert.match(await text(page, '#banner'), /recording/i);
  const flipped = path.replace('.html', '-flipped.html');
  writeFileSync(flipped, withFlippedBit(htmlOf(path), 'recording'));
  assert.equal(await text(await open(flipped, '', { refused: true }), '#banner'), 'This page is damaged: its part ‘recording’ cannot be read.');
  const none = path.replace('.html', '-none.html');
  writeFileSync(none, htmlOf(path).replace(/<script type="application\/octet-stream" data-check="[0-9a-f]{8}" id="recording">[^<]*<\/script>/, ''));
  assert.match(await text(await open(none, '', { refused: true }), '#banner'), /lacks its part ‘recording’/);
});

test('14: on a phone, and for a screen reader', async () => {
  const page = await open(path, '#head=2.3', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  for (const tab of ['matrix', 'lines', 'steps']) {
    await page.tap(`#tab-${tab}`);
    await settle(page);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, tab);
  }
  const chosen = await page.locator('.chip.on').boundingBox();
  assert.ok(chosen.x >= 0 && chosen.x + chosen.width <= 390, JSON.stringify(chosen));
  await page.tap('#tab-matrix');
  await page.locator('#grid').evaluate((grid) => grid.scrollIntoView({ block: 'start' }));
  const grid = await page.locator('#grid').boundingBox();
  await page.touchscreen.tap(grid.x + 150, grid.y + 200);
  await settle(page);
  assert.ok((await state(page)).lock.key !== null);
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const hash of ['#head=2.3', '#head=2.3&theme=dark&lock=900.300&neuron=1', '#head=2.3&tab=lines', '#head=2.3&tab=steps']) {
    const each = await open(path, hash);
    await each.evaluate(axe);
    const { violations } = await each.evaluate(() => window.axe.run());
    const serious = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(serious.map((v) => `${hash} ${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`), []);
  }
});

test('14: a live page says how a longer text is shown', async () => {
  const page = await open(writePage('The cat sat', '--model', model));
  await page.fill('#text', ' cat'.repeat(600));
  await page.waitForFunction(() => window.cephalo.state.error);
  await settle(page);
  assert.equal(await text(page, '#banner'), '601 tokens are more than a page shows while you type; cephalo page --recorded writes one of a long text. The earlier text is still shown.');
  assert.ok(await page.locator('.mx').isVisible());
  await page.fill('#text', ' cat'.repeat(299));
  await page.waitForFunction(() => !window.cephalo.state.error);
  await settle(page);
  assert.equal(await text(page, '#banner'), 'Beyond what the model was trained on: 300 tokens, trained on 256 at a time.');
});
