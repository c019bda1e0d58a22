// What is committed under web/dist is what its sources make.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inflateRawSync } from 'node:zlib';
import { require, root } from './bundle.mjs';

const dist = (name) => readFileSync(join(root, 'web/dist', name));
const named = Object.fromEntries(dist('BUILD').toString().trim().split('\n').map((line) => line.split(' ')));

// Another version of a tool may make other bytes of the same sources.
function sameTools() {
  const lock = createHash('sha256').update(readFileSync(join(root, 'web/package-lock.json'))).digest('base64');
  return named.esbuild === require('esbuild').version && named.lock === `sha256-${lock}`;
}

test('page.html is what esbuild makes of web/src', (t) => {
  const out = mkdtempSync(join(tmpdir(), 'cephalo-dist-'));
  execFileSync(process.execPath, [join(root, 'web/build.mjs'), `--out=${out}`]);
  if (!sameTools()) return t.skip('it is made, but by another esbuild than that of web/dist/BUILD');
  assert.ok(readFileSync(join(out, 'page.html')).equals(dist('page.html')),
            'web/dist/page.html is out of date: make page makes it anew');
});

test('the engine is what Emscripten makes of its sources, or does the same', (t) => {
  const rebuilt = process.env.CEPHALO_ENGINE;
  if (!rebuilt) return t.skip('make test-web builds one to compare with');
  const emscripten = /(\d+\.\d+\.\d+)/.exec(execFileSync('em++', ['--version'], { encoding: 'utf8' }))[1];
  if (emscripten === named.emscripten) {
    assert.ok(readFileSync(rebuilt).equals(inflateRawSync(dist('engine.wasm.deflate'))),
              'web/dist/engine.wasm.deflate is out of date: make page makes it anew');
  } else {
    const tests = ['engine_test.mjs', 'switched_test.mjs'].map((name) => join(root, 'tests/web', name));
    const { NODE_TEST_CONTEXT, ...env } = process.env; // the tests are run apart, not reported into this one
    execFileSync(process.execPath, ['--test', ...tests], { env: { ...env, CEPHALO_ENGINE_TESTED: rebuilt }, stdio: 'pipe' });
  }
});

test('the page has places for its data, around its script, and nothing left to fill in', () => {
  const html = dist('page.html').toString();
  assert.deepEqual(html.match(/\{\{[a-z-]+\}\}|<script>/g), ['{{data}}', '<script>', '{{blocks}}']);
  for (const kind of ['script', 'style']) {
    const content = new RegExp(`<${kind}>([\\s\\S]*?)</${kind}>`).exec(html)[1];
    const hash = createHash('sha256').update(content).digest('base64');
    assert.ok(html.includes(`${kind}-src 'sha256-${hash}'`), kind);
  }
});
