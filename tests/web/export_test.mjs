// What can be taken out of the page: files and paper.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { program } from './bundle.mjs';
import { close, launch, look, open, rabbit, serious, settle, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const weightsOf = (layer, head) =>
  look(rabbit, '--layer', String(layer), '--head', String(head)).heads.find((each) => each.weights).weights;

async function save(page, id) {
  if ((await page.getAttribute('#export', 'aria-expanded')) !== 'true') await page.click('#export');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click(`#save-${id}`)]);
  return { name: file.suggestedFilename(), bytes: readFileSync(await file.path()) };
}

// A .npy file of version 1.0, as NumPy's documents describe it.
function readNpy(bytes) {
  assert.deepEqual([...bytes.subarray(0, 8)], [0x93, ...Buffer.from('NUMPY'), 1, 0]);
  const end = 10 + bytes.readUInt16LE(8);
  assert.equal(end % 64, 0);
  const header = bytes.subarray(10, end).toString();
  const [, rows, columns] = /^\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n$/.exec(header);
  const values = Array.from({ length: rows * columns }, (_, n) => bytes.readFloatLE(end + 4 * n));
  assert.equal(bytes.length, end + 4 * values.length);
  return { rows: Number(rows), columns: Number(columns), values };
}

function checkCsv(csv, weights) {
  const lines = csv.trimEnd().split('\n').map((line) => line.split(','));
  assert.deepEqual(lines[0].slice(0, 3), ['query', 'token', '0']);
  assert.equal(lines.length, weights.length + 1);
  weights.forEach((row, i) => lines[i + 1].slice(2).forEach((cell, j) => {
    if (j > i) assert.equal(cell, '');
    else near(Number(cell), row[j]);
  }));
  return lines;
}

const pngSize = (bytes) => {
  assert.equal(bytes.subarray(1, 4).toString(), 'PNG');
  return [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
};

test('15: numbers of the shown head, as CSV and .npy', async () => {
  const page = await open(path, '#head=3.1');
  const weights = weightsOf(3, 1);
  const csv = await save(page, 'csv');
  assert.equal(csv.name, 'layer-3-head-1.csv');
  const lines = checkCsv(csv.bytes.toString(), weights);
  assert.equal(lines[11][1], '"Rabbit"');
  const npy = await save(page, 'npy');
  assert.equal(npy.name, 'layer-3-head-1.npy');
  const { rows, columns, values } = readNpy(npy.bytes);
  assert.deepEqual([rows, columns], [18, 18]);
  values.forEach((value, n) => near(value, weights[Math.floor(n / 18)][n % 18] ?? 0));
  await page.keyboard.press(']');
  await settle(page);
  assert.equal((await save(page, 'csv')).name, 'layer-3-head-2.csv');
  assert.deepEqual(page.seen.complaints, []);
});

test('15: a file is named after what is in it', async () => {
  const names = { '#head=3.0&by=value': 'layer-3-head-0-by-value', '#head=3.1&off=3.1': 'layer-3-head-1-what-if',
                  '#head=3.1&by=value&if=unscaled&in=3.1': 'layer-3-head-1-what-if',
                  '#head=3.mean&by=value&if=t3&in=1': 'layer-3-mean-what-if',
                  '#head=3.1&tab=compare&if=unscaled&in=3.1': 'layer-3-head-1' };
  for (const [hash, name] of Object.entries(names)) {
    const page = await open(path, hash);
    const csv = await save(page, 'csv');
    assert.equal(csv.name, `${name}.csv`, hash);
    const svg = (await save(page, 'svg')).bytes.toString();
    assert.equal(svg.includes('under what-if switches'), name.endsWith('what-if'), hash);
    assert.equal(svg.includes('weighed by value'), name.endsWith('by-value'), hash);
    if (name === 'layer-3-head-1') checkCsv(csv.bytes.toString(), weightsOf(3, 1));
  }
});

test('15: SVG with real text and hatching, PNG in three sizes', async () => {
  const page = await open(path, '#head=3.1&theme=dark');
  const svg = (await save(page, 'svg')).bytes.toString();
  const parsed = await page.evaluate((source) => {
    const root = new DOMParser().parseFromString(source, 'image/svg+xml');
    return { error: root.querySelector('parsererror')?.textContent ?? null,
             texts: [...root.querySelectorAll('text')].map((t) => t.textContent),
             hatched: root.querySelectorAll('[fill="url(#hidden)"]').length,
             size: ['width', 'height'].map((name) => Number(root.documentElement.getAttribute(name))) };
  }, svg);
  assert.equal(parsed.error, null);
  for (const each of ['Looks at what followed this token last time', 'Rabbit 10', '10 Rabbit', '.32',
                      'row = query, looks at → column = key; hatched = hidden']) {
    assert.ok(parsed.texts.includes(each), each);
  }
  assert.equal(parsed.hatched, 1);
  for (const scale of [1, 2, 4]) {
    const { name, bytes } = await save(page, `png-${scale}`);
    assert.equal(name, scale === 1 ? 'layer-3-head-1.png' : `layer-3-head-1.${scale}x.png`);
    assert.deepEqual(pngSize(bytes), parsed.size.map((size) => size * scale));
  }
  // Where the strongest cell of the first row stands, the picture is as bright as its weight, 1.
  const { bytes } = await save(page, 'png-1');
  const pixel = await page.evaluate(async (data) => {
    const picture = await createImageBitmap(new Blob([Uint8Array.from(data)], { type: 'image/png' }));
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    canvas.getContext('2d').drawImage(picture, 0, 0);
    return [...canvas.getContext('2d').getImageData(123, 193, 1, 1).data];
  }, [...bytes]);
  assert.ok(pixel[0] > 240 && pixel[1] > 220 && pixel[2] < 120, String(pixel));
  assert.deepEqual(page.seen.complaints, []);
});

test('15: a token such as <script> is text in the SVG', async () => {
  const page = await open(writePage('<script>&amp; "x" \u0001'), '#head=0.0');
  const svg = (await save(page, 'svg')).bytes.toString();
  assert.doesNotMatch(svg, /<script/);
  assert.equal(await page.evaluate((source) =>
    new DOMParser().parseFromString(source, 'image/svg+xml').querySelectorAll('parsererror').length, svg), 0);
});

test('15: the same from the command line, without a display', () => {
  const folder = mkdtempSync(join(tmpdir(), 'cephalo-export-'));
  const at = (ending) => join(folder, `head.${ending}`);
  const { DISPLAY, WAYLAND_DISPLAY, ...env } = process.env;
  const kinds = ['png', 'svg', 'csv', 'npy'].flatMap((kind) => [`--${kind}`, at(kind)]);
  execFileSync(program, ['look', rabbit, '--layer', '3', '--head', '1', ...kinds], { env });
  const weights = weightsOf(3, 1);
  checkCsv(readFileSync(at('csv'), 'utf8'), weights);
  readNpy(readFileSync(at('npy'))).values.forEach((value, n) => near(value, weights[Math.floor(n / 18)][n % 18] ?? 0));
  assert.ok(pngSize(readFileSync(at('png')))[0] > 200);
  assert.match(readFileSync(at('svg'), 'utf8'), /<text[^>]*>10 Rabbit<\/text>/);
});

test('Copy link and Print are buttons; on paper all is light, on one page, with nothing to press', async () => {
  const page = await open(path, '#head=3.1&theme=dark');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']).catch(() => {});
  await page.evaluate(() => { window.print = () => { window.printed = true; }; });
  await page.click('#print');
  assert.ok(await page.evaluate(() => window.printed));
  await page.click('#share');
  await page.waitForSelector('#toast.on');
  for (const view of ['', '&tab=lines', '&tab=steps&step=4', '&tab=compare', '&if=t10&in=3.1&more=1', '&off=3.0_3.1']) {
    const printed = view ? await open(path, `#head=3.1${view}`) : page;
    const pdf = (await printed.pdf({ preferCSSPageSize: true, printBackground: true })).toString('latin1');
    assert.equal(pdf.match(/\/Type\s*\/Page\b/g).length, 1, view);
  }
  await page.emulateMedia({ media: 'print' });
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  await settle(page);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  for (const selector of ['.top', '.tabs', '.nav', '#table', '#neuron', '#head-off']) {
    assert.equal(await page.locator(selector).first().isVisible(), false, selector);
  }
  for (const selector of ['#headline', '#sentence', '.mx canvas', '#looks', '#next', '.hc canvas', '#model']) {
    assert.ok(await page.locator(selector).first().isVisible(), selector);
  }
  await page.emulateMedia({ media: 'screen' });
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  await settle(page);
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
});

test('18: axe finds nothing serious in Compare, Export, the diagnostic run and the question of sinks', async () => {
  const page = await open(path, '#head=3.1&tab=compare&rows=spread');
  assert.deepEqual(await serious(page), []);
  await page.click('#export');
  await settle(page);
  assert.deepEqual(await serious(page), []);
  for (const [button, shown] of [['#diagnose', '.dg'], ['#sinks', '#weigh']]) {
    await page.click(button);
    await page.waitForSelector(shown);
    assert.deepEqual(await serious(page), [], button);
    await page.click('#close');
  }
  const texts = await open(path, '#head=3.1&tab=compare&theme=dark&b=The+cat+sat');
  assert.deepEqual(await serious(texts), []);
});

test('20: on a phone, Compare, Export and its menus need no sideways scrolling', async () => {
  const page = await open(path, '#head=3.1&tab=compare', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  const width = () => page.evaluate(() => document.documentElement.scrollWidth);
  const [field, theme] = [await page.locator('.top .field').boundingBox(), await page.locator('#theme').boundingBox()];
  assert.ok(theme.y >= field.y && theme.y < field.y + field.height, 'the field and what is left of the buttons share a line');
  assert.ok((await width()) <= 390);
  await page.tap('text=a text');
  await settle(page);
  assert.ok((await width()) <= 390);
  await page.tap('#export');
  await settle(page);
  assert.ok((await width()) <= 390);
  const menu = await page.locator('.pop').boundingBox();
  assert.ok(menu.x >= 0 && menu.x + menu.width <= 390);
});
