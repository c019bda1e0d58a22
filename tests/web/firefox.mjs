// Firefox by WebDriver BiDi, as much of it as a test needs: Debian's Firefox does not speak the
// protocol of Playwright, and lacks commands that Playwright sends it by BiDi.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { require } from './bundle.mjs';

const WebSocket = globalThis.WebSocket ?? require(join(dirname(require.resolve('playwright-core')), 'lib/utilsBundle.js')).ws;
const startLimit = 120_000; // ms

function started(process) {
  return new Promise((resolve, reject) => {
    let said = '';
    const timer = setTimeout(() => reject(new Error(`Firefox did not start: ${said}`)), startLimit);
    process.stderr.on('data', (bytes) => {
      said += bytes;
      const found = /WebDriver BiDi listening on (ws:\/\/\S+)/.exec(said);
      if (!found) return;
      clearTimeout(timer);
      resolve(found[1]);
    });
    process.on('exit', () => reject(new Error(`Firefox ended: ${said}`)));
  });
}

export class Firefox {
  #count = 0;
  #waiting = new Map();
  complaints = [];

  static async launch(path) {
    const made = new Firefox();
    made.profile = mkdtempSync(join(tmpdir(), 'cephalo-firefox-'));
    made.process = spawn(path, ['--headless', '--no-remote', '--profile', made.profile, '--remote-debugging-port', '0', '--width', '1280',
                                '--height', '900'], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, HOME: made.profile } });
    await made.#connect(`${await started(made.process)}/session`);
    const { capabilities } = await made.send('session.new', { capabilities: {} });
    made.version = capabilities.browserVersion;
    await made.send('session.subscribe', { events: ['log.entryAdded'] });
    made.context = (await made.send('browsingContext.getTree', {})).contexts[0].context;
    await made.send('browsingContext.setViewport', { context: made.context, viewport: { width: 1280, height: 800 } });
    return made;
  }

  #connect(address) {
    this.socket = new WebSocket(address);
    this.socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.method === 'log.entryAdded' && message.params.level === 'error') this.complaints.push(message.params.text);
      const waiting = this.#waiting.get(message.id);
      if (!waiting) return;
      this.#waiting.delete(message.id);
      if (message.type === 'success') waiting.resolve(message.result);
      else waiting.reject(new Error(`${waiting.method}: ${message.message}`));
    };
    return new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error(`no answer at ${address}`));
    });
  }

  send(method, params) {
    const id = ++this.#count;
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject, method }));
  }

  goto = (url) => this.send('browsingContext.navigate', { context: this.context, url, wait: 'complete' });

  // The value of a function in the page: whatever JSON can hold.
  async evaluate(work) {
    const { result, exceptionDetails } = await this.send('script.evaluate', {
      expression: `(async () => JSON.stringify(await (${work})()))()`, target: { context: this.context }, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value === undefined ? undefined : JSON.parse(result.value);
  }

  async until(condition, limit = 240_000) {
    for (const end = Date.now() + limit; Date.now() < end;) {
      if (await this.evaluate(condition)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`waited in vain for ${condition}`);
  }

  async #middle(selector) {
    return this.evaluate(`() => {
      const box = document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect();
      return { x: Math.round(box.left + box.width / 2), y: Math.round(box.top + box.height / 2) };
    }`);
  }

  async #pointer(selector, then) {
    const { x, y } = await this.#middle(selector);
    const actions = [{ type: 'pointerMove', x, y }, ...then];
    await this.send('input.performActions', { context: this.context, actions: [{ type: 'pointer', id: 'mouse', parameters: { pointerType: 'mouse' }, actions }] });
  }

  hover = (selector) => this.#pointer(selector, []);
  click = (selector) => this.#pointer(selector, [{ type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 }]);

  async type(text) {
    const actions = [...text].flatMap((value) => [{ type: 'keyDown', value }, { type: 'keyUp', value }]);
    await this.send('input.performActions', { context: this.context, actions: [{ type: 'key', id: 'keys', actions }] });
  }

  async close() {
    const ended = new Promise((resolve) => this.process.on('exit', resolve));
    await this.send('browser.close', {}).catch(() => this.process.kill());
    await ended;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
