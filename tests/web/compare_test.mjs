// Head against head and text against text, in Chromium.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, launch, look, open, rabbit, settle, state, text, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const titled = (page, selector) => page.locator(selector).evaluate((element) => Number(element.title));
const weightsOf = (words, layer, head) =>
  look(words, '--layer', String(layer), '--head', String(head)).heads.find((each) => each.weights).weights;

// The mean over rows of the Jensen–Shannon divergence; the first row sees one key alone.
function divergence(a, b) {
  const part = (p, q) => (p > 0 ? (p * Math.log((2 * p) / (p + q))) / 2 : 0);
  let sum = 0;
  for (let i = 1; i < a.length; ++i) a[i].forEach((p, j) => { sum += part(p, b[i][j]) + part(b[i][j], p); });
  return sum / (a.length - 1);
}

test('13: head against head: the difference, how far apart, and one hover for all maps', async () => {
  const page = await open(path, '#head=3.1&tab=compare&with=2.3');
  const [a, b] = [weightsOf(rabbit, 3, 1), weightsOf(rabbit, 2, 3)];
  near(await titled(page, '#far b'), divergence(a, b));
  near(await titled(page, '#difference'), a[17][10] - b[17][10]);
  // The pointer on the small map of B chooses the same cell in the large one.
  const box = await page.locator('.smap').nth(1).boundingBox();
  await page.mouse.move(box.x + (4.5 / 18) * box.width, box.y + (12.5 / 18) * box.height);
  await settle(page);
  assert.deepEqual((await state(page)).hover, { query: 12, key: 4 });
  near(await titled(page, '#difference'), a[12][4] - b[12][4]);
  near(await titled(page, '[data-side=A] .cellsays b'), a[12][4]);
  near(await titled(page, '[data-side=B] .cellsays b'), b[12][4]);
  const rows = await page.locator('.cmp .frow').evaluateAll((all) => all.map((row) => {
    const map = row.closest('svg').previousElementSibling.getBoundingClientRect();
    return Math.round((row.getBoundingClientRect().top + 0.5 - map.top) / (map.height / 18));
  }));
  assert.deepEqual(rows, [12, 12, 12]);
  await page.mouse.move(5, 5);
  await page.selectOption('#head-b', '25');
  await settle(page);
  near(await titled(page, '#far b'), 0);
  assert.equal(await page.evaluate(() => location.hash), '#head=3.1&tab=compare&with=3.1');
  assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]), [1280, 800]);
});

test('13: text against text; where lengths differ, it says what cannot be compared', async () => {
  const page = await open(path, '#head=3.1&tab=compare');
  await page.click('text=a text');
  await settle(page);
  assert.equal(await page.inputValue('#text-b'), rabbit);
  near(await titled(page, '#far b'), 0);
  const changed = 'Peter Rabbit saw Jemima. Peter Rabbit met Jemima. Peter';
  await page.fill('#text-b', changed);
  await settle(page);
  const [a, b] = [weightsOf(rabbit, 3, 1), weightsOf(changed, 3, 1)];
  assert.equal(a.length, b.length);
  near(await titled(page, '#far b'), divergence(a, b));
  near(await titled(page, '#difference'), a[17][10] - b[17][10]);
  // What steps show is still text A's.
  await page.click('#tab-steps');
  await settle(page);
  const shown = await page.evaluate(() => [...window.cephalo.state.steps.steps.find((s) => s.key === 'weights').values]);
  near(shown[17 * 18 + 10], a[17][10]);
  await page.click('#tab-compare');
  await page.fill('#text-b', 'The cat sat');
  await settle(page);
  assert.equal(await page.locator('#far').count(), 0);
  assert.match(await text(page, '#unlike'), /^A has 18 tokens, B \d+: .* no difference map and no divergence/);
  const native = look('The cat sat').heads[25].metrics;
  near(Number(await text(page, '#means tr:nth-child(2) td:nth-child(3)')), native.previous, 1e-4);
  await page.fill('#text-b', 'word '.repeat(300));
  await page.waitForSelector('#error-b');
  assert.match(await text(page, '#error-b'), /^Text B: \d+ tokens are more than cephalo-small reads at once/);
  assert.equal(await page.locator('#banner').count(), 0);
});

test('13: a link brings a comparison back', async () => {
  const page = await open(path, '#head=1.2&tab=compare&b=The+cat+sat');
  assert.equal(await page.inputValue('#text-b'), 'The cat sat');
  assert.equal(await page.evaluate(() => location.hash), '#head=1.2&tab=compare&b=The+cat+sat');
  const other = await open(path, '#head=1.2&tab=compare&with=77.1');
  assert.equal((await state(other)).compared.place, null);
  const recorded = await open(writePage(rabbit, '--recorded'), '#head=1.2&tab=compare&b=The+cat+sat');
  assert.equal((await state(recorded)).compared.with, 'head');
  assert.equal(await recorded.locator('text=a text').count(), 0);
  assert.ok(await recorded.locator('#far').isVisible());
});
