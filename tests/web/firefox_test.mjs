// The page in Firefox: opened from a file, typed into, hovered.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { look, rabbit, writePage } from './browser.mjs';
import { Firefox } from './firefox.mjs';

const end = '\uE010'; // the End key
const debians = '/usr/bin/firefox-esr';
const lacking = !process.env.FIREFOX && !existsSync(debians) && `there is no ${debians}, as on Ubuntu; FIREFOX=/path/to/firefox names another, which is not a snap`;

test('in Firefox it opens, follows the typing, and a hover isolates', { skip: lacking }, async () => {
  const firefox = await Firefox.launch(process.env.FIREFOX ?? debians);
  try {
    await firefox.goto(`${pathToFileURL(writePage(rabbit)).href}#head=3.1`);
    await firefox.until(() => window.cephalo?.state.run && document.getElementById('headline'));
    assert.equal(await firefox.evaluate(() => document.getElementById('headline').textContent), 'Looks at what followed this token last time');
    assert.equal(await firefox.evaluate(() => window.cephalo.measured.inWorker), true);
    await firefox.click('#text');
    await firefox.type(`${end} Rabbit`);
    const typed = `${rabbit} Rabbit`;
    await firefox.until(`() => window.cephalo.state.run.text === ${JSON.stringify(typed)}`);
    const native = look(typed, '--layer', '3', '--head', '1');
    const count = native.tokens.length;
    await firefox.until(`() => document.querySelectorAll('.chip[data-n]').length === ${count}`);
    await firefox.hover('.chip[data-n="10"]');
    await firefox.until(() => window.cephalo.state.hover?.query === 10);
    await firefox.until(`() => document.querySelectorAll('.chip.future').length === ${count - 11}`);
    const shown = await firefox.evaluate(() => [...document.querySelectorAll('#keys .rowb')].map((row) =>
      [Number(row.dataset.key), Number(row.querySelector('.v').title)]));
    const row = native.heads.find((head) => head.weights).weights[10];
    assert.equal(shown.length, 5);
    for (const [key, value] of shown) assert.ok(Math.abs(value - row[key]) <= 1e-5, `${value} and ${row[key]}`);
    assert.deepEqual(await firefox.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]), [1280, 800]);
    assert.deepEqual(firefox.complaints, []);
    console.log(`Firefox ${firefox.version}, first map after ${Math.round(await firefox.evaluate(() => window.cephalo.measured.firstMap))} ms`);
  } finally {
    await firefox.close();
  }
});
