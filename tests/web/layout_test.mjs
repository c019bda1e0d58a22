// Narrow windows: everything has a place of its own.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, launch, open, rabbit, settle, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

test('4: maps of heads stay within their column and nothing sticks out, however wide the window is', async () => {
  const page = await open(path);
  for (const width of [320, 360, 600, 900, 901, 1024, 1120, 1121, 1280, 1600]) {
    await page.setViewportSize({ width, height: 800 });
    await settle(page);
    const { right, end } = await page.locator('#heads').evaluate((column) => ({
      right: Math.max(...[...column.querySelectorAll('.hc')].map((map) => map.getBoundingClientRect().right)),
      end: column.getBoundingClientRect().right - parseFloat(getComputedStyle(column).paddingRight),
    }));
    assert.ok(right <= end, `${width} px: ${right} and ${end}`);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `${width} px`);
  }
});
