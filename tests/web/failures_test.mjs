// What the page says and still shows when something is wrong, in Chromium: never a blank page, and
// no waiting for what will not come.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { checksum, close, htmlOf, launch, measured, open, openRaw, rabbit, settle, text, withFlippedBit, withPart, writePage } from './browser.mjs';
import { longModel } from './long_text.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const tooLong = 'word '.repeat(300);
let changed = 0;
function changedPage(change) {
  const other = path.replace('.html', `-changed${changed++}.html`);
  writeFileSync(other, change(htmlOf(path)));
  return other;
}

async function typeTooLong(page) {
  await page.fill('#text', tooLong);
  await page.waitForFunction(() => window.cephalo.state.error);
  await settle(page);
}

test('a worker that fails later on: the page does it itself, with all that was asked for', async () => {
  const before = () => {
    window.Worker = class {
      constructor() { setTimeout(() => this.onerror(new Event('error')), 20); }
      postMessage() {}
    };
  };
  for (const each of [path, writePage(rabbit, '--recorded')]) {
    const page = await open(each, '#head=2.3', { before });
    assert.equal((await measured(page)).inWorker, false);
    assert.equal(await page.locator('.chip[data-n]').count(), 18);
  }
});

test('a worker that fails after it has answered: the page says so', async () => {
  const page = await open(path, '', { before: () => {
    window.Worker = class extends Worker {
      constructor(address) { super(address); window.made = this; }
    };
  } });
  await page.evaluate(() => window.made.onerror(new Event('error')));
  await page.waitForSelector('#banner');
  assert.equal(await text(page, '#banner'), 'The engine stopped: load this page again.');
});

test('a file that was cut, or no scripts: words stand in it', async () => {
  const said = /^This page has not started\. If these words stay, the file was not saved whole, or scripts are switched off here\.$/;
  const cut = (share) => openRaw(changedPage((html) => html.slice(0, share * html.length)));
  const early = await cut(0.03); // before the script
  await early.waitForSelector('.unstarted', { state: 'visible' });
  assert.match(await text(early, '.unstarted'), said);
  for (const share of [0.5, 0.97]) {
    const page = await cut(share);
    await page.waitForSelector('#banner');
    assert.equal(await text(page, '#banner'), 'This page lacks its part ‘model-merges’: it was not saved whole.');
  }
  const page = await openRaw(path, '', { javaScriptEnabled: false });
  await page.waitForSelector('.unstarted', { state: 'visible' });
  const broken = await openRaw(changedPage((html) => html.replace('id="page-data">{', 'id="page-data">')));
  await broken.waitForSelector('.unstarted', { state: 'visible' });
});

test('where all is well these words are never seen', async () => {
  for (const reducedMotion of ['no-preference', 'reduce']) {
    const page = await open(path, '', { reducedMotion, before: () => {
      window.shifts = [];
      new PerformanceObserver((list) => window.shifts.push(...list.getEntries().flatMap((each) => each.sources.map((of) => of.node?.className))))
        .observe({ type: 'layout-shift', buffered: true });
      new MutationObserver((_, observer) => {
        const found = document.querySelector('.unstarted');
        if (!found) return;
        const { visibility, height } = getComputedStyle(found);
        window.first = `${visibility} ${height}`;
        observer.disconnect();
      }).observe(document, { childList: true, subtree: true });
    } });
    assert.equal(await page.evaluate(() => window.first), 'hidden 0px'); // it takes no room either
    assert.equal(await page.locator('.unstarted').count(), 0);
    assert.ok(!(await page.evaluate(() => window.shifts)).includes('unstarted'));
  }
});

test('after a text that is too long, steps and sums of the earlier one are there', async () => {
  const page = await open(path, '#head=3.1&lock=17.10');
  await typeTooLong(page);
  assert.match(await text(page, '#banner'), /^\d+ tokens are more than cephalo-small reads at once \(256\)\. The earlier text is still shown\.$/);
  await page.click('#tab-steps');
  await settle(page);
  const native = await open(path, '#head=3.1&lock=17.10&tab=steps&neuron=1');
  const weights = (of) => of.evaluate(() => [...window.cephalo.state.steps.steps.find((s) => s.key === 'weights').values]);
  assert.deepEqual(await weights(page), await weights(native));
  await page.evaluate(() => { location.hash += '&neuron=1'; });
  await settle(page);
  assert.deepEqual(await page.locator('#sums dd').allTextContents(), await native.locator('#sums dd').allTextContents());
});

test('a link to a text that is too long shows the text of the page', async () => {
  const page = await open(path, `#${new URLSearchParams({ text: tooLong, head: '2.3' })}`, { refused: true });
  await page.waitForFunction(() => window.cephalo.state.run);
  await settle(page);
  assert.match(await text(page, '#banner'), /reads at once \(256\)\. The text of this page is shown instead\.$/);
  assert.equal(await page.locator('.chip[data-n]').count(), 18);
  assert.equal(await text(page, '#headline'), 'Looks at the token before');
  assert.equal(await page.inputValue('#text'), tooLong);
  await page.fill('#text', 'The cat sat');
  await page.waitForFunction(() => !window.cephalo.state.error);
  await settle(page);
  assert.equal(await page.locator('#banner').count(), 0);
});

test('text B is as long as text A may be, and no longer', async () => {
  const { model } = longModel();
  const page = await open(writePage('The cat sat', '--model', model), '#head=0.0&tab=compare&b=The+cat');
  await page.fill('#text-b', ' cat'.repeat(600));
  await page.waitForSelector('#error-b');
  assert.equal(await text(page, '#error-b'),
               'Text B: 601 tokens are more than a page shows while you type; cephalo page --recorded writes one of a long text.');
});

const banner = async (each) => text(await open(each, '', { refused: true }), '#banner');

test('the checksum is XXH32', () => {
  const vectors = { '': '02cc5d05', a: '550d7456', abc: '32d153ff', 'Nobody inspects the spammish repetition': 'e2293b2f' };
  for (const [words, expected] of Object.entries(vectors)) {
    const bytes = new TextEncoder().encode(`?${words}`);
    assert.equal(checksum(bytes.slice(1)), expected);
    assert.equal(checksum(bytes.subarray(1)), expected); // not where words of 32 bits begin
  }
});

test('a bit that was flipped on the way is noticed, in every part', async () => {
  for (const id of ['engine', 'model-config', 'model-parameters', 'model-vocab', 'model-merges']) {
    assert.equal(await banner(changedPage((html) => withFlippedBit(html, id))), `This page is damaged: its part ‘${id}’ cannot be read.`);
  }
  for (const change of [(html) => withFlippedBit(html, 'page-data'), (html) => html.replace('use strict', 'use Strict')]) {
    const page = await openRaw(changedPage(change));
    await page.waitForSelector('.unstarted', { state: 'visible' });
  }
});

test('what the engine cannot read is said in plain words, and files keep their names', async () => {
  const part = (id, change) => changedPage((html) => withPart(html, id, change));
  const half = (data) => data.slice(0, 4 * Math.floor(data.length / 8));
  assert.equal(await banner(part('engine', half)), 'This page is damaged: its engine cannot be read.');
  assert.equal(await banner(part('engine', (data) => `?${data}`)), 'This page is damaged: its part ‘engine’ cannot be read.');
  assert.match(await banner(part('model-vocab', half)), /vocab\.json/);
  assert.match(await banner(part('model-parameters', half)), /^cephalo-small\/model\.safetensors/);
});

test('a word after a new line is not joined to it, and pieces of one word are', async () => {
  const page = await open(path);
  await page.fill('#text', 'Peter Rabbit\nJemima met\n\nPeter');
  await settle(page);
  const words = await page.locator('.chips > .word').evaluateAll((all) => all.map((word) => [...word.querySelectorAll('.chip b')].map((b) => b.textContent)));
  assert.deepEqual(words, [['begin'], ['Peter'], ['Rabbit'], ['⏎'], ['J', 'em', 'im', 'a'], ['met'], ['⏎'], ['⏎'], ['Peter']]);
  assert.deepEqual(await page.locator('.chip.joined b').allTextContents(), ['em', 'im', 'a']);
  assert.deepEqual(await page.locator('.chip.joins b').allTextContents(), ['J', 'em', 'im']);
});

test('one token is not “1 tokens”, and a word after a space or a new line is not the rest of one', async () => {
  const page = await open(path);
  for (const [typed, count] of [['', '1 token'], ['Peter Rabbit\n', null], ['Once upon a ', null], ['The', '2 tokens']]) {
    await page.fill('#text', typed);
    await settle(page);
    if (count) assert.match(await text(page, '#model'), new RegExp(` · ${count} · `));
    const names = await page.locator('#next .rowb > span:first-child').allTextContents();
    assert.equal(names.length, 5);
    if (typed !== 'The') assert.deepEqual(names.filter((name) => name.startsWith('…')), [], JSON.stringify(typed));
  }
});
