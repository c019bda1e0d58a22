// Chromium with a page that the program wrote, opened from a file as a person would.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { load, program, require } from './bundle.mjs';

const { chromium } = require('playwright-core');
export const rabbit = 'Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter';
const slow = 240_000; // for a machine that is busy with other things

const folder = mkdtempSync(join(tmpdir(), 'cephalo-page-'));
let written = 0;

export function writePage(text, ...flags) {
  const path = join(folder, `page${written++}.html`);
  execFileSync(program, ['page', '-o', path, ...flags, '--', text]);
  return path;
}

export const look = (text, ...flags) =>
  JSON.parse(execFileSync(program, ['look', '--json', ...flags, '--', text], { maxBuffer: 1 << 28 }));

let browser;
export async function launch() {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', timeout: slow,
                                    args: process.getuid() === 0 ? ['--no-sandbox'] : [] });
}
export const close = () => browser.close();

// A window with a file in it. Whatever it asks for or complains of is kept. before: run in the window
// before anything else.
export async function openRaw(path, hash = '', { before, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: 'light', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(slow);
  if (before) await page.addInitScript(before);
  const seen = { requests: [], complaints: [] };
  page.on('request', (request) => seen.requests.push(request.url()));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && seen.complaints.push(message.text()));
  page.on('pageerror', (error) => seen.complaints.push(error.message));
  await page.goto(pathToFileURL(path).href + hash, { waitUntil: 'commit' });
  return Object.assign(page, { seen });
}

// The same with a page of the program's, when it shows something. refused: it is to say why it
// cannot run.
export async function open(path, hash = '', { refused = false, ...options } = {}) {
  const page = await openRaw(path, hash, options);
  await page.waitForFunction(() => window.cephalo?.state.run || window.cephalo?.state.error);
  assert.equal(await page.evaluate(() => window.cephalo.state.error !== null), refused);
  await settle(page);
  return page;
}

// Until what was asked for is drawn.
export async function settle(page) {
  await page.waitForFunction(() => {
    const { state } = window.cephalo;
    if (window.cephalo.waiting) return false;
    const asks = state.run && !state.data.recorded && !state.steps && !state.over && (state.tab === 'steps' || state.neuron);
    const { compared } = state;
    const waits = state.tab === 'compare' && compared.with === 'text' && compared.run?.text !== compared.text && !compared.error;
    return (state.error || state.run?.text === state.text) && !asks && !waits && window.cephalo.answered;
  });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

export const state = (page) => page.evaluate(() => {
  const { data, run, steps, sizes, switched, effects, ...rest } = window.cephalo.state;
  return rest;
});
// What the processes that show pages have in memory, the largest one.
export async function rendererBytes() {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  const resident = (pid) => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
  return Math.max(...processInfo.filter((each) => each.type === 'renderer').map((each) => resident(each.id)));
}

export const measured = (page) => page.evaluate(() => window.cephalo.measured);

export const text = (page, selector) => page.textContent(selector);

// Milliseconds against their limit. CEPHALO_TIMES=report says them only: for a busy machine.
export function within(name, value, limit) {
  console.log(`${name}: ${value.toFixed(0)} ms, at most ${limit}`);
  if (process.env.CEPHALO_TIMES !== 'report') assert.ok(value <= limit, `${name} took ${value} ms`);
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

// What axe-core calls serious, in one line each. It runs in the page's own world: the page's policy
// forbids a new script element.
export async function serious(page) {
  await page.evaluate(readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'));
  const { violations } = await page.evaluate(() => window.axe.run());
  return violations.filter((v) => ['serious', 'critical'].includes(v.impact))
    .map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`);
}

export const { checksum } = await load('checksum.ts');
const partOf = (id) => new RegExp(`data-check="[0-9a-f]{8}" id="${id}">([^<]*)`);

// A page with something else in one of its parts, and the checksum of that.
export const withPart = (html, id, change) => html.replace(partOf(id), (_, before) => {
  const content = change(before);
  return `data-check="${checksum(Buffer.from(content, id === 'page-data' ? 'utf8' : 'base64'))}" id="${id}">${content}`;
});

// A page with one bit of one of its parts changed.
export const withFlippedBit = (html, id) => html.replace(partOf(id), (all, content) => {
  const at = all.length - content.length + Math.floor(content.length / 2);
  const digit = /[B-Yb-y0-9]/.exec(all.slice(at)); // what it becomes is one too
  return all.slice(0, at + digit.index) + String.fromCharCode(digit[0].charCodeAt(0) ^ 1) + all.slice(at + digit.index + 1);
});

export const htmlOf = (path) => readFileSync(path, 'utf8');
