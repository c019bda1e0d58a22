// A text of 2,048 tokens, and the built-in model made to read it.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { program } from './bundle.mjs';

const words = ('the cat sat on mat and dog saw man in house old lady river said his her they was not come went little ' +
  'good day time one two three garden').split(' ');

// Each word is one token; the token that begins a text is the first. The same text every time.
export function longText(tokens) {
  let state = 12345;
  const next = () => (state = (state * 1103515245 + 12345) % 2147483648);
  return Array.from({ length: tokens - 1 }, () => ` ${words[Math.floor(next() / 65536) % words.length]}`).join('');
}

const folder = mkdtempSync(join(tmpdir(), 'cephalo-long-'));
const textFile = join(folder, 'long.txt');
const modelFolder = join(folder, 'model');

export function longModel() {
  execFileSync(program, ['convert', 'builtin', modelFolder, '--context-length', '2048']);
  writeFileSync(textFile, longText(2048));
  return { model: modelFolder, file: textFile };
}

let written = 0;
export function writeLongPage(...flags) {
  const path = join(folder, `page${written++}.html`);
  execFileSync(program, ['page', '--file', textFile, '--model', modelFolder, '-o', path, ...flags], { stdio: 'pipe' });
  return path;
}

// Every weight of one head, as the program says it: row i has i + 1.
export function nativeWeights(layer, head) {
  const out = execFileSync(program, ['look', '--json', '--file', textFile, '--model', modelFolder, '--layer', String(layer),
                                     '--head', String(head)], { maxBuffer: 1 << 28 });
  return JSON.parse(out).heads.find((each) => each.weights).weights;
}

export const blockOf = (html, id) => new RegExp(`id="${id}">([^<]*)</script>`).exec(html)[1];
export const checkOf = (html, id) => new RegExp(`data-check="([0-9a-f]{8})" id="${id}">`).exec(html)[1];
export const dataOf = (path) => {
  const html = readFileSync(path, 'utf8');
  return { html, data: JSON.parse(/id="page-data">(.*?)<\/script>/.exec(html)[1]) };
};
