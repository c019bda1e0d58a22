// Menus and narrow windows: everything has a place of its own.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, launch, open, rabbit, settle, state, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
const focused = (page) => page.evaluate(() => document.activeElement.id);

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

test('17: Tab goes into a menu that was opened, and Escape gives the focus back to its button', async () => {
  const page = await open(path, '#head=3.1');
  const press = async (key) => {
    await page.keyboard.press(key);
    await settle(page);
  };
  for (const [menu, words] of [['display', '0–1'], ['export', '1×']]) {
    await page.focus(`#${menu}`);
    await press('Enter');
    assert.equal((await state(page)).popover, menu);
    await press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.closest('.pop') && document.activeElement.textContent), words);
    await press('Escape');
    assert.equal((await state(page)).popover, null);
    assert.equal(await focused(page), menu);
  }
  // Opened by the mouse, and left by Escape at once.
  await page.click('#display');
  await press('Escape');
  assert.deepEqual([(await state(page)).popover, await focused(page)], [null, 'display']);
});

test('17: a menu closes behind a focus that goes on', async () => {
  const page = await open(path, '#head=3.1');
  await page.focus('#display');
  await page.keyboard.press('Enter');
  await settle(page);
  const inside = await page.locator('.pop button').count();
  for (let n = 0; n <= inside; ++n) await page.keyboard.press('Tab');
  await settle(page);
  assert.deepEqual([(await state(page)).popover, await focused(page)], [null, 'export']);
  await page.click('#export');
  await page.click('#headline');
  await settle(page);
  assert.equal((await state(page)).popover, null);
});

test('20: a menu stands below its button, whatever stands above the tabs', async () => {
  for (const options of [{}, phone]) {
    const page = await open(path, '#head=3.1&if=t10&in=3.1&off=3.0_3.1', options);
    for (const menu of ['#display', '#export']) {
      await page.click(menu);
      await settle(page);
      const [button, pop] = [await page.locator(menu).boundingBox(), await page.locator('.pop').boundingBox()];
      assert.ok(pop.y >= button.y + button.height - 1 && pop.y <= button.y + button.height + 12, `${menu}: ${button.y} and ${pop.y}`);
    }
  }
});
