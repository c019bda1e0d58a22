// What the page says and still shows when something is wrong, in Chromium: never a blank page, and
// no waiting for what will not come.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, htmlOf, launch, measured, open, rabbit, text, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

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
