// Menus, the phone and narrow windows: everything has a way to it, and a place of its own.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, launch, open, rabbit, serious, settle, state, text, writePage } from './browser.mjs';

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

test('20: on a phone the menu stands below its button, whatever the page says next to it', async () => {
  const page = await open(writePage(rabbit, '--recorded'), '', phone);
  await page.tap('#menu');
  await settle(page);
  const [button, pop] = [await page.locator('#menu').boundingBox(), await page.locator('.pop').boundingBox()];
  assert.ok(pop.y >= button.y + button.height && pop.y <= button.y + button.height + 12, `${button.y} and ${pop.y}`);
  assert.ok(pop.x >= 0 && pop.x + pop.width <= 390);
});

test('20: on a phone a menu has what there is no room for', async () => {
  const page = await open(path, '#head=3.1', phone);
  const sizes = await page.locator('#menu').boundingBox();
  assert.ok(sizes.width >= 40 && sizes.height >= 40);
  const choose = async (id) => {
    await page.tap('#menu');
    await settle(page);
    const menu = await page.locator('.pop').boundingBox();
    assert.ok(menu.x >= 0 && menu.x + menu.width <= 390);
    const item = await page.locator(`#menu-${id}`).boundingBox();
    assert.ok(item.height >= 44, `${item.height}`);
    await page.tap(`#menu-${id}`);
    await settle(page);
    assert.equal(await page.locator('.pop').count(), 0);
  };
  for (const [id, title, shown] of [['help', 'How to read this', '.keys'], ['table', 'Every head, every number', '#numbers'],
                                    ['diagnose', 'Every head on random repeats', '.dg']]) {
    await choose(id);
    await page.waitForSelector(shown);
    assert.equal(await text(page, '#dialog-title'), title);
    const box = await page.locator('dialog').boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 390 && box.y >= 0 && box.y + box.height <= 844, id);
    const button = await page.locator('#close').boundingBox();
    assert.ok(button.x + button.width <= box.x + box.width, id);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, id);
    assert.deepEqual(await serious(page), [], id);
    if (id === 'help') assert.match(await text(page, '.keys'), /^tap/);
    await page.tap('#close');
    await settle(page);
    assert.equal(await focused(page), 'menu');
  }
  assert.equal(await page.locator('#numbers').count(), 0);
  await page.evaluate(() => { window.print = () => { window.printed = true; }; });
  await choose('print');
  assert.ok(await page.evaluate(() => window.printed));
  await choose('share');
  await page.waitForSelector('#toast.on');
  await page.tap('#menu');
  await settle(page);
  assert.deepEqual(await serious(page), []);
  const wide = await open(path);
  assert.equal(await wide.locator('#menu').isVisible(), false);
});
