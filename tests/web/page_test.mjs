// The page in Chromium, one test for each thing that it promises.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { close, htmlOf, launch, look, measured, median, open, rabbit, settle, state, text, within, withPart, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const withoutData = (html) => html.replace(/<script type="application\/(json|octet-stream)" data-check="[0-9a-f]{8}" id="(page-data|model-[a-z]+)">[^<]*<\/script>\n/g, '');

test('1: it asks for nothing outside, and its policy forbids it', async () => {
  const page = await open(path);
  await page.fill('#text', 'Something else');
  await settle(page);
  assert.deepEqual(page.seen.requests.filter((url) => !/^(file|blob|data):/.test(url)), []);
  assert.equal(page.seen.requests.filter((url) => url.startsWith('file:')).length, 1);
  assert.deepEqual(page.seen.complaints, []);
  const policy = await page.getAttribute('meta[http-equiv]', 'content');
  assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+' 'wasm-unsafe-eval'; worker-src blob:; style-src 'sha256-[^']+'; img-src data: blob:; base-uri 'none'; form-action 'none'$/);
  const refused = await page.evaluate(() => new Promise((done) => {
    addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
    fetch('https://example.org/').then(() => done('it went out'), () => {});
  }));
  assert.equal(refused, 'connect-src');
  assert.doesNotMatch(withoutData(htmlOf(path)).split('<script>')[0], /\son[a-z]+=/);
});

test('1: text such as <script> is inert, written or typed', async () => {
  const evil = '</script><script>window.evil = 1</script><img src=x onerror="window.evil = 1">';
  const page = await open(writePage(evil));
  assert.equal(await page.inputValue('#text'), evil);
  await page.fill('#text', `typed ${evil}`);
  await settle(page);
  assert.equal(await page.evaluate(() => window.evil), undefined);
  assert.equal(await page.locator('img').count(), 0);
  assert.deepEqual(page.seen.complaints, []);
});

test('2: it is light, and the first map is there at once', async () => {
  const html = htmlOf(path);
  const bare = withoutData(html).length;
  const engine = /id="engine">([^<]*)</.exec(html)[1].length;
  console.log(`page.html: ${html.length} bytes, ${bare} without its data, of these ${engine} the engine in base64`);
  assert.ok(bare <= 700_000, `${bare} bytes`);
  assert.ok(bare - engine <= 200_000, `${bare - engine} bytes of code`);
  assert.ok(html.length <= 12_500_000, `${html.length} bytes`);
  const openings = [];
  for (let n = 0; n < 5; ++n) {
    const page = await open(path);
    openings.push((await measured(page)).firstMap);
    await page.close();
  }
  assert.ok(Math.min(...openings) > 0);
  within('first map, median of 5', median(openings), 1000);
});

test('3: every map follows the typing; tokens have their index and id', async () => {
  const page = await open(path);
  const words = 'The quick brown fox met the old lady by the river and the fox said to the lady that the quick river was old'
    .concat(', and then the old lady and the quick fox went to the river, where the fox met the brown cat of the lady and said to the cat that the river was old and the lady was');
  await page.fill('#text', words);
  await settle(page);
  for (let n = 0; n < 20; ++n) {
    await page.locator('#text').press('End');
    await page.locator('#text').press(n % 2 ? 'Backspace' : 'x');
    await settle(page);
  }
  const { waits, passes, draws, answers } = await measured(page);
  const count = await page.evaluate(() => window.cephalo.state.run.tokens.length);
  console.log(`${count} tokens`);
  assert.ok(count >= 60, `${count} tokens`);
  within('wait after a key, median of 20', median(waits.slice(-20)), 30);
  within('pass, median of 20', median(passes.slice(-20)), 120);
  within('draw, median of 20', median(draws.slice(-20)), 30);
  within('from a key to the picture, median of 20', median(answers.slice(-20)), 200);
  const native = look(await page.inputValue('#text'));
  const chips = await page.locator('.chip[data-n]').evaluateAll((all) => all.map((chip) => chip.title));
  assert.equal(chips.length, native.tokens.length);
  native.tokens.forEach((token, n) => assert.match(chips[n], new RegExp(`index ${n}  id ${token.id}$`)));
});

test('3: a newer text takes over: the last one typed is the one shown', async () => {
  const page = await open(path);
  for (const word of ['a', 'ab', 'abc', 'The cat sat']) await page.fill('#text', word);
  await settle(page);
  assert.equal(await page.evaluate(() => window.cephalo.state.run.text), 'The cat sat');
  assert.equal(await page.locator('.chip[data-n]').count(), look('The cat sat').tokens.length);
});

test('4: a map for every head, of 32 px and more, by one colour scale; a layer shows its mean and maximum', async () => {
  const page = await open(path);
  const sizes = await page.locator('.hc canvas').evaluateAll((all) => all.map((c) => c.getBoundingClientRect().width));
  assert.equal(sizes.length, 32);
  assert.ok(Math.min(...sizes) >= 31.5, String(Math.min(...sizes)));
  // The same weight has the same colour in the thumbnail and in the matrix: its first cell is 1.
  const corner = (selector) => page.locator(selector).first().evaluate((canvas) => {
    const at = Math.floor(canvas.width / 18 / 2);
    return [...canvas.getContext('2d').getImageData(at, at, 1, 1).data];
  });
  assert.deepEqual(await corner('.hc canvas'), await corner('.mx canvas'));
  await page.click('.ly[data-layer="2"]');
  await settle(page);
  assert.equal(await text(page, '#headline'), 'What this layer looks at, on average');
  const native = look(rabbit, '--layer', '2').heads.filter((head) => head.layer === 2);
  const shown = () => page.locator('#keys .rowb').first().evaluate((row) => [Number(row.dataset.key), Number(row.querySelector('.v').title)]);
  let [key, value] = await shown();
  near(value, native.reduce((sum, head) => sum + head.weights[17][key], 0) / 8);
  await page.click('.seg button:text("max")');
  await settle(page);
  [key, value] = await shown();
  near(value, Math.max(...native.map((head) => head.weights[17][key])));
});

test('5: matrix and lines of a head; hover isolates, click locks, Esc frees', async () => {
  const page = await open(path, '#head=2.3');
  assert.equal(await text(page, '#headline'), 'Looks at the token before');
  assert.match(await text(page, '#sentence'), /^\d+\s% of its attention, on average over this text, goes one step back\.$/);
  assert.match(await text(page, '.pill'), /previous [01]\.\d\d/);
  assert.match(await text(page, '#legend'), /row = query, looks at → column = key/);
  const labels = await page.locator('.mx svg text').allTextContents();
  for (const each of ['looks at →', 'token ↓', '17', '0', 'begin', '“.”']) assert.ok(labels.includes(each), each);
  assert.equal(await page.locator('.chip.on').getAttribute('data-n'), '17');
  assert.ok((await page.locator('.arcs path').count()) >= 1);
  assert.match(await text(page, '.chip.next'), /Rabbit\d+\s% next/);
  const grid = await page.locator('#grid').boundingBox();
  const cell = (grid.width - 78) / 18;
  const at = (i, j) => ({ x: grid.x + 78 + (j + 0.5) * cell, y: grid.y + 54 + (i + 0.5) * cell });
  let to = at(9, 4);
  await page.mouse.move(to.x, to.y);
  await settle(page);
  assert.deepEqual((await state(page)).hover, { query: 9, key: 4 });
  assert.equal(await page.locator('.chip.future').count(), 8);
  const native = look(rabbit, '--layer', '2', '--head', '3').heads.find((head) => head.weights);
  near(await page.locator('#keys .rowb.on .v').evaluate((v) => Number(v.title)), native.weights[9][4]);
  await page.mouse.click(to.x, to.y);
  await settle(page);
  to = at(2, 1);
  await page.mouse.move(to.x, to.y);
  await settle(page);
  assert.deepEqual((await state(page)).lock, { query: 9, key: 4 });
  assert.equal((await state(page)).hover, null);
  await page.keyboard.press('Escape');
  await page.mouse.move(5, 5);
  await settle(page);
  assert.equal((await state(page)).lock, null);
  await page.click('#tab-lines');
  await settle(page);
  assert.ok((await page.locator('.ln path').count()) >= 17);
  assert.match(await text(page, '#legend'), /Under 0\.04 not drawn/);
});

test('5: without a click anywhere, all is there as text on one screen', async () => {
  const page = await open(path);
  for (const selector of ['#headline', '#sentence', '.pill b', '#looks', '#keys .v', '#next .v']) {
    const box = await page.locator(selector).first().boundingBox();
    assert.ok(box && box.y >= 0 && box.y + box.height <= 800, selector);
  }
  assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]), [1280, 800]);
});

test('6: the steps, each with shape, formula and a worked cell, and the numbers of the trace', async () => {
  const page = await open(path, '#head=3.1&tab=steps&step=0');
  const names = ['Input', 'Project', 'Scores', 'Mask', 'Softmax', 'Values', 'Output'];
  for (let n = 0; n < names.length; ++n) {
    await page.click(`[data-step="${n}"]`);
    await settle(page);
    assert.equal(await text(page, '.says h2'), names[n]);
    assert.match(await text(page, '#shape'), /^\[1, .*\]$/);
    assert.ok((await text(page, '.fm')).length > 5);
    assert.match(await text(page, '#worked'), /\d/);
    assert.ok((await page.locator('.stp canvas').count()) >= 1);
  }
  const native = look(rabbit, '--layer', '3', '--head', '1').heads.find((head) => head.weights);
  const steps = await page.evaluate(() => Object.fromEntries(window.cephalo.state.steps.steps.map((s) => [s.key, [...s.values]])));
  for (let n = 0; n < 10; ++n) {
    const i = Math.floor(Math.random() * 18);
    const j = Math.floor(Math.random() * (i + 1));
    near(steps.weights[i * 18 + j], native.weights[i][j]);
  }
});

test('7: a click on a cell shows where its number comes from', async () => {
  const page = await open(path, '#head=3.1');
  const grid = await page.locator('#grid').boundingBox();
  const cell = (grid.width - 78) / 18;
  await page.mouse.click(grid.x + 78 + 10.5 * cell, grid.y + 54 + 17.5 * cell);
  await settle(page);
  const rows = await page.locator('#dims tr').evaluateAll((all) => all.slice(1).map((row) => [...row.cells].slice(1).map((c) => Number(c.title))));
  assert.equal(rows.length, 32);
  for (const [q, k, product] of rows) near(q * k, product, 1e-4);
  const sum = rows.reduce((total, row) => total + row[2], 0);
  const sums = await page.locator('#sums dd').allTextContents();
  near(Number(sums[0]), sum, 0.01);
  near(Number(sums[1]), sum / Math.sqrt(32), 0.01);
  assert.match(await text(page, '#sums'), /rank \d+ of 18/);
  assert.ok((await page.locator('#next').boundingBox()).y < 800);
});

test('10: labels with letters and scores; a filter, and why', async () => {
  const page = await open(path);
  const native = look(rabbit);
  const badges = await page.locator('.hc em').evaluateAll((all) => all.map((em) => em.dataset.letters));
  const letters = { previous: 'P', induction: 'I', duplicate: '=', sink: 'S', current: 'C', diffuse: '≈' };
  native.heads.forEach((head, n) => assert.equal(badges[n], head.labels.map((l) => letters[l.label]).join('')));
  const kind = await page.locator('.kind').first().getAttribute('data-kind');
  await page.click('.kind >> nth=0');
  await settle(page);
  const having = native.heads.filter((head) => head.labels.some((l) => l.label === kind)).length;
  assert.equal(await page.locator('.hc.dim').count(), 32 - having);
  await page.click(`.pill[data-why="${kind}"]`);
  await settle(page);
  assert.equal((await state(page)).why, kind);
});

test('10: why outlines exactly the cells that count', async () => {
  const { tokens } = look(rabbit);
  const id = (n) => tokens[n].id;
  const counted = { induction: (i, j) => j >= 1 && j < i && id(j - 1) === id(i), sink: (i, j) => i >= 1 && j === 0 };
  const pixels = async (hash) => {
    const page = await open(path, hash);
    return page.locator('#grid canvas').first().evaluate((canvas) => {
      const { width, height } = canvas;
      return { side: width, values: [...new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer)] };
    });
  };
  const plain = await pixels('#head=3.1');
  for (const [label, counts] of Object.entries(counted)) {
    const outlined = await pixels(`#head=3.1&why=${label}`);
    assert.equal(outlined.side, plain.side);
    const changed = new Set();
    outlined.values.forEach((value, n) => {
      const cell = (place) => Math.floor((place * tokens.length) / plain.side);
      if (value !== plain.values[n]) changed.add(`${cell(Math.floor(n / plain.side))} ${cell(n % plain.side)}`);
    });
    const expected = tokens.flatMap((_, i) => tokens.map((_, j) => [i, j])).filter(([i, j]) => counts(i, j));
    assert.deepEqual([...changed].sort(), expected.map(([i, j]) => `${i} ${j}`).sort(), label);
  }
});

test('16: a link brings back every choice; Back and Forward go through them', async () => {
  const hash = '#text=The+cat+sat&head=2.4&tab=steps&step=2&lock=3.1&colour=log&by=value&kind=sink&neuron=1&theme=dark';
  const page = await open(path, hash);
  const now = await state(page);
  assert.deepEqual([now.text, now.layer, now.head, now.tab, now.step, now.lock, now.scale, now.byValue, now.filter, now.neuron, now.theme],
                   ['The cat sat', 2, 4, 'steps', 2, { query: 3, key: 1 }, 'log', true, 'sink', true, 'dark']);
  assert.equal(await page.evaluate(() => location.hash), hash);
  await page.keyboard.press(']');
  await settle(page);
  await page.click('#tab-matrix');
  await settle(page);
  await page.goBack();
  await settle(page);
  assert.deepEqual([(await state(page)).head, (await state(page)).tab], [5, 'steps']);
  await page.goBack();
  await settle(page);
  assert.equal((await state(page)).head, 4);
  await page.goForward();
  await settle(page);
  assert.equal((await state(page)).head, 5);
  const nonsense = await open(path, '#head=99.99&lock=500.3&tab=evil&step=x');
  assert.deepEqual([(await state(nonsense)).layer, (await state(nonsense)).head, (await state(nonsense)).tab], [3, 7, 'matrix']);
});

test('17: everything by keys', async () => {
  const page = await open(path, '#head=0.0');
  const press = async (key) => {
    await page.keyboard.press(key);
    await settle(page);
    return state(page);
  };
  assert.equal((await press(']')).head, 1);
  assert.equal((await press('[')).head, 0);
  assert.equal((await press('}')).layer, 1);
  assert.equal((await press('{')).layer, 0);
  assert.deepEqual([(await press('.')).tab, (await press('.')).step], ['steps', 5]);
  assert.equal((await press(',')).step, 4);
  await page.click('#tab-matrix');
  await settle(page); // the grid of the steps gives way to the matrix's
  await page.focus('#grid');
  assert.equal((await press('ArrowUp')).lock.query, 16);
  assert.equal((await press('Escape')).lock, null);
  assert.equal((await press('Enter')).lock.query, 17);
  await page.focus('.hc[tabindex="0"]');
  assert.equal((await press('ArrowDown')).layer, 1);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.head), '8');
  for (const group of ['.chips [tabindex="0"]', '.hrows [tabindex="0"]', '.tablist [tabindex="0"]']) {
    assert.equal(await page.locator(group).count(), 1, group);
  }
  await press('Escape');
  await press('?');
  assert.ok(await page.locator('dialog[open]').count());
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => !document.querySelector('dialog[open]') && window.cephalo.state.dialog === null);
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'text');
  const outline = await page.locator('#tab-matrix').evaluate((tab) => {
    tab.focus();
    return getComputedStyle(tab).outlineStyle;
  });
  assert.equal(outline, 'solid');
});

test('18: a screen reader hears the choice, and axe finds nothing serious', async () => {
  const page = await open(path, '#head=3.1');
  const said = await text(page, '#live');
  assert.match(said, /^'Peter' looks at 'Rabbit', 0\.\d+, rank 1 of 18$/);
  assert.equal(await page.getAttribute('#grid', 'aria-rowcount'), '18');
  assert.equal(await page.locator('#grid [role=row]').getAttribute('aria-rowindex'), '18');
  assert.equal(await page.locator('#grid [role=gridcell]').count(), 18);
  const { readFileSync } = await import('node:fs');
  const { require } = await import('./bundle.mjs');
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const hash of ['#head=3.1', '#head=3.1&theme=dark', '#head=3.1&tab=steps&step=4', '#head=3.1&tab=lines&neuron=1']) {
    const each = await open(path, hash);
    await each.evaluate(axe); // in the page's own world: its policy forbids a new script element
    const { violations } = await each.evaluate(() => window.axe.run());
    const serious = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(serious.map((v) => `${hash} ${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`), []);
  }
  await page.click('#table');
  await settle(page);
  assert.equal(await page.locator('#numbers tr').count(), 33);
});

test('19: it follows the system, a switch goes before, and reduced motion is respected', async () => {
  const theme = (page) => page.evaluate(() => document.documentElement.dataset.theme);
  const dark = await open(path, '', { colorScheme: 'dark', reducedMotion: 'reduce' });
  assert.equal(await theme(dark), 'dark');
  assert.equal(await dark.locator('.chip b').first().evaluate((b) => getComputedStyle(b).transitionDuration), '0s');
  await dark.emulateMedia({ colorScheme: 'light' });
  await settle(dark);
  assert.equal(await theme(dark), 'light');
  await dark.click('#theme');
  await settle(dark);
  assert.equal(await theme(dark), 'dark');
});

test('20: the chosen token is in sight, however many lines there are, and however long a word is', async () => {
  const inSight = (page) => page.locator('.chip.on').evaluate((chip) => {
    const [box, frame] = [chip.getBoundingClientRect(), document.getElementById('sent').getBoundingClientRect()];
    return box.left >= 0 && box.right <= innerWidth && box.top >= frame.top && box.bottom <= frame.bottom + 1;
  });
  const many = 'The quick brown fox met the old lady by the river and the fox said to the lady that the quick river was old. '.repeat(2);
  for (const [viewport, words] of [[{ width: 390, height: 844 }, many], [{ width: 1280, height: 800 }, '今天天气很好我们去公园散步然后回家吃饭']]) {
    const page = await open(path, '', { viewport });
    await page.fill('#text', words);
    await settle(page);
    assert.ok(await inSight(page), words);
  }
});

test('20: on a phone nothing scrolls sideways, and a thumb can step through the tokens', async () => {
  const page = await open(path, '#head=3.1', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
  for (const tab of ['matrix', 'lines', 'steps']) {
    await page.tap(`#tab-${tab}`);
    await settle(page);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, tab);
  }
  assert.equal(await page.locator('.hr:visible .hc').count(), 8);
  const before = page.locator('[aria-label="Token before"]');
  const box = await before.boundingBox();
  assert.ok(box.width >= 44 && box.height >= 44 && box.y + box.height <= 844);
  await before.tap();
  await settle(page);
  assert.equal((await state(page)).lock.query, 16);
  for (const selector of ['#headline', '#sentence', '.pill', '#looks']) assert.ok(await page.locator(selector).first().isVisible(), selector);
});

test('21: the footer says which model; errors are plain words; untrained weights are called so', async () => {
  const page = await open(path);
  const native = look(rabbit);
  assert.equal(await text(page, '#model'), 'cephalo-small · 18 tokens · 4 layers × 8 heads');
  assert.equal(await text(page, '#parameters'), `parameters ${native.model.sha256.slice(0, 8)}`);
  assert.equal(await text(page, '#dtype'), 'bfloat16, computed in float32');
  assert.equal(await page.locator('#banner').count(), 0);
  await page.fill('#text', 'word '.repeat(300));
  await page.waitForFunction(() => window.cephalo.state.error);
  await settle(page);
  assert.match(await text(page, '#banner'), /^\d+ tokens are more than cephalo-small reads at once \(256\)\. The earlier text is still shown\.$/);
  assert.ok(await page.locator('.mx').isVisible());
  await page.fill('#text', 'short again');
  await page.waitForFunction(() => !window.cephalo.state.error);
  await settle(page);
  assert.equal(await page.locator('#banner').count(), 0);
  const other = path.replace('.html', '-untrained.html');
  writeFileSync(other, withPart(htmlOf(path), 'page-data', (data) => data.replace('"untrained":false', '"untrained":true')));
  assert.match(await text(await open(other), '#banner'), /^Untrained weights/);
  const cut = path.replace('.html', '-cut.html');
  writeFileSync(cut, htmlOf(path).replace(/id="model-parameters">[^<]{100}/, 'id="model-parameters">'));
  assert.equal(await text(await open(cut, '', { refused: true }), '#banner'), 'This page is damaged: its part ‘model-parameters’ cannot be read.');
});
