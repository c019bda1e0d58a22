// What if, heads off and each head in turn: the page in Chromium.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { close, launch, look, measured, median, open, rabbit, settle, state, text, within, writePage } from './browser.mjs';
import { plainModel } from './plain_model.mjs';

let path, ids;
before(async () => {
  await launch();
  path = writePage(rabbit);
  ids = look(rabbit).tokens.map((token) => token.id);
});
after(close);

const near = (a, b, limit = 1e-5) => assert.ok(Math.abs(a - b) <= limit, `${a} and ${b}`);
const phone = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
const bent = (layer, head, change) => ({ layer, head, scaled: true, temperature: 1, keys: 0, off: null, ...change });
const click = async (page, selector) => {
  await page.click(selector);
  await settle(page);
};
const titled = (page, selector) => page.locator(selector).evaluate((element) => Number(element.title));
const pressed = (page, selector) => page.getAttribute(selector, 'aria-pressed');
const percentage = (share) => (share < 0.0005 ? '<0.1\u00a0%' : `${(share * 100).toFixed(1)}\u00a0%`);
const onScreen = async (page, selector, bottom) => {
  const box = await page.locator(selector).boundingBox();
  assert.ok(box && box.y >= 0 && box.y + box.height <= bottom, `${selector} ${JSON.stringify(box)}`);
};

// What is shown of the chosen head and of the next token, against the model in plain JavaScript.
async function compare(page, switches) {
  const count = ids.length;
  const { layer, head } = await state(page);
  const [plain, trained] = [plainModel(ids, switches), plainModel(ids)];
  const shown = await page.evaluate(() => ({ ...window.cephalo.state.switched, run: null, weights: [...window.cephalo.state.switched.weights] }));
  const weights = plain.weights[layer][head].flat();
  weights.forEach((weight, n) => near(shown.weights[head * count * count + n], weight, 6e-5));
  const next = plain.probabilities[count - 1];
  const before = trained.probabilities[count - 1];
  const rabbitId = before.indexOf(Math.max(...before));
  near(await titled(page, '#what-if .answer b'), next[rabbitId]);
  assert.match(await text(page, '#what-if'), new RegExp(`“Rabbit” ${percentage(before[rabbitId])} → ${percentage(next[rabbitId])}`));
  const rows = await page.locator('#next .rowb .v').evaluateAll((all) => all.map((v) => Number(v.title)));
  near(rows[0], next[rabbitId]);
  return { plain, trained };
}

test('8: no scaling, no mask and temperature, each with its question and its answer', async () => {
  const page = await open(path, '#head=2.3');
  assert.equal(await page.locator('#what-if').count(), 0);
  await click(page, '#no-scaling');
  assert.equal(await pressed(page, '#no-scaling'), 'true');
  assert.match(await text(page, '#what-if'), /^What if this head did not divide by √32\? /);
  await compare(page, [bent(2, 3, { scaled: false })]);
  await click(page, '#tab-steps');
  assert.match(await text(page, '#what-if'), /This tab is as trained\.Reset$/);
  await click(page, '#tab-matrix');
  assert.equal(await page.locator('.hc.touched').count(), 1);
  assert.equal(await page.locator('.hc.touched').getAttribute('data-head'), '19');
  assert.equal(await page.locator('.chip.next.differs').count(), 1);
  assert.equal(await page.locator('#next .tr s').count(), 5);
  await click(page, '#no-mask');
  assert.match(await text(page, '#what-if'), /did not divide by √32 and could see the future\?/);
  await compare(page, [bent(2, 3, { scaled: false, keys: -1 })]);
  await click(page, '#no-scaling');
  await click(page, '#no-mask');
  assert.equal(await page.locator('#what-if').count(), 0);
  await click(page, '#more');
  await page.locator('#temperature').fill('1');
  await settle(page);
  assert.match(await text(page, '#what-if'), /^What if this head had temperature 10\?/);
  await compare(page, [bent(2, 3, { temperature: 10 })]);
  assert.equal(await page.locator('#reset').count(), 1);
  assert.equal(await page.locator('button:text-is("Reset")').count(), 1);
  await click(page, '#reset');
  assert.equal(await page.locator('#what-if, .hc.touched, .chip.next.differs').count(), 0);
});

test('8: a window, in this head, its layer or all', async () => {
  const page = await open(path, '#head=1.6&more=1');
  await click(page, '#options [data-option=window]');
  assert.match(await text(page, '#what-if'), /^What if this head saw only the last 4 tokens\?/);
  await page.fill('#window', '3');
  await page.keyboard.press('Tab');
  await settle(page);
  await compare(page, [bent(1, 6, { keys: 3 })]);
  assert.equal(await page.locator('#grid [role=gridcell]').count(), 3);
  assert.match(await text(page, '#keys + .sum'), /^$|share/);
  await click(page, '#options [data-option=layer]');
  assert.match(await text(page, '#what-if'), /^What if every head of layer 1 saw only the last 3 tokens\?/);
  assert.equal(await page.locator('.hc.touched').count(), 8);
  const all = (layers, change) => layers.flatMap((layer) => Array.from({ length: 8 }, (_, head) => bent(layer, head, change)));
  await compare(page, all([1], { keys: 3 }));
  await click(page, '#options [data-option=all]');
  assert.match(await text(page, '#what-if'), /^What if every head saw only the last 3 tokens\?/);
  await compare(page, all([0, 1, 2, 3], { keys: 3 }));
  await page.fill('#window', '1');
  await page.keyboard.press('Tab');
  await settle(page);
  assert.match(await text(page, '#what-if'), /^What if every head let each token see only itself\?/);
});

test('8: a switch stays with the heads that it was for', async () => {
  const page = await open(path, '#head=1.6');
  await click(page, '#no-scaling');
  await click(page, '.hc[data-head="25"]');
  await click(page, '#more');
  await click(page, '#options [data-option=causal]');
  assert.match(await text(page, '#what-if'), /^What if layer 1 head 6 did not divide by √32\?/);
  assert.deepEqual((await state(page)).switches.heads, ['1.6'], 'causal already: nothing was asked');
  await click(page, '#no-mask');
  assert.match(await text(page, '#what-if'), /^What if this head could see the future\?/);
  assert.deepEqual((await state(page)).switches.heads, ['3.1'], 'a new question, of this head alone');
  await compare(page, [bent(3, 1, { keys: -1 })]);
  await page.goBack();
  await settle(page);
  assert.deepEqual((await state(page)).switches.heads, ['1.6']);
  const two = await open(path, '#head=1.6&if=unscaled&in=1.6_3.1');
  await click(two, '#no-scaling');
  assert.deepEqual((await state(two)).switches.heads, ['3.1'], 'the other keeps its switch');
  assert.match(await text(two, '#what-if'), /^What if layer 3 head 1 did not divide by √32\?/);
});

test('8: what if is large, as trained and the signed difference small, and the pointer is in all three', async () => {
  const page = await open(path, '#head=2.3&if=t10&in=2.3');
  const { plain, trained } = await compare(page, [bent(2, 3, { temperature: 10 })]);
  const sizes = await page.locator('.trio canvas').evaluateAll((all) => all.map((c) => c.getBoundingClientRect().width));
  assert.equal(sizes.length, 3);
  assert.ok(sizes[0] > 1.5 * sizes[1] && sizes[1] === sizes[2], String(sizes));
  for (const [selector, row, key] of [['.smap >> nth=0', 9, 4], ['.smap >> nth=1', 12, 11]]) {
    const box = await page.locator(selector).boundingBox();
    await page.mouse.move(box.x + ((key + 0.5) * box.width) / 18, box.y + ((row + 0.5) * box.height) / 18);
    await settle(page);
    assert.deepEqual((await state(page)).hover, { query: row, key });
    const [now, was] = [plain.weights[2][3][row][key], trained.weights[2][3][row][key]];
    near(await page.locator('#keys .rowb.on .v').evaluate((v) => Number(v.title)), now);
    near(await titled(page, '#trained'), was);
    near(await titled(page, '#differs'), now - was);
    assert.equal(await page.getAttribute('#differs', 'class'), now < was ? 'neg' : 'pos');
    const frames = await page.locator('.trio .fcell').evaluateAll((all) => all.map((f) => Number(f.getAttribute('x')) / Number(f.getAttribute('width'))));
    assert.equal(frames.length, 3);
    near(frames[1], key, 0.01);
    near(frames[2], key, 0.01);
  }
  await page.mouse.move(5, 5);
  await click(page, '.hc[data-head="20"]');
  assert.equal(await page.locator('.trio').count(), 0, 'a neighbour is as trained');
  await click(page, '.hc[data-head="24"]');
  assert.equal(await page.locator('.trio').count(), 1, 'a later head sees other things');
  assert.match(await text(page, '#what-if'), /^What if layer 2 head 3 had temperature 10\?/);
  await compare(page, [bent(2, 3, { temperature: 10 })]);
});

test('8: typing under a switch never shows the head as if it were not switched', async () => {
  const page = await open(path, '#head=2.3&if=t10&in=2.3');
  await page.evaluate(() => {
    window.seen = { frames: 0, without: 0 };
    const look = () => {
      window.seen.frames += 1;
      if (!document.querySelector('.trio')) window.seen.without += 1;
      requestAnimationFrame(look);
    };
    look();
  });
  await page.locator('#text').press('End');
  for (const key of [' ', 'R', 'a', 'b']) {
    await page.locator('#text').press(key);
    await settle(page);
  }
  for (const index of [24, 31, 19]) await click(page, `.hc[data-head="${index}"]`);
  const seen = await page.evaluate(() => window.seen);
  assert.ok(seen.frames > 10);
  assert.equal(seen.without, 0);
  assert.equal((await state(page)).text, `${rabbit} Rab`);
  assert.match(await text(page, '#what-if'), /^What if this head had temperature 10\? .* → /);
});

test('8: an open fold leaves the next token on screen', async () => {
  for (const hash of ['#head=3.1&more=1', '#head=3.1&more=1&off=3.1&means=even', '#head=3.1&neuron=1&if=unscaled&in=3.1', '#head=2.3&neuron=1']) {
    const page = await open(path, hash);
    assert.equal(await page.locator('#keys .rowb').count(), 3, hash);
    await onScreen(page, '#next .rowb >> nth=0', 772);
    await onScreen(page, '#next .rowb >> nth=-1', 772);
    assert.deepEqual(await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]), [1280, 800]);
  }
});

test('8: 64 tokens take three lines, and legend and next token are still on screen', async () => {
  const words = 'The quick brown fox met the old lady by the river and the fox said to the lady that the quick river was old and so was the fox ' +
    'who met the lady again when the day was over and all of them had gone home by the old road that goes round the hill';
  const page = await open(path, `#head=2.3&if=nomask&in=2.3&text=${encodeURIComponent(words)}`);
  await onScreen(page, '#legend', 772);
  await onScreen(page, '.smap >> nth=1', 772);
  await onScreen(page, '#next .rowb >> nth=-1', 772);
});

test('9: a head off keeps its pattern, greyed, and bars say how far each prediction moved', async () => {
  const page = await open(path, '#head=2.3');
  const trained = await page.evaluate(() => [...window.cephalo.state.run.weights.slice(19 * 324, 20 * 324)]);
  await click(page, '#head-off');
  assert.match(await text(page, '#what-if'), /^What if this head were switched off\?/);
  assert.equal(await text(page, '#is-off'), 'but this head is off: none of it is passed on');
  assert.equal(await page.locator('.mx canvas.faded').count(), 1);
  const now = await page.evaluate(() => [...window.cephalo.state.switched.weights.slice(3 * 324, 4 * 324)]);
  assert.deepEqual(now, trained);
  const { plain, trained: before } = await compare(page, [bent(2, 3, { off: 'zero' })]);
  const bars = await page.locator('.moved').evaluateAll((all) => all.map((bar) => Number(bar.getAttribute('width'))));
  assert.equal(bars.length, 18);
  const moved = plain.probabilities.map((q, i) => before.probabilities[i].reduce((sum, p, id) => sum + p * Math.log(p / q[id]), 0));
  const shown = await page.evaluate(() => [...window.cephalo.state.switched.changes]);
  moved.forEach((value, i) => near(shown[2 * i], value, 2e-5));
  assert.equal(bars.indexOf(Math.max(...bars)), moved.indexOf(Math.max(...moved)));
  const native = look(rabbit, '--ablate', 'L2H3').ablation;
  native.losses_after.forEach((loss, i) => near(shown[2 * i + 1], native.losses_before[i] - loss, 2e-5));
});

test('9: several heads off, by zero, mean and even', async () => {
  const page = await open(path, '#head=2.3&more=1');
  await click(page, '#head-off');
  await click(page, '.hc[data-head="9"]');
  assert.equal(await pressed(page, '#head-off'), 'false');
  await click(page, '#head-off');
  assert.match(await text(page, '#what-if'), /^What if 2 heads were switched off\?/);
  const kinds = { zero: 'zero', mean: 'mean', even: 'uniform' };
  for (const [means, kind] of Object.entries(kinds)) {
    await click(page, `#options [data-option=${means}]`);
    const native = look(rabbit, '--ablate', 'L1H1,L2H3', '--with', kind).ablation;
    const shown = await page.evaluate(() => window.cephalo.state.switched);
    for (const p of shown.predictions) near(p.probability, native.next.find((token) => token.id === p.id).after);
    near(shown.divergence, native.divergence);
  }
  assert.match(await text(page, '#what-if'), /^What if 2 heads looked at everything equally\?/);
  await click(page, '#head-off');
  assert.match(await text(page, '#what-if'), /^What if layer 2 head 3 looked at everything equally\?/);
});

test('9: each head in turn: a map of layers × heads, with progress, while typing still answers', async () => {
  const page = await open(path);
  const words = 'The quick brown fox met the old lady by the river and the fox said to the lady that the quick river was old and so was the fox who met the lady again ' +
    'when the day was over and all of them had gone home by the old road that goes round the hill and by the mill to the sea';
  await page.fill('#text', words);
  await settle(page);
  const type = async () => {
    for (let n = 0; n < 20; ++n) {
      await page.locator('#text').press('End');
      const drawn = (await measured(page)).answers.length;
      await page.locator('#text').press(n % 2 ? 'Backspace' : 'x');
      await page.waitForFunction((before) => window.cephalo.measured.answers.length > before, drawn);
    }
    await settle(page);
    const { answers, passes, draws } = await measured(page);
    return { answer: median(answers.slice(-20)), pass: median(passes.slice(-20)), draw: median(draws.slice(-20)), count: answers.length };
  };
  const plain = await type();
  within('pass while typing, median of 20', plain.pass, 120);
  within('draw while typing, median of 20', plain.draw, 30);
  within('from a key to the picture, median of 20', plain.answer, 200);
  const count = await page.evaluate(() => window.cephalo.state.run.tokens.length);
  const took = await page.evaluate(() => new Promise((done) => {
    const begun = performance.now();
    const seen = [];
    document.querySelector('#grid-effect').click();
    const look = () => {
      const { effects } = window.cephalo.state;
      seen.push(effects ? effects.changes.filter((each) => each !== undefined).length : 0);
      if (seen.at(-1) === 32) done({ ms: performance.now() - begun, seen });
      else requestAnimationFrame(look);
    };
    look();
  }));
  console.log(`${count} tokens`);
  within('each head in turn', took.ms, 3000);
  assert.ok(new Set(took.seen).size > 2, `progress ${took.seen}`);
  await settle(page);
  const native = look(words, '--effects');
  const shown = await page.locator('.fx').evaluateAll((all) => all.map((cell) => Number(cell.dataset.change)));
  assert.equal(shown.length, 32);
  for (const index of [0, 9, 19, 24, 31]) {
    const { ablation } = look(words, '--ablate', `L${Math.floor(index / 8)}H${index % 8}`);
    const token = ablation.next.find((each) => each.id === native.predicted.id);
    near(shown[index], Math.log(token.after / token.before), 2e-5);
  }
  assert.match(await text(page, '#effects'), /^Change of ln P\(“.*”\) when this head is off\. Blue: it helped\.$/);
  // Typing in the middle of it: the newer text takes over at once.
  const meanwhile = await type();
  assert.equal(meanwhile.count - plain.count, 20);
  within('pass while heads are measured, median of 20', meanwhile.pass, 120);
  within('from a key to the picture while heads are measured, median of 20', meanwhile.answer, 200);
  assert.equal(await page.evaluate(() => window.cephalo.state.effects.changes.filter((each) => each !== undefined).length), 32);
});

test('9: plain typing asks for no pass but its own and that of the chosen head', async () => {
  const page = await open(path);
  await page.fill('#text', 'The cat sat on the mat. The cat sat on the');
  await settle(page);
  assert.deepEqual((await measured(page)).switched, []);
  assert.equal(await page.evaluate(() => window.cephalo.state.effects.changes.filter((each) => each !== undefined).length), 1);
  assert.equal((await state(page)).switched, undefined);
});

// The effect is what the program finds.
async function readAll(page) {
  const { layer, head } = await state(page);
  const native = look(rabbit, '--layer', String(layer), '--head', String(head));
  const its = native.heads.find((each) => each.weights);
  const { ablation } = look(rabbit, '--ablate', `L${layer}H${head}`);
  const { before, after: without } = ablation.next.find((token) => token.id === native.predictions[0].id);
  const row = its.weights.at(-1);
  const key = row.indexOf(Math.max(...row));
  return { label: its.labels[0], change: Math.log(without / before), key, weight: row[key], next: native.predictions[0] };
}

test('one click on a head: its label, sentence, effect, strongest key and the next token, on one screen', async () => {
  const page = await open(path);
  for (const index of [19, 24, 8]) {
    await click(page, `.hc[data-head="${index}"]`);
    const { label, change, key, weight, next } = await readAll(page);
    if (label) {
      await onScreen(page, '.pill >> nth=0', 800);
      assert.match(await text(page, '.pill >> nth=0'), new RegExp(`${label.label} ${label.score.toFixed(2)}$`));
    }
    await onScreen(page, '#sentence', 800);
    assert.match(await text(page, '#sentence'), /\w.*\.$/);
    await onScreen(page, '#effect', 800);
    assert.match(await text(page, '#effect'), /^Without it: ln P\(“Rabbit”\) [−+±]?\d/);
    near(await titled(page, '#effect b'), change, 2e-5);
    await onScreen(page, '#looks', 800);
    await onScreen(page, '#keys .rowb >> nth=0', 800);
    assert.equal(await page.getAttribute('#keys .rowb >> nth=0', 'data-key'), String(key));
    near(await titled(page, '#keys .rowb >> nth=0 >> .v'), weight);
    await onScreen(page, '#next .rowb >> nth=0', 800);
    assert.match(await text(page, '#next .rowb >> nth=0'), /^Rabbit\d+\.\d\s%$/);
    near(await titled(page, '#next .rowb >> nth=0 >> .v'), next.probability);
    assert.deepEqual(await page.evaluate(() => [scrollX, scrollY]), [0, 0]);
  }
});

test('one tap on a head of a phone: its label, sentence, effect and strongest key', async () => {
  const page = await open(path, '#head=2.0', phone);
  await page.tap('.hc[data-head="19"]');
  await settle(page);
  const { label, change, key } = await readAll(page);
  const sheet = (await page.locator('.insp').boundingBox()).y;
  for (const selector of ['.pill >> nth=0', '#headline', '#sentence', '#effect']) await onScreen(page, selector, sheet);
  await onScreen(page, '#looks', 844);
  assert.match(await text(page, '.pill >> nth=0'), new RegExp(`${label.score.toFixed(2)}$`));
  assert.match(await text(page, '#sentence'), /one step back\.$/);
  near(await titled(page, '#effect b'), change, 2e-5);
  assert.match(await text(page, '#looks'), new RegExp(`^Peter17 looks most at .*${key}$`));
  assert.equal(await page.evaluate(() => scrollY), 0);
});

test('8, 9 and 20: on a phone nothing scrolls sideways under a switch', async () => {
  for (const hash of ['#head=2.3&if=nomask_t2&in=all&more=1', '#head=2.3&off=2.3&grid=effect', '#head=2.mean&if=last2&in=2']) {
    const page = await open(path, hash, phone);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390, hash);
    await page.tap('.grab');
    await settle(page);
    const small = await page.locator('.tg, .opts .seg button, #more').evaluateAll((all) => all.filter((b) => b.getBoundingClientRect().height < 24).length);
    assert.equal(small, 0, hash);
  }
});

test('16: a link brings back every switch; Back takes one off', async () => {
  const hash = '#head=2.4&if=unscaled_last3_t2.5&in=1.6_2&off=0.1_3&means=even&scope=layer&more=1&grid=effect';
  const page = await open(path, hash);
  const { switches, whatIf, grid } = await state(page);
  assert.deepEqual({ ...switches, whatIf, grid }, {
    heads: ['1.6', '2'], scaled: false, mask: 'window', window: 3, temperature: 2.5, off: ['0.1', '3'], offMeans: 'even',
    scope: 'layer', whatIf: true, grid: 'effect' });
  assert.equal(await page.evaluate(() => location.hash), hash);
  assert.equal(await page.locator('.hc.touched').count(), 1 + 8 + 1 + 8);
  const other = await open(path, '#head=2.4&if=nomask_t99_last0&in=9.9_x_2.4&off=evil&means=x&scope=x&grid=x&lock=3.9');
  assert.deepEqual((await state(other)).switches, {
    heads: ['2.4'], scaled: true, mask: 'none', window: 4, temperature: 1, off: [], offMeans: 'zero', scope: 'head' });
  assert.deepEqual((await state(other)).lock, { query: 3, key: 9 });
  const back = await open(path, '#head=2.3');
  await click(back, '#head-off');
  await back.goBack();
  await settle(back);
  assert.deepEqual((await state(back)).switches.off, []);
});

test('17 and 18: switches by keys and for a screen reader', async () => {
  const page = await open(path, '#head=2.3&more=1');
  await page.focus('#no-mask');
  await page.keyboard.press('Enter');
  await settle(page);
  assert.equal(await pressed(page, '#no-mask'), 'true');
  assert.match(await text(page, '#live'), /rank 1 of 18$/);
  assert.equal(await page.locator('#grid [role=gridcell]').count(), 18);
  await page.focus('#temperature');
  await page.keyboard.press('ArrowRight');
  await settle(page);
  const { switches, lock } = await state(page);
  assert.ok(switches.temperature > 1 && lock === null, 'arrows move the slider, not the token');
  assert.equal(await page.getAttribute('#what-if', 'role'), 'status');
  const { readFileSync } = await import('node:fs');
  const { require } = await import('./bundle.mjs');
  const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
  for (const hash of ['#head=2.3&if=t10&in=2.3&more=1', '#head=2.3&off=2.3&grid=effect&theme=dark', '#head=2.3&off=2.3&grid=effect']) {
    const each = await open(path, hash);
    await each.evaluate(axe);
    const { violations } = await each.evaluate(() => window.axe.run());
    const serious = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
    assert.deepEqual(serious.map((v) => `${hash} ${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`), []);
  }
});
