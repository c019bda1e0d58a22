// The terminal's twin: `cephalo look` shows the head that the page opens with, and its numbers.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { program } from './bundle.mjs';
import { close, launch, open, rabbit, settle, text, writePage } from './browser.mjs';

let path;
before(async () => {
  await launch();
  path = writePage(rabbit);
});
after(close);

const texts = [rabbit, 'The cat sat on the mat. The cat sat on the', 'Once upon a time there was', 'x', 'to be or not to be, that is\nthe'];

// What a pipe gets, and not a terminal.
const look = (words, flags = [], env = {}) =>
  execFileSync(program, ['look', ...flags, '--', words], { encoding: 'utf8', env: { ...process.env, LC_ALL: 'C.UTF-8', ...env } });

function terminal(words) {
  const oneLine = look(words).replace(/\s+/g, ' ');
  const [, layer, head] = /Start with L(\d+) H(\d+) \(--layer \1 --head \2\)\./.exec(oneLine);
  const [title, headline, ...rest] = look(words, ['--layer', layer, '--head', head]).split('\n');
  const most = /^(.+) (\d+) looks most at (?:itself|(.+) (\d+)) \((\d\.\d{4})\)/.exec(rest.join(' '));
  return { layer: Number(layer), head: Number(head), headline,
           labels: [...title.matchAll(/ {2}([a-z]+) (\d\.\d\d)/g)].map(([, name, score]) => `${name} ${score}`),
           query: Number(most[2]), key: most[4] === undefined ? Number(most[2]) : Number(most[4]), weight: Number(most[5]) };
}

async function shown(page) {
  return page.evaluate(() => {
    const { state } = window.cephalo;
    const chosen = document.querySelector('#keys .rowb.on');
    return { layer: state.layer, head: state.head, headline: document.getElementById('headline').textContent,
             labels: [...document.querySelectorAll('.pill')].map((p) => [...p.children].slice(1).map((c) => c.textContent).join(' ')),
             query: Number(document.querySelector('.chip.on').dataset.n), key: Number(chosen.dataset.key),
             weight: Number(chosen.querySelector('.v').title) };
  });
}

function same(there, here) {
  const { weight, ...rest } = there;
  const { weight: printed, ...others } = here;
  assert.deepEqual(rest, others);
  assert.ok(Math.abs(weight - printed) <= 0.5e-4 + 1e-5, `${weight} and ${printed}`);
}

test('22: page and terminal open with the same head: label, score, strongest key and weight', async () => {
  for (const words of texts) {
    const here = terminal(words);
    same(await shown(await open(writePage(words))), here);
    same(await shown(await open(writePage(words, '--recorded'))), here);
    console.log(`${JSON.stringify(words)}: L${here.layer} H${here.head}, ${here.headline}, ${here.key} ${here.weight}`);
  }
});

test('22: every head has the same headline and labels in both', async () => {
  const page = await open(path);
  const native = JSON.parse(look(rabbit, ['--json']));
  const headlines = new Set();
  for (const { layer, head } of native.heads.filter((_, n) => n % 3 === 0)) {
    const [title, headline] = look(rabbit, ['--layer', String(layer), '--head', String(head)]).split('\n');
    await page.click(`[data-head="${layer * 8 + head}"]`);
    await settle(page);
    assert.equal(await text(page, '#headline'), headline, title);
    headlines.add(headline);
  }
  assert.ok(headlines.size >= 3, [...headlines].join('; '));
});

test('22: no colour into a pipe or under NO_COLOR, and never wider than asked for', () => {
  const escape = /\u001b\[/;
  assert.doesNotMatch(look(rabbit), escape);
  const inTerminal = (env) => execFileSync('script', ['-qec', `stty cols ${env.columns} rows 50; "$CEPHALO_TWIN" look "$CEPHALO_TEXT"`, '/dev/null'],
    { encoding: 'utf8', env: { ...process.env, LC_ALL: 'C.UTF-8', TERM: 'xterm-256color', NO_COLOR: '', COLORTERM: '',
                               CEPHALO_TWIN: program, CEPHALO_TEXT: rabbit, ...env.variables } });
  const bare = (out) => out.replace(/\u001b\[[0-9;]*m/g, '').replace(/\r/g, '');
  const coloured = inTerminal({ columns: 80, variables: { COLORTERM: 'truecolor' } });
  assert.match(coloured, /\u001b\[(38|48);2;/);
  assert.match(inTerminal({ columns: 80, variables: {} }), /\u001b\[(38|48);5;/);
  assert.doesNotMatch(inTerminal({ columns: 80, variables: { NO_COLOR: '1' } }), escape);
  for (const columns of [60, 80, 132]) {
    const lines = bare(inTerminal({ columns, variables: { COLORTERM: 'truecolor' } })).split('\n');
    assert.ok(lines.every((line) => [...line].length <= columns), `${columns} columns`);
  }
  assert.match(bare(coloured).replace(/\s+/g, ' '), /Start with L3 H1 /);
});
